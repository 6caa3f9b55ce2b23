"""The SQL functions as plpgsql_check sees them, and the files that they stand in: each says which others it needs.

    python tests/engines/test_postgres_functions.py    # write the lines "Needs:" of all files anew

plpgsql_check needs a server that has it (Debian: postgresql-15-plpgsql-check); without it that test is skipped.
"""

from __future__ import annotations

import os
import re
import tempfile
import textwrap
from pathlib import Path

import psycopg
import pytest
from needed import NO_PLPGSQL_CHECK
from sql.server import Postgres

from tenure.engines.postgres import _schema

SQL = Path(_schema.__file__).parent / "sql"
FILES = sorted(SQL.glob("*.sql"))
HEADER = re.compile(r"^-- Needs: (.*(?:\n--     .*)*)\n", re.MULTILINE)
PROGRAMS = [
    programs
    for programs in sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if Path(f"/usr/share/postgresql/{programs.parent.name}/extension/plpgsql_check.control").exists()
]
CHECK = """
    SELECT p.oid::regprocedure::text, c.lineno, c.message
    FROM pg_proc p, plpgsql_check_function_tb(p.oid, extra_warnings => true) c
    WHERE p.pronamespace = 'tenure'::regnamespace
        AND p.prolang = (SELECT l.oid FROM pg_language l WHERE l.lanname = 'plpgsql')
    ORDER BY 1, 2
"""


MEANT = {'unused parameter "_cap"', "composite OUT variable", 'never read variable "ok"'}
"""Each operation gets its step budget; a function that changes a queue returns the row beside its result; an assignment
calls a function without a query."""


def code_of(path):
    """The text without comments."""
    return re.sub(r"^ *--.*|  *-- .*", "", path.read_text("utf-8"), flags=re.MULTILINE)


HOMES = {
    name: path.stem for path in FILES for name in re.findall(r"CREATE FUNCTION tenure\.(\w+)", code_of(path))
}
"""Of each function the file that it stands in."""


def needs_of(path):
    """The other files whose functions are called."""
    called = re.findall(r"\btenure\.(\w+)\(", code_of(path))
    return {HOMES[name] for name in called if name in HOMES} - {path.stem}


def header_of(path):
    """What a file says that it needs."""
    found = HEADER.findall(path.read_text("utf-8"))
    return {name.strip("- \n") for names in found for name in names.split(",")}


def write_header(path):
    """Bring the line "Needs:" up to date, which ends the comment that the file begins with."""
    lines = HEADER.sub("", path.read_text("utf-8")).splitlines(keepends=True)
    end = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    names = ", ".join(sorted(needs_of(path)))
    needs = [textwrap.fill(f"-- Needs: {names}", 115, subsequent_indent="--     ") + "\n"] if names else []
    path.write_text("".join([*lines[:end], *needs, *lines[end:]]), "utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_which_others_it_needs(path):
    assert header_of(path) == needs_of(path), f"python tests/engines/{Path(__file__).name} writes these lines"


@pytest.fixture(scope="module")
def checking():
    """A connection to a server that has plpgsql_check and our functions."""
    if not PROGRAMS:
        pytest.skip(NO_PLPGSQL_CHECK)
    with tempfile.TemporaryDirectory(prefix="tenure") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENURE_POSTGRES_BIN", os.fspath(PROGRAMS[-1]))
        server = Postgres(Path(folder))
        server.start()
        try:
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION plpgsql_check")
                connection.execute(_schema.creation("tenure").sql)
                yield connection
        finally:
            server.stop()


def findings(connection):
    return [one for one in connection.execute(CHECK) if not any(one[2].startswith(meant) for meant in MEANT)]


def test_plpgsql_check_finds_nothing(checking):
    assert findings(checking) == []


def test_a_planted_fault_is_found(checking):
    with checking.transaction(force_rollback=True):
        checking.execute(
            "CREATE FUNCTION tenure.planted() RETURNS bigint LANGUAGE plpgsql"
            " AS $$ BEGIN RETURN (SELECT t.nothing FROM tenure.task t); END $$"
        )
        found = {message for _, _, message in findings(checking)}
    assert found == {"column t.nothing does not exist"}


if __name__ == "__main__":
    for one in FILES:
        write_header(one)
