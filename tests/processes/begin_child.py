"""A process for the tests beside it: `begin_child.py LOOP URL LOG HOW`, a worker that says each begin in the log,
and when all that was to begin behind its block has begun.

`HOW` is how its first handler keeps the process from running: "sleep" and "spin" are Python code, "c" is C code that
keeps the interpreter's lock, "stop" waits for a SIGSTOP, and "not" does not; with "-thread", handlers run in threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from functools import partial

import anyio

import tenure

SECONDS = 2.5

blocked: list[int] = []
unblocked: list[int] = []


def block(how: str) -> None:
    """Keep the process from running for longer than the ttl and `max_block`."""
    if how == "c":
        ctypes.PyDLL(None).usleep(int(SECONDS * 1e6))
    elif how == "sleep":
        time.sleep(SECONDS)
    else:
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            pass


def begin(log: int, how: str, task: tenure.Task) -> None:
    """Say that the task begins; the first one blocks the process."""
    os.write(log, f"{task.id} {task.token} {task.attempt} {os.getpid()}\n".encode())
    if how != "not" and not blocked:
        blocked.append(task.id)
        block(how)
        unblocked.append(task.id)
    else:
        time.sleep(0.1)  # the synchronous part of a handler


async def main(url: str, path: str, how: str) -> None:
    """Work until killed."""
    how, _, executor = how.partition("-")
    log = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def in_thread(task: tenure.Task) -> None:
        begin(log, how, task)

    async def in_loop(task: tenure.Task) -> None:
        begin(log, how, task)
        await anyio.sleep(0.5)

    async with tenure.open_store(url, ttl=0.6, max_block=1.0) as store:
        queue = tenure.WorkQueue(store, "jobs", retry=tenure.Retry(attempts=1))
        worker = tenure.Worker(queue, in_thread if executor else in_loop, concurrency=4)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            while not unblocked:
                await anyio.sleep(0.02)
            await anyio.sleep(0.5)  # what was to begin behind the block has begun
            os.write(log, b"over\n")


if __name__ == "__main__":
    loop, *where = sys.argv[1:]
    anyio.run(partial(main, *where), backend=loop)
