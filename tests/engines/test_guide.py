"""The second guide, the docstring of `tenure.engines`: each rule, script and function that it names is there.

python tests/engines/test_guide.py    # print where each operation is executed
"""

from __future__ import annotations

import re
from pathlib import Path

import tenure.engines
from tenure.engine import OPERATIONS
from tenure.engines.memory import MemoryEngine
from tenure.engines.postgres import _operations as postgres
from tenure.engines.redis import _operations as redis, _scripts

PLACE = Path(tenure.engines.__file__)
ENGINES = PLACE.parent
FOLDERS = (
    ("", ".py", "def "),
    ("redis/lua/", ".lua", r"function (?:\w+\.)?"),
    ("postgres/sql/", ".sql", r"CREATE FUNCTION tenure\."),
)
"""Of each column where its files are, how their names end, and how a function begins."""


def rule_of(operation, rules):
    """The method that applies the operation in memory, behind its module."""
    function = rules[operation].__func__
    return f"{function.__module__.removeprefix('tenure.engines.').replace('.', '/')} {function.__name__}"


def script_of(operation):
    """The script, or the operation of one behind the file in which it stands."""
    codec = redis.CODECS.get(operation)
    if codec is None:
        return "-"
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", operation.__name__).lower()
    script = codec.script
    return f"{script} {name}" if f"function operations.{name}(" in _scripts.text_of(script) else script


def function_of(operation):
    """The function, behind the file in which it stands."""
    if operation not in postgres.CODECS:
        return "-"
    name = postgres.CODECS[operation].function
    made = re.compile(rf"^CREATE FUNCTION tenure\.{name}\(", re.MULTILINE)
    (home,) = (
        path.stem for path in (ENGINES / "postgres/sql").glob("*.sql") if made.search(path.read_text("utf-8"))
    )
    return f"{home} {name}"


def table():
    """Where each operation is executed, by engine."""
    rules = MemoryEngine()._handlers
    rows = [("operation", "rule", "redis/lua", "postgres/sql")]
    for operation in (operation for family in OPERATIONS.values() for operation in family):
        rows.append(
            (operation.__name__, rule_of(operation, rules), script_of(operation), function_of(operation))
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("    " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def test_each_operation_has_a_rule_a_script_and_a_function():
    assert table().count("\n") == sum(map(len, OPERATIONS.values()))


def test_each_rule_in_the_guide_is_there():
    guide = PLACE.read_text("utf-8")
    begin = guide.index("    move ")
    rows = [
        re.split("  +", row.strip()) for row in guide[begin : guide.index("\n\n", begin)].splitlines()[1:]
    ]
    moves = [row for row in rows if len(row) == 4]
    assert len(moves) > 10
    for _, *cells in moves:
        for cell, (folder, ending, begins) in zip(cells, FOLDERS, strict=True):
            place, _, name = cell.partition(" ")
            text = (ENGINES / f"{folder}{place}{ending}").read_text("utf-8")
            assert re.search(rf"{begins}{name}\(", text) or not name, cell


def test_each_file_in_the_guide_is_there():
    names = re.findall(r"`((?:memory|sqlite|redis|postgres|rules)/[\w/.]*)`", tenure.engines.__doc__ or "")
    assert len(names) > 8
    assert [name for name in names if not (ENGINES / name).exists()] == []


if __name__ == "__main__":
    print(table())  # noqa: T201
