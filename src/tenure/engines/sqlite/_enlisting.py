"""Operations in the user's transaction, on their own connection to the engine's file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import tenure.engine as e

from ._clock import Clocks
from ._executor import Executor

# deletes nothing, but is a write: it begins the transaction, and locks out other writers until that ends
_LOCK = "DELETE FROM meta WHERE 0"


def apply_enlisted(
    path: Path, clocks: Clocks, operation: e.Enlisted[e.A], db: sqlite3.Connection, _: object
) -> e.A:
    """Apply an operation. Raises `TypeError`, `ValueError` (another file), `RuntimeError` (outside of a
    transaction).
    """
    if not isinstance(db, sqlite3.Connection):  # pyright: ignore[reportUnnecessaryIsInstance] users choose it
        raise TypeError(f"connection must be one to SQLite, not {db!r}")
    guest = _Guest(db)
    (_, _, file) = guest.execute("PRAGMA database_list").fetchone()
    if not (file and path.exists() and path.samefile(file)):
        raise ValueError(f"connection must be to {path}, the file of the store, not to {file or 'memory'}")
    guest.execute(_LOCK)
    if not db.in_transaction:
        raise RuntimeError(
            "connection must be in a transaction, which you commit or roll back, not in autocommit mode"
        )
    guest.execute("SAVEPOINT tenure")
    try:
        executor = Executor(cast("sqlite3.Connection", guest), clocks, served=lambda _: False, path=str(path))
        answer = executor.apply_enlisted(operation)
    except BaseException:
        # SQLite itself rolls all of it back after some errors, such as a full disk
        if db.in_transaction:
            guest.execute("ROLLBACK TO tenure")
            guest.execute("RELEASE tenure")
        raise
    guest.execute("RELEASE tenure")
    return answer


class _Guest:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def execute(self, sql: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> sqlite3.Cursor:
        cursor = self._db.cursor(sqlite3.Cursor)
        cursor.row_factory = None
        return cursor.execute(sql, values)
