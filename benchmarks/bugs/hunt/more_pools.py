"""Pools of other packages over connections to nothing: aio-pika, pymongo; and aiosqlite's thread."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock, Mock

from tenure.testing import cancellable


async def _used(use: Any) -> None:
    async def victim() -> None:
        with cancellable():
            await use()

    async with asyncio.TaskGroup() as group:
        for task in (victim, victim, use, victim, use):
            group.create_task(task())


async def aio_pika_serves_all() -> None:
    """Everybody who stays gets the one item."""
    from aio_pika.pool import Pool

    async def make() -> Any:
        await asyncio.sleep(0.1)
        return Mock(close=AsyncMock())

    async with Pool[Any](make, max_size=1) as pool:

        async def use() -> None:
            async with pool.acquire():
                await asyncio.sleep(1)

        await _used(use)


async def pymongo_serves_all() -> None:
    """Everybody who stays gets the one connection; in the end, no request is counted."""
    from pymongo.asynchronous.pool import Pool, PoolState
    from pymongo.pool_options import PoolOptions

    class Connected(Pool):
        async def connect(self, **_: Any) -> Any:
            await asyncio.sleep(0.1)
            connection = Mock(closed=False, close_conn=AsyncMock(), generation=self.gen.get_overall())
            connection.idle_time_seconds.return_value = 0
            connection.pinned_txn = connection.pinned_cursor = False
            return connection

    pool = Connected(("server", 1), PoolOptions(max_pool_size=1))
    pool.state = PoolState.READY

    async def use() -> None:
        async with pool.checkout():
            await asyncio.sleep(1)

    await _used(use)
    assert (pool.requests, pool._pending, pool.active_sockets, pool.operation_count) == (0, 0, 0, 0)


async def aiosqlite_is_closed() -> None:
    """A connection that is cancelled, at any time, leaves no thread; and a statement after that is answered rightly."""
    import aiosqlite

    connection = aiosqlite.connect(":memory:")

    async def select(number: int) -> None:
        async with connection.execute(f"SELECT {number}") as cursor:
            assert await cursor.fetchone() == (number,)

    try:
        with cancellable():
            async with connection:
                with cancellable():
                    await select(1)
                await select(2)
    finally:
        connection._thread.join(5)
        assert not connection._thread.is_alive()
