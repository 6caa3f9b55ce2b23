"""A process for the tests beside it: `child.py LOOP ROLE URL LOG NUMBER`. What it does stands in the log, line by line.

Each line is written in one piece to a file opened for appending, so lines of several processes never mix.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import AsyncExitStack
from random import Random

import anyio

import tenure

TTL = 0.6


class Log:
    """Appends lines that survive the death of this process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, (os.getpid(), *words))) + "\n").encode())


async def work(url: str, log: Log, number: str) -> None:
    """Work on the queue until there is nothing left; each task rests for `number` seconds."""
    async with tenure.open_store(url, ttl=TTL, retry=30.0) as store:
        queue = tenure.WorkQueue(store, "jobs", keep=tenure.Keep(results=None))

        async def handler(task: tenure.Task) -> int:
            log("start", task.id, task.token)
            await anyio.sleep(float(number))
            log("end", task.id, task.token)
            return os.getpid()

        worker = tenure.Worker(queue, handler, concurrency=8)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            log("ready")
            await queue.join()
            await worker.drain()
        log("lost", worker.statistics().lost)


async def hold(url: str, log: Log, number: str) -> None:
    """Take the lock so many times; write down the token while holding it, again and again."""
    async with tenure.open_store(url, ttl=TTL) as store:
        lock = tenure.Lock(store, "report")
        log("ready")
        for _ in range(int(number)):
            try:
                async with lock as lease:
                    for _ in range(5):
                        lease.check()
                        log("held", lease.token)
                        await anyio.sleep(0.02)
            except tenure.LeaseLost as lost:
                log("lost", lost.reason)


async def hold_off(url: str, log: Log, number: str) -> None:
    """Hold the limiter off for `number` seconds, and wait for it in three tasks."""
    async with tenure.open_store(url, ttl=TTL) as store, anyio.create_task_group() as group:
        limiter = tenure.RateLimiter(store, "api", tenure.Limit(20, burst=1))
        await limiter.hold_off(float(number))
        for _ in range(3):
            group.start_soon(limiter.acquire)
        await anyio.sleep(0)
        assert not await limiter.try_acquire()  # the answer comes behind those to the three tasks
        log("waits")


async def spend(url: str, log: Log, number: str) -> None:
    """Callers of five stores spend 1 to 5 each, 25 in a second, and are cancelled when they have waited for 0.4 s."""
    random = Random(os.getpid())
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(tenure.open_store(url, ttl=2)) for _ in range(5)]

        async def call(limiter: tenure.RateLimiter, scope: anyio.CancelScope) -> None:
            await limiter.acquire(cost := random.randint(1, 5))
            log("went", time.monotonic(), cost)
            scope.cancel()

        async def give_up(limiter: tenure.RateLimiter) -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(call, limiter, group.cancel_scope)
                await anyio.sleep(0.4)
                group.cancel_scope.cancel()

        limiters = [tenure.RateLimiter(store, "api", tenure.Limit(20, burst=5)) for store in stores]
        callers = await stack.enter_async_context(anyio.create_task_group())
        log("ready", time.monotonic())
        for n in range(int(float(number) * 25)):
            callers.start_soon(give_up, limiters[n % len(limiters)])
            await anyio.sleep(1 / 25)
        log("ends", time.monotonic())


if __name__ == "__main__":
    loop, role, where, path, amount = sys.argv[1:]
    roles = {"work": work, "hold": hold, "hold_off": hold_off, "spend": spend}
    anyio.run(roles[role], where, Log(path), amount, backend=loop)
