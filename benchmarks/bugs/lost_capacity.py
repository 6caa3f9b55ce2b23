"""hyx: a caller cancelled while it queues at a bulkhead takes its place in the queue with it, for ever."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from hyx.bulkhead import bulkhead

from tenure.testing import cancellable

CAPACITY = 2


async def lost_capacity() -> None:
    """When all are gone, there is room for as many as before."""
    compartment = bulkhead(max_concurrency=1, max_capacity=CAPACITY)

    async def call() -> None:
        async with compartment:
            await anyio.lowlevel.checkpoint()

    async def victim() -> None:
        with cancellable():
            await call()

    async with anyio.create_task_group() as group:
        for task in (call, victim):
            group.start_soon(task)
    async with anyio.create_task_group() as group:
        for _ in range(CAPACITY):
            group.start_soon(call)
