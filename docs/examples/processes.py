"""Several processes, each with a store of its own: spawned, and forked before a loop runs.

Run it: python processes.py [asyncio | trio] [a store that processes can share, such as sqlite:///file]
"""

import multiprocessing
import os
import sys

import anyio

import tenure


def child(url: str, backend: str) -> None:
    """Begin in a process of its own, with a loop of its own."""
    anyio.run(work, url, backend=backend)


async def work(url: str) -> None:
    """Put one task, through a store of this process's own."""
    async with tenure.open_store(url) as store:
        await tenure.WorkQueue(store, "processes numbers").put(os.getpid())


async def count(url: str) -> int:
    """Count the tasks, and remove them."""
    async with tenure.open_store(url) as store:
        return await tenure.WorkQueue(store, "processes numbers").purge("waiting")


def main(backend: str = "asyncio", url: str = "sqlite:///processes.db") -> None:
    """Start two processes in each way."""
    for context in (multiprocessing.get_context("spawn"), multiprocessing.get_context("fork")):
        children = [context.Process(target=child, args=(url, backend)) for _ in range(2)]
        for each in children:
            each.start()
        for each in children:
            each.join()
        print(context.get_start_method(), anyio.run(count, url, backend=backend), "tasks")


if __name__ == "__main__":
    main(*sys.argv[1:])
