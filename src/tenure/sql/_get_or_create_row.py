"""`get_or_create` with a driver alone: the same laws, on a connection and the name of a table."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping
from typing import Any

import anyio

from tenure.dbapi import Awaiting, Blocking, Completed, Found, adapt, check_transaction
from tenure.sql._row_steps import Row, Step, Wanted, steps

_SQLITE = ("sqlite3", "aiosqlite")


def get_or_create_row(
    connection: object, table: str, *, where: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> Completed[tuple[Row, bool]] | Awaitable[tuple[Row, bool]]:
    """The row of `table` with these values, as a dictionary, and whether it was created, with `defaults` besides.

    The columns of `where` must be covered by a unique constraint or index; without one, two may create a row each. A
    value None asks for NULL: most unique constraints ignore that, and raise `ValueError` here, as for `get_or_create`.
    `table` may have a schema before a dot. All names are quoted, so they are given as the database has them. It is done
    in the transaction of the connection, inside a savepoint, and is yours to commit: until then others who create the
    same row wait. Connections, and which of them have to be awaited, are as for `SqlGuard.enforce`; a blocking one
    returns the answer at once, as `.value`. Nothing but the driver has to be installed. Pending changes of a session of
    SQLAlchemy are not written before: `get_or_create` is for sessions.

    Raises the driver's own error when the row was refused for another reason than a race, or at the fifth attempt;
    `StaleSnapshot` in a transaction that cannot see the row (REPEATABLE READ, SERIALIZABLE): roll back and run all of
    it again; `ValueError` for names that cannot be quoted and when `where` fits several rows; `RuntimeError` outside of
    a transaction (autocommit); `TypeError` for another kind of connection. The transaction is never rolled back.
    Cancellation: roll back, as after any statement; the row may have been created in the transaction.
    """
    if not where:
        raise ValueError("where must name the columns that make the row, not nothing")
    if both := sorted(where.keys() & (defaults or {}).keys()):
        raise ValueError(f"defaults must not repeat what is in where: {', '.join(both)}")
    wanted = Wanted(table, where, {**where, **(defaults or {})})
    own = adapt(connection)
    # all connections of an engine of SQLAlchemy know the same tables
    origin: object = getattr(connection, "engine", None) or getattr(connection, "bind", None) or connection
    if isinstance(own, Awaiting):
        return _awaited(own, wanted, origin)
    return Completed(_blocking(own, wanted, origin))


def _blocking(own: Blocking, wanted: Wanted, origin: object) -> tuple[Row, bool]:
    def take(step: Step) -> list[Row]:
        match step:
            case (sql, values):
                return _rows(own.find(sql, values))
            case None:
                check_transaction(own.in_transaction())
            case seconds:
                time.sleep(seconds)
        return []

    to_take = steps(wanted, own.driver in _SQLITE, origin)
    try:
        step = next(to_take)
        while True:
            try:
                rows = take(step)
            except Exception as error:  # noqa: BLE001 it is looked at there
                step = to_take.throw(error)
            else:
                step = to_take.send(rows)
    except StopIteration as end:
        return end.value


async def _awaited(own: Awaiting, wanted: Wanted, origin: object) -> tuple[Row, bool]:
    async def take(step: Step) -> list[Row]:
        match step:
            case (sql, values):
                return _rows(await own.find(sql, values))
            case None:
                check_transaction(await own.in_transaction())
            case seconds:
                await anyio.sleep(seconds)
        return []

    to_take = steps(wanted, await own.driver() in _SQLITE, origin)
    try:
        step = next(to_take)
        while True:
            try:
                rows = await take(step)
            except Exception as error:  # noqa: BLE001 it is looked at there
                step = to_take.throw(error)
            else:
                step = to_take.send(rows)
    except StopIteration as end:
        return end.value


def _rows(result: Found) -> list[Row]:
    names, rows = result
    return [dict(zip(names, row, strict=True)) for row in rows]
