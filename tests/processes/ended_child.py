"""A process for the tests beside it: `ended_child.py LOOP URL LOG`, a worker of a parent and its children."""

from __future__ import annotations

import os
import sys
from functools import partial

import anyio

import tenure

CHILDREN = 12


async def main(url: str, path: str) -> None:
    """Work until killed. Each delivery of the parent says in the log what it was given, child by child."""
    log = os.open(path, os.O_APPEND | os.O_WRONLY)

    async def handler(task: tenure.Task[int]) -> int:
        if task.payload >= 0:
            await anyio.sleep(0.02)
            return task.payload
        async with task.children() as children:
            await children.put_many(range(CHILDREN))
            total = 0
            async for child in children.ended():
                total += child.result
                os.write(log, f"{task.token} {child.result}\n".encode())
                await task.step(child.name, lambda: os.write(log, b"step\n"), find=lambda: 0)
        return total

    async with tenure.open_store(url, ttl=0.6) as store:
        queue = tenure.WorkQueue[int](store, "jobs", max_deliveries=1000)
        await tenure.Worker(queue, handler, concurrency=3).run()


if __name__ == "__main__":
    loop, *where = sys.argv[1:]
    anyio.run(partial(main, *where), backend=loop)
