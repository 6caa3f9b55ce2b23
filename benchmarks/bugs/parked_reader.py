"""aiorwlock: a writer that queued and was cancelled leaves the reader behind it parked, though readers are inside."""

from __future__ import annotations

import anyio
from aiorwlock import RWLock

from tenure.testing import cancellable

PATIENCE = 10.0


async def parked_reader() -> None:
    """With no writer in line, a second reader comes in beside the first."""
    lock = RWLock()
    second_is_in = anyio.Event()
    writers = 1

    async def first() -> None:
        async with lock.reader:
            with anyio.move_on_after(PATIENCE):
                await second_is_in.wait()
            assert second_is_in.is_set() or writers, "no writer, and the reader waits"

    async def writer() -> None:
        nonlocal writers
        with cancellable():
            async with lock.writer:
                pass
        writers -= 1

    async def second() -> None:
        async with lock.reader:
            second_is_in.set()

    async with anyio.create_task_group() as group:
        for task in (first, writer, second):
            group.start_soon(task)
