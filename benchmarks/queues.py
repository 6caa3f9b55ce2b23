"""The work queue on the embedded engines: no-op tasks through a worker, putting, and taking in front of a backlog.

Ours leases, fences and stores a result for every task. huey's tasks are popped: one that was being worked on when its
process dies is lost. The in-memory floor is a bare dispatch: items through an anyio stream to as many tasks.
"""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import count
from typing import Any

import anyio

import tenure
from benchmarks._measure import Figure, interleaved, on_loop, row

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


async def take_p99(url: str, backlog: int, takes: int) -> float:
    """The 99th percentile, in ms, of taking and completing a task with so many waiting behind it."""
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "bench", max_size=backlog + takes + 1)
        for start in range(0, backlog, 25_600):
            await queue.put_many(range(start, min(start + 25_600, backlog)))
        seconds: list[float] = []
        for number in range(takes):
            await queue.put(number, priority=1)
            began = time.perf_counter()
            async with queue.take():
                pass
            seconds.append(time.perf_counter() - began)
        return 1000 * sorted(seconds)[math.ceil(0.99 * takes) - 1]


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
        url = f"sqlite:///{folder}/bench.db"
        on_loop(loop, _fill, url, n)
        command = [sys.executable, "-m", "benchmarks.queues", url, loop]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        spans = [tuple(map(float, process.communicate()[0].split())) for process in processes]
        return n / (max(end for _, end in spans) - min(start for start, _ in spans))


async def _fill(url: str, n: int) -> None:
    async with tenure.open_store(url) as store:
        await tenure.WorkQueue(store, "bench", max_size=n).put_many(range(n))


async def _help(url: str) -> None:
    start = time.time()
    await drained(url, 0, put=False)
    print(start, time.time())


def _fixed(value: float) -> Figure:
    return Figure(value, 0.0)


def run(smoke: bool) -> list[dict[str, Any]]:
    """Measure everything."""
    n = 500 if smoke else 20_000
    backlog, takes = (500, 50) if smoke else (1_000_000, 1_000)
    rows: list[dict[str, Any]] = []
    for loop in LOOPS:
        figures = interleaved(
            {
                "ours": partial(on_loop, loop, drained, "memory:", n),
                "bare dispatch": partial(on_loop, loop, dispatched, n),
            }
        )
        goal = f">= {MEMORY_GOALS[loop]:,}/s"
        rows.append(row("memory: no-op tasks, concurrency 32", loop, figures, "bare dispatch", goal=goal))
    contestants = {f"ours {loop}": partial(fresh, drained, n, loop=loop) for loop in LOOPS}
    figures = interleaved({**contestants, "huey": partial(huey_drained, n)})
    for loop in LOOPS:
        pair = {"ours": figures[f"ours {loop}"], "huey": figures["huey"]}
        rows.append(row("SQLite: no-op tasks, one process", loop, pair, "huey", goal=">= 2x"))
    for loop in LOOPS:
        both = interleaved({"ours": partial(two_processes, n, loop=loop)}, rounds=1 if smoke else 3)
        pair = {"ours": both["ours"], "huey": figures["huey"]}
        rows.append(
            row("SQLite: no-op tasks, two processes (huey: one)", loop, pair, "huey", goal=">= 5,000/s")
        )
    putting = {
        "one": partial(fresh, put_one_by_one, n, loop="asyncio"),
        "many": partial(fresh, put_in_batches, n, loop="asyncio"),
        "huey": partial(huey_put, n),
    }
    figures = interleaved(putting)
    for name, work in (("one", "SQLite: put by 32 callers"), ("many", "SQLite: put in batches of 100")):
        rows.append(row(work, "asyncio", {"ours": figures[name], "huey": figures["huey"]}, "huey"))
    for store, measure in (
        ("memory", lambda size: on_loop("asyncio", take_p99, "memory:", size, takes)),
        ("SQLite", lambda size: fresh(take_p99, size, takes, loop="asyncio")),
    ):
        pair = {"empty queue": _fixed(measure(0)), "ours": _fixed(measure(backlog))}
        work = f"{store}: p99 of take with a backlog of {backlog:,}"
        rows.append(
            row(work, "asyncio", pair, "empty queue", unit="ms", less_is_better=True, goal=">= 0.5 (2x)")
        )
    return rows


if __name__ == "__main__":
    on_loop(sys.argv[2], _help, sys.argv[1]) if len(sys.argv) > 2 else print(run(smoke=True))
