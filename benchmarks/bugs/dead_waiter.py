"""anyio #1145: a release finds only a waiter already cancelled, and a newcomer queues behind that one, for ever."""

from __future__ import annotations

import anyio

from tenure.testing import cancellable, newcomer


async def _everybody_gets_in(lock: anyio.Lock | anyio.Semaphore) -> None:
    async def hold() -> None:
        async with lock:
            pass

    async def victim() -> None:
        with cancellable():
            await hold()

    async def late() -> None:
        await newcomer()
        await hold()

    async with anyio.create_task_group() as group:
        for task in (hold, victim, late):
            group.start_soon(task)


async def dead_waiter_of_lock() -> None:
    """Everybody who stays gets the lock."""
    await _everybody_gets_in(anyio.Lock())


async def dead_waiter_of_semaphore() -> None:
    """Everybody who stays gets the one permit."""
    await _everybody_gets_in(anyio.Semaphore(1))
