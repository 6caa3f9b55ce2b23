"""A bulkhead against anyio's limiter: entering a free one, and going down its line, of one kind and of two.

anyio's limiter and ours both make a full checkpoint on entering; the bare checkpoint is the floor. The limiter has one
line without a bound and knows no kinds; the two kinds of ours are compared with that all the same. It has no time limit
either: ours with one stands beside it as it is, and in a block with a time limit.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local import Bulkhead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    Enter = Callable[[int], AbstractAsyncContextManager[Any]]

LIMITER = "anyio.CapacityLimiter"
LIMITED = "anyio.CapacityLimiter in move_on_after"
CHECKPOINT = "bare checkpoint"


def plain(limit: int) -> Enter:
    """A bulkhead without shares."""
    bulkhead = Bulkhead(limit)
    return lambda _: bulkhead.enter()


def bounded(limit: int) -> Enter:
    """One whose line has a bound, and whose waiters a time limit."""
    bulkhead = Bulkhead(limit, max_waiting=1_000_000)
    return lambda _: bulkhead.enter(timeout=60)


def shared(limit: int) -> Enter:
    """One with two kinds."""
    bulkhead = Bulkhead(limit, shares={0: 3, 1: 1})
    return lambda number: bulkhead.enter(number % 2)


def limiter(limit: int) -> Enter:
    """The limiter of anyio."""
    made = anyio.CapacityLimiter(limit)
    return lambda _: made


class Limited:
    """What a user of anyio's limiter writes for a time limit on entering."""

    def __init__(self, made: anyio.CapacityLimiter) -> None:
        self.made = made

    async def __aenter__(self) -> None:
        with anyio.move_on_after(60) as scope:
            await self.made.acquire()
        if scope.cancelled_caught:
            raise TimeoutError

    async def __aexit__(self, *_: object) -> None:
        self.made.release()


def limited(limit: int) -> Enter:
    """The limiter of anyio, entered within a time limit."""
    made = anyio.CapacityLimiter(limit)
    return lambda _: Limited(made)


async def cycled(make: Callable[[int], Enter], times: int) -> float:
    """Enter and leave a free one in one task, per second."""
    enter = make(4)
    start = perf_counter()
    for number in range(times):
        async with enter(number):
            pass
    return times / (perf_counter() - start)


async def checkpoints(times: int) -> float:
    """Bare checkpoints a second."""
    start = perf_counter()
    for _ in range(times):
        await anyio.lowlevel.checkpoint()
    return times / (perf_counter() - start)


async def handed_over(make: Callable[[int], Enter], waiters: int) -> float:
    """Let tasks that wait already go through one by one, per second."""
    enter, gate = make(4), anyio.Event()

    async def occupy(number: int) -> None:
        async with enter(number):
            await gate.wait()

    async def wait(number: int) -> None:
        async with enter(number):
            pass

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(occupy, number)
        await anyio.wait_all_tasks_blocked()
        for number in range(waiters):
            group.start_soon(wait, number)
        await anyio.wait_all_tasks_blocked()
        start = perf_counter()
        gate.set()
    return waiters / (perf_counter() - start)


def run(size: Size) -> Iterator[Row]:
    times, waiters = size.of((200, 50), (10_000, 1_000), (25_000, 10_000))
    for loop in LOOPS:
        contestants = {
            "ours": partial(on_loop, loop, cycled, plain, times),
            LIMITER: partial(on_loop, loop, cycled, limiter, times),
            CHECKPOINT: partial(on_loop, loop, checkpoints, times),
        }
        figures = interleaved(contestants, size)
        yield from [row("enter and leave", loop, figures, name) for name in (LIMITER, CHECKPOINT)]
        for work, make in {"one kind": plain, "bound and timeout": bounded, "two kinds": shared}.items():
            peers = {LIMITER: limiter} | ({LIMITED: limited} if make is bounded else {})
            contestants = {
                name: partial(on_loop, loop, handed_over, each, waiters)
                for name, each in ({"ours": make} | peers).items()
            }
            figures = interleaved(contestants, size)
            yield from [row(f"{waiters:,} waiters, {work}", loop, figures, name) for name in peers]
