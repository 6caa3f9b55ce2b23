"""SQLAlchemy: a place in the pool that becomes free, as a connection did not come about, wakes no waiter."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.util.concurrency import await_only, greenlet_spawn

from tenure.testing import cancellable


def _create(*_: Any) -> Mock:
    await_only(asyncio.sleep(1))
    return Mock(rollback=lambda: await_only(asyncio.sleep(0)), close=lambda: await_only(asyncio.sleep(0)))


async def a_free_place_wakes_a_waiter() -> None:
    """Everybody who stays gets the one connection, long before the pool's time limit of 300 s."""
    pool = AsyncAdaptedQueuePool(_create, pool_size=1, max_overflow=0, timeout=300)

    async def use() -> None:
        connection = await greenlet_spawn(pool.connect)
        try:
            await asyncio.sleep(1)
        finally:
            await asyncio.shield(greenlet_spawn(connection.close))

    async def victim() -> None:
        with cancellable():
            await use()

    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        for task in (victim, victim, use):
            group.create_task(task())
    await asyncio.sleep(1)
    assert not pool.checkedout()
