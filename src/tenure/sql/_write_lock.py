"""SQLite's one write lock, taken before it is needed."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Connection, FromClause, delete, false


def take_write_lock(connection: Connection, table: FromClause) -> None:
    """Become SQLite's only writer until the transaction ends, after the driver's own busy timeout at the latest.

    Without it the driver's transaction has not begun yet, since reads and savepoints do not begin one: releasing a
    savepoint would commit, and nothing would keep others from claiming the same rows.
    """
    # deletes nothing, but it is a write: it begins the transaction and takes the lock
    connection.execute(delete(cast("Any", table)).where(false()))
