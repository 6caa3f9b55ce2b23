"""The processor over the bare queue: what it adds to a task, a thousand workers, and the memory of an idle worker.

The peer is our own `Worker`, which does the same without the measuring and without the parts. Everything is on the
memory engine, where nothing else hides what the processor costs.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio

import tenure
from benchmarks._measure import Row, Size, interleaved, on_loop, row
from tenure.local import CircuitBreaker, Pool
from tenure.processor import Context, Preset, Processor

LOOPS = ("asyncio", "uvloop", "trio")
CONCURRENCY = 32


async def noop(_: tenure.Task, __: Context | None = None) -> None:
    """Do nothing."""


async def nap(_: tenure.Task, __: Context | None = None) -> None:
    """Wait for a while, as for an answer."""
    await anyio.sleep(0.05)


async def connect() -> object:
    """Make a connection to nothing."""
    return object()


def preset(workers: int) -> Preset:
    """So many workers, and no limit that would be felt."""
    return Preset(workers=workers, connections=workers, rate=float("inf"), queue_size=1_000_000)


async def through_worker(n: int, workers: int, handler: Any) -> float:
    """Tasks a second through a worker, putting apart."""
    async with tenure.open_store("memory:") as store:
        queue = tenure.WorkQueue(store, "bench", max_size=1_000_000)
        await queue.put_many(range(n))
        worker = tenure.Worker(queue, handler, concurrency=workers)
        began = time.perf_counter()
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await queue.join()
            seconds = time.perf_counter() - began
            await worker.drain()
        return n / seconds


async def through_processor(n: int, workers: int, handler: Any, *, parts: bool = False) -> float:
    """Tasks a second through a processor, putting apart; with all parts, or with none."""
    async with tenure.open_store("memory:") as store:
        options: dict[str, Any] = {}
        if parts:
            claims = tenure.ResourcePool(store, "keys")
            for number in range(workers):
                await claims.add(str(number))
            options = {
                "claims": claims,
                "pool": partial(Pool, connect, close=id),
                "breaker": CircuitBreaker,
                "rate": 1e6,
                "timeout": 60.0,
            }
        processor = Processor(store, "bench", handler, preset=preset(workers), **options)
        await processor.queue().put_many(range(n))
        began = time.perf_counter()
        async with processor:
            await processor.join()
            return n / (time.perf_counter() - began)


async def traced(queue: tenure.WorkQueue, workers: int) -> int:
    """The bytes in use when so many wait for a task."""
    while len(queue._takers) < workers:  # noqa: ASYNC110 there is no event for it
        await anyio.sleep(0.01)
    return tracemalloc.get_traced_memory()[0]


async def bytes_per_worker(workers: int, *, bare: bool) -> float:
    """Bytes that each of so many idle workers takes."""
    async with tenure.open_store("memory:") as store:
        queue = tenure.WorkQueue(store, "bench")

        async def measured(many: int) -> int:
            gc.collect()
            tracemalloc.start()
            async with anyio.create_task_group() as group:
                if bare:
                    worker = tenure.Worker(queue, noop, concurrency=many)
                    group.start_soon(worker.run)
                    seen = await traced(queue, many)
                    await worker.drain()
                else:
                    async with Processor(store, "bench", noop, preset=preset(many)):
                        seen = await traced(queue, many)
            tracemalloc.stop()
            return seen

        one = await measured(1)
        return (await measured(workers) - one) / (workers - 1)


def run(size: Size) -> Iterator[Row]:
    """Give one row for each kind of work and loop."""
    n = size.of(40, 2_000, 20_000)
    many = size.of(10, 200, 1_000)
    for loop in LOOPS:
        figures = interleaved(
            {
                "ours": partial(on_loop, loop, through_processor, n, CONCURRENCY, noop),
                "ours with parts": partial(
                    on_loop, loop, through_processor, n // 10, CONCURRENCY, noop, parts=True
                ),
                "Worker": partial(on_loop, loop, through_worker, n, CONCURRENCY, noop),
            },
            size,
        )
        yield row("no-op tasks, concurrency 32", loop, figures, "Worker")
        with_parts = {"ours": figures["ours with parts"], "Worker": figures["Worker"]}
        yield row("the same with all parts", loop, with_parts, "Worker")
        thousand = interleaved(
            {
                "ours": partial(on_loop, loop, through_processor, 5 * many, many, nap),
                "Worker": partial(on_loop, loop, through_worker, 5 * many, many, nap),
            },
            size,
        )
        yield row(f"tasks of 50 ms, {many:,} workers", loop, thousand, "Worker")
        memory = interleaved(
            {
                "ours": partial(on_loop, loop, bytes_per_worker, many, bare=False),
                "Worker": partial(on_loop, loop, bytes_per_worker, many, bare=True),
            },
            size,
        )
        yield row(
            f"memory of an idle worker, of {many:,}",
            loop,
            memory,
            "Worker",
            unit="bytes",
            less_is_better=True,
            difference=True,
        )
