"""A worker that runs until no task of its queue is left."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio


@asynccontextmanager
async def working(queue, worker):
    """A block in which the worker runs; when it ends, the worker does what is left, and drains."""
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        yield
        await queue.join()
        await worker.drain()


async def work_off(queue, worker):
    """Let the worker do all tasks; nothing is leased any more."""
    async with working(queue, worker):
        pass
    assert worker.statistics().busy == 0
    assert (await queue.statistics()).leased == 0
    assert await queue.verify()
