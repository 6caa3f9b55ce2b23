"""The schema: made and updated by the first process that connects, under a lock."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from tenure.errors import EngineError

from ._pipeline import Statement
from ._version import STEPS, VERSION

_FUNCTIONS = (
    *(
        "state",
        "links",
        "sessions",
        "holds",
        "claims",
        "rates",
        "groups",
        "paces",
        "tasks",
        "keys",
        "producers",
        "families",
        "verdicts",
        "takers",
    ),
    *("records", "scan", "sweep", "enlisting"),
)
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,29}")


def check_name(schema: str) -> str:
    """A name that needs no quotes. Raises `ValueError`."""
    if not _NAME.fullmatch(schema):
        raise ValueError(f"schema: up to 30 small letters, digits and _, not {schema!r}")
    return schema


def in_schema(schema: str, sql: str) -> str:
    return sql if schema == "tenure" else re.sub(r"\btenure\.", f"{schema}.", sql)


@cache
def _parts(*names: str) -> str:
    folder = files(__spec__.parent) / "sql"
    sql = "\n".join((folder / f"{name}.sql").read_text(encoding="utf-8") for name in names)
    return sql.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


def existence(schema: str) -> Statement:
    return Statement.of("SELECT to_regclass($1) IS NOT NULL", f"{schema}.meta")


def version(schema: str) -> Statement:
    return Statement(f"SELECT version FROM {schema}.meta")  # noqa: S608 - a plain name


def creation(schema: str) -> Statement:
    tables = in_schema(schema, _parts("schema")) + f"\nINSERT INTO {schema}.meta (version) VALUES (0);"
    steps = "\n".join(
        f"IF former > 0 AND former < {number} THEN"
        f" EXECUTE $tenure_step${in_schema(schema, step)}$tenure_step$; END IF;"
        for number, step in sorted(STEPS.items())
        if step
    )
    return Statement(
        f"""DO $tenure_do$ DECLARE former bigint; BEGIN
            PERFORM pg_advisory_xact_lock(hashtext('tenure schema'), hashtext('{schema}'));
            IF to_regclass('{schema}.meta') IS NULL THEN
                CREATE SCHEMA IF NOT EXISTS {schema};
                EXECUTE $tenure_tables${tables}$tenure_tables$;
            END IF;
            SELECT version INTO former FROM {schema}.meta;
            {steps}
            IF former < {VERSION} THEN
                EXECUTE $tenure_functions${in_schema(schema, _parts(*_FUNCTIONS))}$tenure_functions$;
                REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
                UPDATE {schema}.meta SET version = {VERSION};
            END IF;
        END $tenure_do$"""  # noqa: S608 - a plain name
    )


def check(place: object, schema: str, found: int) -> None:
    """Refuse a schema of a newer release. Raises `EngineError`."""
    if found > VERSION:
        raise EngineError(
            f"{place}: the schema {schema} has version {found}, this release knows {VERSION}; "
            "use a newer release of tenure"
        )
