from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import anyio

from tenure.dbapi import Found, adapt, adapt_sync, check_transaction
from tenure.sql._row_steps import Row, Step, Steps, Wanted, steps

_SQLITE = ("sqlite3", "aiosqlite")


async def get_or_create_row(
    connection: object, table: str, *, where: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> tuple[Row, bool]:
    """The row of `table` with these values, as a dictionary, and whether it was created, with `defaults` besides.

        row, created = await get_or_create_row(connection, "users", where={"email": email})

    - `connection`: as for `SqlGuard.enforce`, in a transaction, which the caller commits; `get_or_create_row_sync`
      is for connections that block.
    - `table`, `where`, `defaults`: names as the database has them; `table` may have a schema before a dot.
    - `where` is as the `identity` of `get_or_create`.

    Raises as `get_or_create` does, but the driver's own errors, and `ValueError` when `where` fits several rows and
    for names that cannot be quoted; `RuntimeError` outside of a transaction; `TypeError` for another kind of
    connection. The transaction is never rolled back.

    Cancellation: roll back, as after any statement; the row may have been created in the transaction.
    """
    own = adapt(connection)

    async def take(step: Step) -> list[Row]:
        match step:
            case (sql, values):
                return _rows(await own.find(sql, values))
            case None:
                check_transaction(await own.in_transaction())
            case seconds:
                await anyio.sleep(seconds)
        return []

    to_take = _steps(await own.driver() in _SQLITE, connection, table, where, defaults)
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


def get_or_create_row_sync(
    connection: object, table: str, *, where: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> tuple[Row, bool]:
    """Like `get_or_create_row`, with a connection that blocks; in any thread."""
    own = adapt_sync(connection)

    def take(step: Step) -> list[Row]:
        match step:
            case (sql, values):
                return _rows(own.find(sql, values))
            case None:
                check_transaction(own.in_transaction())
            case seconds:
                time.sleep(seconds)
        return []

    to_take = _steps(own.driver in _SQLITE, connection, table, where, defaults)
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


def _steps(
    sqlite: bool, connection: object, table: str, where: Mapping[str, Any], defaults: Mapping[str, Any] | None
) -> Steps:
    if not where:
        raise ValueError("where must name the columns that make the row, not nothing")
    if both := sorted(where.keys() & (defaults or {}).keys()):
        raise ValueError(f"defaults must not repeat what is in where: {', '.join(both)}")
    wanted = Wanted(table, where, {**where, **(defaults or {})})
    # all connections of an engine of SQLAlchemy know the same tables
    origin: object = getattr(connection, "engine", None) or getattr(connection, "bind", None) or connection
    return steps(wanted, sqlite, origin)


def _rows(result: Found) -> list[Row]:
    names, rows = result
    return [dict(zip(names, row, strict=True)) for row in rows]
