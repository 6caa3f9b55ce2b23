"""How it grows: tasks and waiters of one process, tasks that wait in a queue, groups, and processes.

A flat line is what the page about performance promises for all but the last, which has two cores at most to grow on.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio

import tenure
from benchmarks._measure import LOOPS, Row, Size, alone, interleaved, on_loop, row
from benchmarks._redis_server import server
from benchmarks.groups import takes
from benchmarks.locks import ANYIO_LOCK, handed_over, handed_over_on_anyio
from benchmarks.queues import by_processes


async def cycles(tasks: int, times: int) -> float:
    """Lock cycles a second of so many tasks, each on a lock of its own."""
    async with tenure.open_store("memory:") as store:
        locks = [tenure.Lock(store, f"lock {n}") for n in range(tasks)]
        return await _together(locks, times)


async def cycles_on_anyio(tasks: int, times: int) -> float:
    """The same with anyio's lock."""
    return await _together([anyio.Lock() for _ in range(tasks)], times)


async def _together(locks: Sequence[tenure.Lock | anyio.Lock], times: int) -> float:
    async def work(lock: tenure.Lock | anyio.Lock) -> None:
        for _ in range(times):
            async with lock:
                pass

    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for lock in locks:
            group.start_soon(work, lock)
    return len(locks) * times / (time.perf_counter() - began)


async def behind_a_backlog(url: str, backlogs: Sequence[int], times: int) -> list[float]:
    """Microseconds to take and complete a task, the median, while so many others wait."""
    medians: list[float] = []
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue[int](store, "bench", max_size=backlogs[-1] + 1)
        waiting = 0
        for backlog in backlogs:
            while waiting < backlog:
                more = min(10_000, backlog - waiting)
                await queue.put_many(range(more))
                waiting += more
            took: list[float] = []
            for number in range(times):
                await queue.put(number, priority=1)
                began = time.perf_counter()
                async with queue.take():
                    pass
                took.append(1e6 * (time.perf_counter() - began))
            medians.append(median(took))
    return medians


@contextmanager
def places() -> Generator[dict[str, str]]:
    """The URLs of stores that are fresh."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        yield {
            "SQLite": f"sqlite:///{Path(folder)}/bench.db",
            "Redis": f"unix://{stack.enter_context(server())}",
        }


def run(size: Size) -> Iterator[Row]:
    """Measure everything."""
    amounts = size.of((1, 10), (1, 100, 1_000), (1, 10, 100, 1_000, 10_000))
    total = size.of(10, 1_000, 5_000)
    for loop in LOOPS:
        for x in amounts:
            contestants = {
                "ours": partial(on_loop, loop, cycles, x, max(1, total // x)),
                ANYIO_LOCK: partial(on_loop, loop, cycles_on_anyio, x, max(1, total // x)),
            }
            figures = interleaved(contestants, size)
            yield row("memory: lock cycles, by tasks and locks", loop, figures, ANYIO_LOCK, x=x)
        for x in amounts:
            contestants = {
                "ours": partial(on_loop, loop, handed_over, "memory:", x),
                ANYIO_LOCK: partial(on_loop, loop, handed_over_on_anyio, x),
            }
            figures = interleaved(contestants, size)
            yield row("memory: hand-overs, by waiters", loop, figures, ANYIO_LOCK, x=x)

    times = size.of(2, 200, 200)
    backlogs = size.of((1, 10), (1, 1_000, 20_000), (1, 1_000, 10_000, 100_000, 1_000_000))
    for engine in ("memory", "SQLite"):
        with places() as urls:
            medians = on_loop("asyncio", behind_a_backlog, urls.get(engine, "memory:"), backlogs, times)
            for x, took in zip(backlogs, medians, strict=True):
                work = f"{engine}: take and complete, median, by backlog"
                yield alone(work, "asyncio", [took], unit="us", goal="flat", x=x)

    for engine in ("memory", "SQLite"):
        for x in size.of((1, 10), (1, 1_000), (1, 1_000, 10_000, 100_000)):
            with places() as urls:
                took = on_loop("asyncio", takes, urls.get(engine, "memory:"), x, min(x, times))
                work = f"{engine}: take and complete, by groups"
                yield alone(work, "asyncio", [took], unit="us", goal="flat", x=x)

    n = size.of(20, 1_000, 10_000)
    for engine in ("SQLite", "Redis"):
        for x in size.of((1,), (1, 2), (1, 2, 4, 8)):
            with places() as urls:
                rate = by_processes(urls[engine], n, x, "asyncio")
                work = f"{engine}: no-op tasks, by processes"
                yield alone(work, "asyncio", [rate], unit="1/s", x=x)
