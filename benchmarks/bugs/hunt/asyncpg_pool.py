"""asyncpg's pool over connections to nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from tenure.testing import cancellable


class _Connection(asyncpg.Connection):
    """What a pool asks of a connection, each after a moment."""

    __slots__ = ("gone", "queries_count")

    def __init__(self) -> None:
        self.gone = False
        self._pool_holder = self._proxy = None
        self._protocol = self
        self.queries_count = 0

    def __del__(self) -> None:
        pass

    def _is_cancelling(self) -> bool:
        return False

    def _on_release(self, stacklevel: int = 1) -> None:
        pass

    def is_closed(self) -> bool:
        return self.gone

    async def reset(self, **_: Any) -> None:
        await asyncio.sleep(0)

    async def close(self, **_: Any) -> None:
        await asyncio.sleep(0)
        self.terminate()

    def terminate(self) -> None:
        self.gone = True
        if self._pool_holder and (holder := self._pool_holder()):
            holder._release_on_close()


async def _connect(*_: Any, **__: Any) -> _Connection:
    await asyncio.sleep(0)
    return _Connection()


async def _setup(_: Any) -> None:
    await asyncio.sleep(0)


async def no_place_is_lost() -> None:
    """Everybody who stays gets the one connection; in the end it is idle, and its place is in the queue once."""
    pool = await asyncpg.create_pool(
        connect=_connect, connection_class=_Connection, setup=_setup, min_size=1, max_size=1, max_queries=1
    )

    async def use() -> None:
        async with pool.acquire(timeout=60) as connection:
            await asyncio.sleep(1)
            connection._con.queries_count += 1

    async def victim() -> None:
        with cancellable():
            await use()

    async with asyncio.TaskGroup() as group:
        for task in (victim, victim, use):
            group.create_task(task())
    await asyncio.sleep(1)
    assert pool._queue.qsize() == 1
    await pool.close()
