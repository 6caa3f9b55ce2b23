"""anyio #947: a limiter wakes a waiter already cancelled, which goes without waking the one behind it."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from tenure.testing import cancellable


async def lost_token() -> None:
    """Everybody who stays gets the one token in the end."""
    limiter = anyio.CapacityLimiter(1)

    async def borrow() -> None:
        async with limiter:
            await anyio.lowlevel.checkpoint()

    async def victim() -> None:
        with cancellable():
            await borrow()

    async with anyio.create_task_group() as group:
        for task in (borrow, victim, victim, borrow, borrow):
            group.start_soon(task)
    assert limiter.borrowed_tokens == 0
