"""A worker for the test beside it: `suspects_child.py LOOP URL KIND`; a payload that begins with "poison" kills it."""

from __future__ import annotations

import os
import sys
import time

import anyio

import tenure

SECONDS = 0.4


def in_thread(payload: str) -> None:
    """Work in a thread, or die."""
    time.sleep(SECONDS / 2 if "poison" in payload else SECONDS)
    if "poison" in payload:
        os._exit(137)


async def one(payload: str) -> None:
    """Work, or die."""
    await several([payload])


async def several(payloads: list[str]) -> None:
    """Work on a batch, or die."""
    poison = any("poison" in payload for payload in payloads)
    await anyio.sleep(SECONDS / 2 if poison else SECONDS)
    if poison:
        os._exit(137)


async def main(url: str, kind: str) -> None:
    """Work until told to drain."""
    async with tenure.open_store(url, ttl=1) as store:
        queue = tenure.WorkQueue(store, "jobs")
        make = {
            "async": lambda: tenure.Worker(queue, one),
            "thread": lambda: tenure.Worker(queue, in_thread),
            "batch": lambda: tenure.BatchWorker(queue, several, size=8, concurrency=1),
            "process": lambda: tenure.Worker(queue, in_thread, executor="process", concurrency=4),
        }
        await tenure.serve(make[kind]())


if __name__ == "__main__":
    loop, *where = sys.argv[1:]
    anyio.run(main, *where, backend=loop)
