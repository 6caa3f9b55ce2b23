"""What is counted for its owner: steps and releases of tasks, callers that give up, and a task that kills its worker.

The first figures are throughput. A task of ten steps keeps the result of each on record. A task with a release has one
thing undone by another queue when it ends, and both have to end. Then 100 callers a second give up on a limiter of 20 a
second after 0.4 s each: the figures are the permits of the poorest of five seconds, and the wait of a caller
afterwards. Last, two workers of four tasks at a time, in processes that are started again, share a queue with a task
that kills its process: the figure is the number of other tasks that have died.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any

import anyio

import tenure
from benchmarks._measure import Row, Size, alone, on_loop
from benchmarks._postgres_server import server as postgres
from benchmarks._redis_server import server as redis

STEPS = 10
RATE, CALLERS, PATIENCE = 20, 100, 0.4
"""Permits and callers a second, and the seconds after which a caller gives up."""


async def steps(url: str, n: int) -> float:
    """Steps a second of `n` tasks."""

    async def handle(task: tenure.Task[int]) -> None:
        for number in range(STEPS):
            await task.step(str(number), lambda: 1)

    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue[int](store, "steps")
        return STEPS * n / await _worked_off(queue, n, [tenure.Worker(queue, handle, concurrency=10)])


async def releases(url: str, n: int) -> float:
    """Tasks a second of `n` tasks that name a thing to undo, which the end of a task waits for."""
    async with tenure.open_store(url) as store:
        queue, undoing = tenure.WorkQueue[int](store, "tasks"), tenure.WorkQueue[str](store, "undoing")

        async def handle(task: tenure.Task[int]) -> None:
            await task.at_end("thing", undoing)

        async def undo(thing: str) -> None:
            pass

        workers = [tenure.Worker(queue, handle, concurrency=10), tenure.Worker(undoing, undo, concurrency=10)]
        return n / await _worked_off(queue, n, workers)


async def _worked_off(queue: tenure.WorkQueue[int], n: int, workers: list[tenure.Worker]) -> float:
    """The seconds in which workers end `n` tasks."""
    await queue.put_many(range(n))
    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(worker.run)
        await queue.join()
        group.cancel_scope.cancel()
    return time.perf_counter() - began


async def giving_up(url: str, seconds: int) -> tuple[float, float]:
    """The permits of the poorest second, and the milliseconds that a caller waits for afterwards."""
    permits = [0] * (seconds + 1)
    async with tenure.open_store(url) as store:
        limiter = tenure.RateLimiter(store, "api", tenure.Limit(RATE, burst=1))
        began = time.perf_counter()

        async def call() -> None:
            with anyio.move_on_after(PATIENCE):
                await limiter.acquire()
                permits[min(seconds, int(time.perf_counter() - began))] += 1

        async with anyio.create_task_group() as group:
            for number in range(CALLERS * seconds):
                await anyio.sleep(max(0.0, began + number / CALLERS - time.perf_counter()))
                group.start_soon(call)
        ended = time.perf_counter()
        await limiter.acquire()
        return float(min(permits[:seconds])), 1000 * (time.perf_counter() - ended)


async def killed_beside(url: str, loop: str, n: int, **settings: Any) -> float:
    """The healthy tasks, of `n`, that have died beside two tasks that kill their worker."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", __name__, url, loop], stderr=subprocess.DEVNULL)

    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue[str](store, "jobs", **settings)
        await queue.put_many(["poison", *["healthy"] * (n // 2), "poison", *["healthy"] * (n - n // 2)])
        workers = [start(), start()]
        try:
            while (await queue.statistics()).unfinished:
                await anyio.sleep(0.1)
                workers = [worker if worker.poll() is None else start() for worker in workers]
            records = (await queue.tasks("dead").page()).records
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    return float(sum(record.payload == "healthy" for record in records))


async def _work(url: str) -> None:
    """Work until killed, as one of the processes."""

    async def handle(payload: str) -> None:
        await anyio.sleep(0.05)
        if payload == "poison":
            os._exit(137)

    async with tenure.open_store(url, ttl=1) as store:
        await tenure.Worker(tenure.WorkQueue[str](store, "jobs"), handle, concurrency=4).run()


def run(size: Size) -> Iterator[Row]:
    """Measure everything."""
    n = size.of(2, 200, 1_000)
    settings = {"max_deliveries": 1} if size.smoke else {}
    works: dict[str, Callable[[str, int], Coroutine[Any, Any, float]]] = {
        f"steps of tasks of {STEPS}": steps,
        "tasks with a release": releases,
    }
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        socket, database = stack.enter_context(redis()), stack.enter_context(postgres())
        urls: dict[str, Callable[[int], str]] = {
            "memory": lambda _: "memory:",
            "SQLite": lambda number: f"sqlite:///{folder}/{number}.db",
            "Redis": lambda number: f"unix://{socket}?db={number % 16}",
            "PostgreSQL": lambda _: stack.enter_context(database()),
        }
        number = 0
        for engine, url in urls.items():
            for name, work in works.items():
                for loop in size.loops:
                    values: list[float] = []
                    for _ in range(size.rounds):
                        number += 1
                        values.append(on_loop(loop, work, url(number), n))
                    yield alone(f"{engine}: {name}", loop, values, unit="1/s")
        for loop in size.loops:
            number += 1
            worst, wait = on_loop(loop, giving_up, urls["Redis"](number), size.of(1, 5, 5))
            title = f"Redis: {RATE}/s among {CALLERS} callers a second that give up"
            yield alone(f"{title}, permits of the poorest second", loop, [worst], unit="1/s", goal=">= 19/s")
            yield alone(f"{title}, a wait afterwards", loop, [wait], unit="ms", goal="<= 50 ms")
            number += 1
            died = on_loop(loop, killed_beside, urls["Redis"](number), loop, size.of(2, 10, 20), **settings)
            yield alone(
                "Redis: healthy tasks that die beside two that kill their worker", loop, [died], goal="0"
            )


if __name__ == "__main__":
    on_loop(sys.argv[2], _work, sys.argv[1])
