"""Ours: `task.children`, parents and children worked by one worker each."""

from __future__ import annotations

import time

import anyio

import tenure
from benchmarks._measure import on_loop
from benchmarks.queue_peers._children import finish, words

CONCURRENCY = 100


async def fan_out(url: str, n: int) -> tuple[float, int]:
    """The seconds from the put of a parent of `n` no-op children to its result, and the result."""
    async with tenure.open_store(url) as store, anyio.create_task_group() as group:
        parents = tenure.WorkQueue[int](store, "parents")
        parts = tenure.WorkQueue[int](store, "parts")

        async def gather(task: tenure.Task[int]) -> int:
            async with task.children(parts) as children:
                await children.put_many(range(task.payload))
            return sum(child.result for child in children)

        async def no_op(number: int) -> int:
            return number

        group.start_soon(tenure.Worker(parents, gather).run)
        group.start_soon(tenure.Worker(parts, no_op, concurrency=CONCURRENCY).run)
        await parents.result(await parents.put(1))  # both workers are awake
        began = time.perf_counter()
        gathered = await parents.result(await parents.put(n))
        seconds = time.perf_counter() - began
        group.cancel_scope.cancel()
    return seconds, gathered


if __name__ == "__main__":
    path, loop, n = words()
    finish("tenure", n, *on_loop(loop, fan_out, path if "://" in path else f"unix://{path}", n))
