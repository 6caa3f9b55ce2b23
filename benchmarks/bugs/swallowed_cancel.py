"""psycopg_pool #1275: a waiter that is cancelled keeps the connection that it was given, or is not told of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Self

from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool

from tenure.testing import cancellable


class _Connection:
    """What a pool asks of a connection, each after a moment."""

    autocommit = True

    def __init__(self) -> None:
        self._pool: Any = None
        self._created_at = self._expire_at = 0.0
        self.pgconn = SimpleNamespace(transaction_status=TransactionStatus.IDLE)

    @classmethod
    async def connect(cls, *_: Any, **__: Any) -> _Connection:
        await asyncio.sleep(0.1)
        return cls()

    async def execute(self, _: str) -> None:
        await asyncio.sleep(0.1)

    async def close(self) -> None:
        self.pgconn.transaction_status = TransactionStatus.UNKNOWN

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)


class _Pool(AsyncConnectionPool[Any]):
    def __init__(self, **options: Any) -> None:
        super().__init__(
            connection_class=_Connection, min_size=1, max_size=1, num_workers=1, open=False, **options
        )


async def _cancelled(pool: _Pool, *works: Any) -> None:
    """Cancel works, and two that use the connection; a user who stays gets it."""

    async def use() -> None:
        async with pool.connection(timeout=60):
            await asyncio.sleep(1)

    async def victim(work: Any) -> None:
        with cancellable() as scope:
            await work()
        assert scope.cancelled_caught or not scope.cancel_called, "a cancellation was swallowed"

    async with asyncio.TaskGroup() as group:
        for work in (*works, use, use):
            group.create_task(victim(work))
        group.create_task(use())


async def no_connection_is_lost() -> None:
    """A waiter that is cancelled ends by that, and leaves the connection to others."""
    async with _Pool() as pool:
        await _cancelled(pool)


async def a_check_ends() -> None:
    """So does a check of the connections that are idle; and it loses none."""
    async with _Pool() as pool:
        await pool.wait()
        await _cancelled(pool, pool.check)
