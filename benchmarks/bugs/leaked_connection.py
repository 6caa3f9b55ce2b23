"""redis-py: a task that is cancelled while it waits to give its connection back leaves that in use for ever."""

from __future__ import annotations

import asyncio

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import Connection

from tenure.testing import cancellable


class _Connection(Connection):
    """What a pool asks of a connection, each after a moment."""

    async def connect(self) -> None:
        await asyncio.sleep(0)

    async def can_read(self, *_: object, **__: object) -> bool:
        return False

    async def disconnect(self, *_: object, **__: object) -> None:
        await asyncio.sleep(0.1)
        self.reset_should_reconnect()


async def maintenance_loses_none() -> None:
    """When all have ended, no connection is in use: also if all were told meanwhile to connect again."""
    pool = BlockingConnectionPool(max_connections=2, timeout=60, connection_class=_Connection)

    async def use() -> None:
        connection = await pool.get_connection()
        try:
            await asyncio.sleep(1)
        finally:
            await pool.release(connection)

    async def victim() -> None:
        with cancellable():
            await use()

    async def maintain() -> None:
        await asyncio.sleep(0.5)
        await pool.update_active_connections_for_reconnect()

    async with asyncio.TaskGroup() as group:
        for task in (victim, victim, use, maintain, use):
            group.create_task(task())
    assert not pool._in_use_connections, "all have given theirs back"
