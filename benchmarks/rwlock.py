"""The read-write lock: reading without writers, thousands of readers at once, readers and writers that contend.

aiorwlock prefers writers, and gives way to others when it is taken, as ours does, unless `fast` is set. It is for
asyncio; tricycle's lock is for trio. The bare checkpoint is a floor: what gives way cannot be faster.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import aiorwlock
import anyio
import tricycle

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local._rwlock import RWLock
from tenure.waiting import checkpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    Enter = Callable[[], AbstractAsyncContextManager[Any]]
    Pair = tuple[Enter, Enter]


class BareCheckpoint:
    """No lock at all, but it gives way."""

    async def __aenter__(self) -> None:
        await checkpoint()

    async def __aexit__(self, *_: object) -> None:
        pass


def ours() -> Pair:
    """The lock of ours, first come, first served."""
    lock = RWLock()
    return lock.read, lock.write


def of_aiorwlock() -> Pair:
    """The lock of aiorwlock, in its safe mode."""
    lock = aiorwlock.RWLock()
    return lambda: lock.reader, lambda: lock.writer


def of_tricycle() -> Pair:
    """The lock of tricycle."""
    lock = tricycle.RWLock()
    return lock.read_locked, lock.write_locked


def of_checkpoint() -> Pair:
    """No lock."""
    return BareCheckpoint, BareCheckpoint


async def read(make: Callable[[], Pair], times: int) -> float:
    """Read in one task, per second."""
    enter, _ = make()
    start = perf_counter()
    for _ in range(times):
        async with enter():
            pass
    return times / (perf_counter() - start)


async def written(make: Callable[[], Pair], times: int) -> float:
    """Write in one task, per second."""
    _, enter = make()
    return await read(lambda: (enter, enter), times)


async def in_and_out(make: Callable[[], Pair], readers: int) -> float:
    """Seconds until so many, which are there already, have gone in, were all in together, and have left."""
    enter, _ = make()
    inside, go, all_in = 0, anyio.Event(), anyio.Event()

    async def reader() -> None:
        nonlocal inside
        await go.wait()
        async with enter():
            inside += 1
            if inside == readers:
                all_in.set()
            await all_in.wait()

    async with anyio.create_task_group() as group:
        for _ in range(readers):
            group.start_soon(reader)
        await anyio.wait_all_tasks_blocked()
        start = perf_counter()
        go.set()
    return perf_counter() - start


async def mixed(make: Callable[[], Pair], cycles: int) -> float:
    """Cycles a second of 20 tasks that contend, one cycle in ten to write, each with a step of work inside."""
    enter, enter_to_write = make()

    async def work(number: int) -> None:
        for cycle in range(cycles // 20):
            async with (enter_to_write if (number + cycle) % 10 == 0 else enter)():
                await checkpoint()

    start = perf_counter()
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(work, number)
    return cycles / (perf_counter() - start)


class Work(NamedTuple):
    """One thing that is measured, of everybody, on each loop."""

    name: str
    measure: Callable[[Callable[[], Pair], int], Awaitable[float]]
    size: int
    unit: str
    goal: str


WORKS = (
    Work("read", read, 20_000, "1/s", ">= 1.2x aiorwlock"),
    Work("write", written, 20_000, "1/s", ""),
    Work("5,000 readers in and out", in_and_out, 5_000, "s", "<= 0.2 s"),
    Work("20 tasks, 1 in 10 writes", mixed, 10_000, "1/s", ""),
)


def run(size: Size) -> Iterator[Row]:
    for work in WORKS:
        n = work.size // size.of(100, 5, 1)
        for loop in LOOPS:
            peers = {"tricycle": of_tricycle} if loop == "trio" else {"aiorwlock": of_aiorwlock}
            if work.measure is read:
                peers["bare checkpoint"] = of_checkpoint
            figures = interleaved(
                {
                    name: partial(on_loop, loop, work.measure, make, n)
                    for name, make in ({"ours": ours} | peers).items()
                },
                size,
            )
            yield from [
                row(
                    work.name,
                    loop,
                    figures,
                    peer,
                    unit=work.unit,
                    less_is_better=work.unit == "s",
                    goal=_goal(work, loop, peer),
                )
                for peer in peers
            ]


def _goal(work: Work, loop: str, peer: str) -> str:
    if peer == "bare checkpoint":
        return "the floor"
    return "" if loop == "trio" and work.measure is read else work.goal
