"""A handler that leaves as a group of cancellations and errors: its own affair, not the worker's."""

from __future__ import annotations

import anyio
import pytest

import tenure


async def fail_while_being_cancelled():
    try:
        await anyio.sleep(10)
    finally:
        raise ValueError("while cleaning up")


async def handler(task: tenure.Task):
    if task.payload == "ok":
        return 1
    async with anyio.create_task_group() as group:
        group.start_soon(fail_while_being_cancelled)
        await anyio.sleep(10)
    return 0


async def test_a_timed_out_handler_that_raises_a_group_leaves_the_worker_at_work(virtual_clock):
    async with tenure.open_store("memory:") as store:
        queue = tenure.WorkQueue(store, "jobs", retry=tenure.Retry(attempts=1))
        bad, good = await queue.put_many(["bad", "ok"])
        worker = tenure.Worker(queue, handler, concurrency=1, timeout=0.1)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            with pytest.raises(tenure.TaskFailed):
                await queue.result(bad)
            assert await queue.result(good) == 1
            await worker.drain()
