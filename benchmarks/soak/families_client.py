"""A process that works on trees of tasks, until it is killed. Started as `client.py` is."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).parents[2]))

import tenure
from benchmarks.soak import client
from benchmarks.soak.referees import History

WIDTHS = (4, 3)
"""The numbers of children at each level."""


async def handle(history: History, task: tenure.Task[dict[str, Any]]) -> list[str]:
    """Work on a task of a tree, after its children.

    The payload has its name, names of tasks that fail, and the id of its parent.
    """
    name, fails = task.payload["name"], task.payload["fails"]
    level = name.count("/")
    with history.trying(str(task.id), parent=task.payload.get("parent")):
        await anyio.sleep(random.uniform(0, 0.01))
        if name in fails:
            raise ValueError(name)
        numbers = range(WIDTHS[level] if level < len(WIDTHS) else 0)
        async with task.children() as children:
            await children.put_many(
                {"name": f"{name}/{n}", "fails": fails, "parent": str(task.id)} for n in numbers
            )
        for child in children:
            history.ended(str(child.id), child.state)
        return [name, *(below for child in children for below in child.result)]


async def run(job: dict[str, Any]) -> None:
    history = History(job["history"], by=str(os.getpid()))
    async with tenure.open_store(job["url"], ttl=job["ttl"], retry=30) as store:
        queue = tenure.WorkQueue[dict[str, Any]](
            store, "trees", retry=tenure.Retry(attempts=2, backoff=0.05, jitter=0), max_deliveries=100
        )

        async def handler(task: tenure.Task[dict[str, Any]]) -> list[str]:
            return await handle(history, task)

        await tenure.Worker(queue, handler, concurrency=8).run()


if __name__ == "__main__":
    client.work = client.on_its_loop(run)
    client.main()
