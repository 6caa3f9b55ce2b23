"""The records of the workers of `tenure demo`: tables of their own, in the SQLite file of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from tenure.errors import LeaseLost
from tenure.shared import Lease, SqlGuard, Task

_TIMEOUT = 10.0
_MOMENT = 0.3
_TABLES = """
CREATE TABLE delivered (letter INTEGER NOT NULL, worker TEXT NOT NULL);
CREATE TABLE ledger (line INTEGER PRIMARY KEY, token INTEGER NOT NULL, worker TEXT NOT NULL);
CREATE TABLE refused (worker TEXT NOT NULL, token INTEGER NOT NULL);
"""


class Written(NamedTuple):
    """The content of the log: the letters that were delivered, the tokens of the ledger's lines, and refused
    tokens.
    """

    letters: list[int]
    tokens: list[int]
    refused: list[int]


class DemoLog:
    """The tables in one file. Thread safety: any; each call has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        """Make the tables, and the table of the guards."""
        with self._writing() as connection:
            connection.executescript(_TABLES)
            connection.execute(SqlGuard.create_table())

    def deliver(self, task: Task[int], worker: str) -> None:
        """Write down a letter, and complete its task in the same transaction. Raises `LeaseLost`."""
        with self._writing() as connection:
            connection.execute("INSERT INTO delivered VALUES (?, ?)", (task.payload, worker))
            task.complete_in(connection)

    def write_line(self, lease: Lease, worker: str) -> bool:
        """Write a line into the ledger; False, and nothing but that on record, if a later holder has written."""
        try:
            with self._writing() as connection:
                lease.sql_guard().enforce(connection)
                connection.execute("INSERT INTO ledger (token, worker) VALUES (?, ?)", (lease.token, worker))
        except LeaseLost:
            with self._writing() as connection:
                connection.execute("INSERT INTO refused VALUES (?, ?)", (worker, lease.token))
            return False
        return True

    def can_be_written(self) -> bool:
        """True if no process keeps a transaction open, such as a process that was stopped inside it."""
        try:
            with self._writing(_MOMENT) as connection:
                connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True

    def read(self) -> Written:
        """The content of the log, in the order of writing."""
        with self._writing() as connection:
            queries = (
                "SELECT letter FROM delivered ORDER BY rowid",
                "SELECT token FROM ledger ORDER BY line",
                "SELECT token FROM refused ORDER BY rowid",
            )
            return Written(*([value for (value,) in connection.execute(query)] for query in queries))

    @contextmanager
    def _writing(self, timeout: float = _TIMEOUT) -> Generator[sqlite3.Connection]:
        """A transaction: committed if the block ends well."""
        with closing(sqlite3.connect(self._path, timeout=timeout)) as connection, connection:
            yield connection
