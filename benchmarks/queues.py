"""The work queue on the embedded engines: no-op tasks through a worker, and putting.

Ours leases, fences and stores a result for every task. huey's tasks are popped: one that was being worked on when its
process dies is lost. The in-memory floor is a bare dispatch: items through an anyio stream to as many tasks.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import anyio

import tenure
from benchmarks._measure import Row, Size, interleaved, on_loop, row

CONCURRENCY = 32
LOOPS = ("asyncio", "uvloop", "trio")
MEMORY_GOALS = {"asyncio": 35_000, "uvloop": 45_000, "trio": 30_000}


async def noop(task: tenure.Task) -> None:
    """Do nothing."""


async def drained(url: str, n: int, *, put: bool = True) -> float:
    """No-op tasks a second through one worker, putting apart."""
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "bench", max_size=max(n, 10_000))
        if put:
            await queue.put_many(range(n))
        worker = tenure.Worker(queue, noop, concurrency=CONCURRENCY)
        began = time.perf_counter()
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await queue.join()
            seconds = time.perf_counter() - began
            await worker.drain()
        return n / seconds


async def dispatched(n: int) -> float:
    """Items a second through a stream to tasks that do nothing: the floor, without lease, order or result."""
    send, receive = anyio.create_memory_object_stream[int](CONCURRENCY)

    async def runner() -> None:
        async for _ in receive.clone():
            pass

    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(CONCURRENCY):
            group.start_soon(runner)
        async with send:
            for item in range(n):
                await send.send(item)
        receive.close()
    return n / (time.perf_counter() - began)


async def put_one_by_one(url: str, n: int) -> float:
    """Tasks a second put by 32 callers, each one at a time."""
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "bench", max_size=max(n, 10_000))
        numbers = iter(range(n))

        async def caller() -> None:
            for number in numbers:
                await queue.put(number)

        began = time.perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(CONCURRENCY):
                group.start_soon(caller)
        return n / (time.perf_counter() - began)


async def put_in_batches(url: str, n: int) -> float:
    """Tasks a second put by one caller in batches of 100."""
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "bench", max_size=max(n, 10_000))
        began = time.perf_counter()
        for _ in range(n // 100):
            await queue.put_many(range(100))
        return n / (time.perf_counter() - began)


def fresh(work: Any, *args: Any, loop: str) -> float:
    """Run `work(url, ...)` on a new SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        return on_loop(loop, work, f"sqlite:///{folder}/bench.db", *args)


def huey_drained(n: int) -> float:
    """No-op tasks a second through huey's consumer with four threads and its fastest settings."""
    from huey import SqliteHuey

    logging.getLogger("huey").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        huey = SqliteHuey(filename=f"{folder}/huey.db", results=False, fsync=False)
        done = count(1)
        last = [0]

        @huey.task()
        def nothing() -> None:
            last[0] = next(done)

        for _ in range(n):
            nothing()
        consumer = huey.create_consumer(
            workers=4, periodic=False, initial_delay=0.001, max_delay=0.001, check_worker_health=False
        )
        began = time.perf_counter()
        consumer.start()
        while last[0] < n:
            time.sleep(0.001)
        seconds = time.perf_counter() - began
        consumer.stop(graceful=True)
        huey.storage.close()
        return n / seconds


def huey_put(n: int) -> float:
    """Tasks a second that huey enqueues, one by one."""
    from huey import SqliteHuey

    with tempfile.TemporaryDirectory() as folder:
        huey = SqliteHuey(filename=f"{folder}/huey.db", results=False, fsync=False)

        @huey.task()
        def nothing() -> None:
            pass

        began = time.perf_counter()
        for _ in range(n):
            nothing()
        seconds = time.perf_counter() - began
        huey.storage.close()
        return n / seconds


def two_processes(n: int, *, loop: str) -> float:
    """No-op tasks a second, drained by two processes from one file."""
    with tempfile.TemporaryDirectory() as folder:
        return by_processes(f"sqlite:///{folder}/bench.db", n, 2, loop)


def by_processes(url: str, n: int, processes: int, loop: str) -> float:
    """No-op tasks a second, drained by so many processes."""
    on_loop(loop, _fill, url, n)
    command = [sys.executable, "-m", "benchmarks.queues", url, loop]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    spans = [tuple(map(float, child.communicate()[0].split())) for child in children]
    return n / (max(end for _, end in spans) - min(start for start, _ in spans))


async def _fill(url: str, n: int) -> None:
    async with tenure.open_store(url) as store:
        await tenure.WorkQueue(store, "bench", max_size=n).put_many(range(n))


async def _help(url: str) -> None:
    start = time.time()
    await drained(url, 0, put=False)
    print(start, time.time())


def run(size: Size) -> Iterator[Row]:
    """Measure everything."""
    n = size.of(100, 2_000, 10_000)
    for loop in LOOPS:
        figures = interleaved(
            {
                "ours": partial(on_loop, loop, drained, "memory:", n),
                "bare dispatch": partial(on_loop, loop, dispatched, n),
            },
            size,
        )
        goal = f">= {MEMORY_GOALS[loop]:,}/s"
        yield row("memory: no-op tasks, concurrency 32", loop, figures, "bare dispatch", goal=goal)
    contestants = {f"ours {loop}": partial(fresh, drained, n, loop=loop) for loop in LOOPS}
    figures = interleaved({**contestants, "huey": partial(huey_drained, n)}, size)
    for loop in LOOPS:
        pair = {"ours": figures[f"ours {loop}"], "huey": figures["huey"]}
        yield row("SQLite: no-op tasks, one process", loop, pair, "huey", goal=">= 2x")
    for loop in LOOPS[: size.of(1, 3, 3)]:
        both = interleaved({"ours": partial(two_processes, n, loop=loop)}, size)
        pair = {"ours": both["ours"], "huey": figures["huey"]}
        yield row("SQLite: no-op tasks, two processes (huey: one)", loop, pair, "huey", goal=">= 5,000/s")

    putting = {
        "ours one by one": partial(fresh, put_one_by_one, n, loop="asyncio"),
        "ours in batches": partial(fresh, put_in_batches, n, loop="asyncio"),
        "huey": partial(huey_put, n),
    }
    figures = interleaved(putting, size)
    for name, work in (
        ("ours one by one", "SQLite: put by 32 callers"),
        ("ours in batches", "SQLite: put in batches of 100"),
    ):
        yield row(work, "asyncio", {"ours": figures[name], "huey": figures["huey"]}, "huey")


if __name__ == "__main__":
    on_loop(sys.argv[2], _help, sys.argv[1])
