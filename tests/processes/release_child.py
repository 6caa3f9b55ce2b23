"""A process for the tests beside it: `release_child.py LOOP URL LOG`, a worker of tasks and of what undoes them."""

from __future__ import annotations

import os
import sys
from functools import partial

import anyio

import tenure
import tenure.engine as e


async def main(url: str, path: str) -> None:
    """Work until killed. The log says which things were named and which are gone, each with its owner."""
    log = os.open(path, os.O_APPEND | os.O_WRONLY)

    def say(*words: object) -> None:
        os.write(log, (" ".join(map(str, words)) + "\n").encode())

    async with tenure.open_store(url, ttl=0.6) as store:
        jobs = tenure.WorkQueue[int](store, "jobs", max_deliveries=1000)
        undo = tenure.WorkQueue[int](store, "undo", max_deliveries=1000)

        async def job(task: tenure.Task[int]) -> None:
            # no pattern uses releases yet
            for name, held in (("x", "end"), ("y", "unless_done")):
                tasks = (e.NewTask(b"%d" % task.id),)
                op = e.PutChildren(jobs.key, task.id, task.token, undo.key, (name,), tasks, held=held)
                say(name, task.id, *(await jobs._store.call(op)).ids)
                await anyio.sleep(0.02)
            if task.payload % 3 == 0:
                raise ValueError

        async def destroy(task: tenure.Task[int]) -> None:
            await anyio.sleep(0.005)
            owner = await jobs._store.call(e.GetResult(jobs.key, task.payload))
            say("gone", task.payload, task.id, owner.state)

        async with anyio.create_task_group() as group:
            group.start_soon(tenure.Worker(jobs, job, concurrency=3).run)
            group.start_soon(tenure.Worker(undo, destroy, concurrency=3).run)


if __name__ == "__main__":
    loop, *where = sys.argv[1:]
    anyio.run(partial(main, *where), backend=loop)
