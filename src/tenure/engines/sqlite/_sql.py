"""The statements of the room's `.sql` files, by name.

Empty lines part the blocks of a file. A block begins with `-- name: a sentence`, may go on with comment lines, and the
rest is one statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

_ROOM = "tenure.engines.sqlite"
_BLOCK = re.compile(r"^-- (\w+): .*\n(?:--.*\n)*((?:.+\n)+)", re.MULTILINE)
_PARAMETERS = re.compile(r"\(:[^()]*\)")


class Statements:
    def __init__(self, file: str) -> None:
        text = files(_ROOM).joinpath("sql", f"{file}.sql").read_text("utf-8")
        self.named: dict[str, str] = {name: sql.strip() for name, sql in _BLOCK.findall(text)}
        vars(self).update(self.named)

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no statement is called {name}")


def joined(parts: Sequence[bytes]) -> bytes:
    """Parts as one value, of which a statement takes each with substr(). Never empty: then that would be NULL."""
    return b"".join((*parts, b"."))


@cache
def repeated(sql: str, count: int) -> str:
    """A statement with its one row of parameters, `(:a, :b)`, `count` times; the parameters lose their names."""
    return _PARAMETERS.sub(lambda row: ", ".join([re.sub(r":\w+", "?", row[0])] * count), sql)


GROUPS = Statements("groups")
HINTS = Statements("hints")
QUEUES = Statements("queues")
SCHEMA = Statements("schema")
SESSIONS = Statements("sessions")
SURVEY = Statements("survey")
TASKS = Statements("tasks")
