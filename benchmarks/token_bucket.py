"""The token bucket: taking tokens that are there, the accuracy of the rate, and what thousands that wait cost.

aiolimiter is for asyncio, and does not give way to other tasks when it does not wait. The bare checkpoint is a floor:
what gives way cannot be faster.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import product
from time import perf_counter

import aiolimiter
import anyio
import anyio.lowlevel

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local import TokenBucket

CHECKPOINT = "bare checkpoint"
AIOLIMITER = "aiolimiter"
NOTHING = "tasks that wait for nothing"


def ours() -> Callable[[], Awaitable[object]]:
    return TokenBucket(1e12, burst=1e12).acquire


def of_checkpoint() -> Callable[[], Awaitable[object]]:
    return anyio.lowlevel.checkpoint


def of_aiolimiter() -> Callable[[], Awaitable[object]]:
    return aiolimiter.AsyncLimiter(1e12, 1).acquire


async def taken(make: Callable[[], Callable[[], Awaitable[object]]], times: int) -> float:
    """Tokens a second that one task takes while there are enough."""
    take = make()
    start = perf_counter()
    for _ in range(times):
        await take()
    return times / (perf_counter() - start)


async def share(
    make: Callable[[float], Callable[[], Awaitable[object]]], tasks: int, rate: float, seconds: float
) -> float:
    """How much of the rate so many tasks get out of a bucket of one token."""
    take = make(rate)
    done = 0

    async def work() -> None:
        nonlocal done
        while True:
            await take()
            done += 1

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as group:
            for _ in range(tasks):
                group.start_soon(work)
    return done / (rate * seconds + 1)


async def cpu_of_waiting(
    make: Callable[[float], Callable[[], Awaitable[object]]], waiters: int, rate: float
) -> float:
    """CPU seconds until so many tasks, which were started before, have been served at this rate."""
    take = make(rate)
    start = anyio.Event()

    async def work() -> None:
        await start.wait()
        await take()

    async with anyio.create_task_group() as group:
        for _ in range(waiters):
            group.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        begin = time.process_time()
        start.set()
    return time.process_time() - begin


def bucket(rate: float) -> Callable[[], Awaitable[object]]:
    return TokenBucket(rate).acquire


def limiter(rate: float) -> Callable[[], Awaitable[object]]:
    return aiolimiter.AsyncLimiter(1, 1 / rate).acquire


def nothing(_: float) -> Callable[[], Awaitable[object]]:
    return anyio.lowlevel.checkpoint


def run(size: Size) -> Iterator[Row]:
    times, seconds, waiters = size.of((200, 0.02, 5), (20_000, 0.1, 1_000), (50_000, 0.1, 10_000))
    at = size.of(100.0, 1_000.0, 10_000.0)  # within a second
    rates = size.of([10_000.0], [10_000.0], [100.0, 10_000.0, 100_000.0])
    for loop in LOOPS:
        makes = {"ours": ours, CHECKPOINT: of_checkpoint}
        if loop != "trio":
            makes[AIOLIMITER] = of_aiolimiter
        figures = interleaved(
            {name: partial(on_loop, loop, taken, make, times) for name, make in makes.items()}, size
        )
        goals = {CHECKPOINT: ">= 0.9x the checkpoint"}
        yield from [
            row("TokenBucket, tokens are there", loop, figures, peer, goal=goals.get(peer, ""))
            for peer in (CHECKPOINT, AIOLIMITER)
            if peer in figures
        ]
        for rate, tasks in product(rates, (1, 100)):
            contestants: dict[str, Callable[[], float]] = {
                "ours": partial(on_loop, loop, share, bucket, tasks, rate, seconds),
                "the rate": lambda: 1.0,
            }
            if loop != "trio":
                contestants[AIOLIMITER] = partial(on_loop, loop, share, limiter, tasks, rate, seconds)
            figures = interleaved(contestants, size)
            work = f"TokenBucket, burst 1, {rate:,.0f}/s, tasks: {tasks}"
            yield from [
                row(work, loop, figures, peer, unit="share", goal=goal)
                for peer, goal in (("the rate", "0.99 to 1.01"), (AIOLIMITER, ""))
                if peer in figures
            ]
        makers = {"ours": bucket, NOTHING: nothing}
        if loop != "trio":
            makers[AIOLIMITER] = limiter
        figures = interleaved(
            {
                name: partial(on_loop, loop, cpu_of_waiting, make, waiters, at)
                for name, make in makers.items()
            },
            size,
            rounds=size.of(1, 1, 3),
        )
        work = f"TokenBucket, {waiters:,} waiters"
        yield from [
            row(work, loop, figures, peer, unit="CPU s", less_is_better=True, goal=goal)
            for peer, goal in ((NOTHING, "<= 0.3 s"), (AIOLIMITER, ""))
            if peer in figures
        ]
