"""anyio #1170: between a release and the step of the waiter it woke, another caller can take the same token."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from tenure.testing import cancellable

TOTAL = 2


async def over_grant() -> None:
    """Never are more inside than there are tokens."""
    limiter = anyio.CapacityLimiter(TOTAL)
    inside = 0

    async def hold() -> None:
        nonlocal inside
        inside += 1
        try:
            assert inside <= TOTAL, f"{inside} hold one of {TOTAL} tokens"
            await anyio.lowlevel.checkpoint()
        finally:
            inside -= 1

    async def wait() -> None:
        async with limiter:
            await hold()

    async def victim() -> None:
        with cancellable():
            await wait()

    async def storm() -> None:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
            try:
                limiter.acquire_nowait()
            except anyio.WouldBlock:
                continue
            try:
                await hold()
            finally:
                limiter.release()

    async with anyio.create_task_group() as group:
        for task in (wait, wait, wait, victim, storm):
            group.start_soon(task)
    assert limiter.borrowed_tokens == 0
