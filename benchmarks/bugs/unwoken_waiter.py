"""aiomysql: a connection that comes back broken, or in a transaction, frees its place and wakes no waiter."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import aiomysql

from tenure.testing import cancellable


class _Connection:
    """A connection to nothing; a query that is cancelled closes it, as aiomysql's own does."""

    last_usage = 0
    closed = False
    _reader = SimpleNamespace(at_eof=lambda: False, exception=lambda: None, eof_received=False)

    async def query(self) -> None:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            self.close()
            raise

    def get_transaction_status(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


async def _connect(**_: Any) -> _Connection:
    await asyncio.sleep(0)
    return _Connection()


async def every_waiter_is_served() -> None:
    """Everybody who stays gets the pool's one connection, or one in its place."""
    aiomysql.pool.connect = _connect
    pool = await aiomysql.create_pool(minsize=0, maxsize=1)

    async def use() -> None:
        async with pool.acquire() as connection:
            await connection.query()

    async def victim() -> None:
        with cancellable():
            await use()

    async with asyncio.TaskGroup() as group:
        for task in (victim, use, use):
            group.create_task(task())
    pool.close()
    await pool.wait_closed()
