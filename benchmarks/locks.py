"""Shared locks and semaphores on the embedded engines: cycles, many names at once, and waiters handed over.

There is no peer that does the same on any of these loops, so the figures stand beside floors. `anyio.Lock` and
`anyio.Semaphore` are for one process and do less: no lease, no fence, no line on an engine, nothing that outlives the
process; `anyio.Lock` takes a free lock with half a checkpoint, and the bare checkpoint is what a lock with a full one
cannot pass. On SQLite every cycle is two transactions of ours, and none of others.
"""

from __future__ import annotations

import tempfile
from contextlib import AbstractAsyncContextManager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

import tenure
from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Make = Callable[[tenure.Store], AbstractAsyncContextManager[Any]]

NAMES = 100
ANYIO_LOCK = "anyio.Lock (one process)"
ANYIO_SEMAPHORE = "anyio.Semaphore (one process)"
CHECKPOINT = "bare checkpoint"


def lock(store: tenure.Store, name: str = "bench") -> tenure.Lock:
    """A shared lock."""
    return tenure.Lock(store, name)


def semaphore(store: tenure.Store) -> tenure.Semaphore:
    """A shared semaphore with room for more than one."""
    return tenure.Semaphore(store, "bench", 5)


async def cycled(url: str, make: Make, times: int) -> float:
    """Enter and leave in one task, per second."""
    async with tenure.open_store(url) as store:
        return await _cycled(make(store), times)


async def _cycled(subject: AbstractAsyncContextManager[Any], times: int) -> float:
    async with subject:
        pass
    start = perf_counter()
    for _ in range(times):
        async with subject:
            pass
    return times / (perf_counter() - start)


async def cycled_on_anyio(make: Callable[[], AbstractAsyncContextManager[Any]], times: int) -> float:
    """The same with what anyio has for one process."""
    return await _cycled(make(), times)


async def checkpoints(times: int) -> float:
    """Bare checkpoints a second."""
    start = perf_counter()
    for _ in range(times):
        await anyio.lowlevel.checkpoint()
    return times / (perf_counter() - start)


async def many_names(url: str, times: int) -> float:
    """Cycles a second of 100 tasks, each with a lock of its own: their calls travel together."""
    async with tenure.open_store(url) as store:

        async def work(number: int) -> None:
            subject = lock(store, f"bench {number}")
            for _ in range(times // NAMES):
                async with subject:
                    pass

        async with lock(store):
            pass
        start = perf_counter()
        async with anyio.create_task_group() as group:
            for number in range(NAMES):
                group.start_soon(work, number)
        return times / (perf_counter() - start)


async def handed_over(url: str, waiters: int) -> float:
    """So many tasks wait in the line of one lock: how many a second get it, one after the other."""
    async with tenure.open_store(url) as store:
        subject = lock(store)

        async def wait() -> None:
            async with subject:
                pass

        async with anyio.create_task_group() as group, subject:
            for _ in range(waiters):
                group.start_soon(wait)
            await _all_in_line(store, waiters)
            start = perf_counter()
        return waiters / (perf_counter() - start)


async def _all_in_line(store: tenure.Store, waiters: int) -> None:
    statistics = await store.statistics()
    while statistics.waiting < waiters or statistics.pending:
        await anyio.sleep(0.01)
        statistics = await store.statistics()


async def handed_over_on_anyio(waiters: int) -> float:
    """The same with anyio's lock for one process."""
    subject = anyio.Lock()

    async def wait() -> None:
        async with subject:
            pass

    async with anyio.create_task_group() as group, subject:
        for _ in range(waiters):
            group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        start = perf_counter()
    return waiters / (perf_counter() - start)


def on_engine(engine: str, loop: str, work: Callable[..., Any], *args: Any) -> float:
    """Run `work(url, ...)` on a new store."""
    if engine == "memory":
        return on_loop(loop, work, "memory:", *args)
    with tempfile.TemporaryDirectory() as folder:
        return on_loop(loop, work, f"sqlite:///{folder}/bench.db", *args)


def run(size: Size) -> Iterator[Row]:
    cycles = {"memory": size.of(5, 500, 5_000), "SQLite": size.of(2, 100, 500)}
    floor = size.of(20, 2_000, 20_000)
    lines = size.of((10,), (200,), (1_000, 5_000))
    for engine, times in cycles.items():
        for loop in LOOPS:
            ours = partial(on_engine, engine, loop)
            peer = partial(on_loop, loop)
            figures = interleaved(
                {
                    "ours": partial(ours, cycled, lock, times),
                    ANYIO_LOCK: partial(peer, cycled_on_anyio, anyio.Lock, floor),
                    CHECKPOINT: partial(peer, checkpoints, floor),
                },
                size,
            )
            yield from [
                row(f"{engine}: lock, one task", loop, figures, name) for name in (ANYIO_LOCK, CHECKPOINT)
            ]
            figures = interleaved(
                {
                    "ours": partial(ours, cycled, semaphore, times),
                    ANYIO_SEMAPHORE: partial(peer, cycled_on_anyio, partial(anyio.Semaphore, 5), floor),
                },
                size,
            )
            yield row(f"{engine}: semaphore, one task", loop, figures, ANYIO_SEMAPHORE)
            figures = interleaved(
                {
                    "ours": partial(ours, many_names, NAMES if size.smoke else 2 * times),
                    "one task": partial(ours, cycled, lock, times),
                },
                size,
            )
            yield row(f"{engine}: {NAMES} tasks on {NAMES} locks", loop, figures, "one task")
            for waiters in lines:
                figures = interleaved(
                    {
                        "ours": partial(ours, handed_over, waiters),
                        ANYIO_LOCK: partial(peer, handed_over_on_anyio, waiters),
                    },
                    size,
                )
                yield row(f"{engine}: {waiters:,} waiters handed over", loop, figures, ANYIO_LOCK)
