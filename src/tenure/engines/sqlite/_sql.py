"""The statements of the room's `.sql` files, by name.

A file is a row of blocks, parted by empty lines. A block begins with `-- name: a sentence`, may go on with comment lines
(inputs and outputs), and the rest is one statement.
"""

from __future__ import annotations

import re
from importlib.resources import files

_BLOCK = re.compile(r"^-- (\w+): .*\n(?:--.*\n)*((?:.+\n)+)", re.MULTILINE)


class Statements:
    """The statements of one file, as attributes.

    Thread safety: they never change.
    """

    def __init__(self, file: str) -> None:
        text = files(__package__).joinpath("sql", f"{file}.sql").read_text("utf-8")
        self.named: dict[str, str] = {name: sql.strip() for name, sql in _BLOCK.findall(text)}
        vars(self).update(self.named)

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no statement is called {name}")


HOLDS = Statements("holds")
CLAIMS = Statements("claims")
COUNTERS = Statements("counters")
HINTS = Statements("hints")
QUEUES = Statements("queues")
SCHEMA = Statements("schema")
SESSIONS = Statements("sessions")
TASKS = Statements("tasks")
