from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Connection, FromClause, delete, false


def take_write_lock(connection: Connection, table: FromClause) -> None:
    """Become SQLite's only writer until the transaction ends, after the driver's own busy timeout at the latest.

    Reads and savepoints do not begin the driver's transaction: without the lock, releasing a savepoint would commit,
    and others could claim the same rows.
    """
    # deletes nothing, but it is a write: it begins the transaction and takes the lock
    connection.execute(delete(cast("Any", table)).where(false()))
