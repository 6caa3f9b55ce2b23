"""The line of waiters against anyio's locks: taking a free slot, handing over, and leaving in masses.

The bare checkpoint is a floor: a lock that makes a full checkpoint, as ours does, cannot be faster than that.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import anyio

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local._slots import Slots
from tenure.waiting import checkpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Pair = tuple[Callable[[], Awaitable[None]], Callable[[], None]]


def ours() -> Pair:
    """One slot of ours."""
    slots = Slots(1)
    return slots.take, slots.give_back


def anyio_lock() -> Pair:
    """The lock of anyio."""
    lock = anyio.Lock()
    return lock.acquire, lock.release


def anyio_semaphore() -> Pair:
    """A semaphore of anyio, of one."""
    semaphore = anyio.Semaphore(1)
    return semaphore.acquire, semaphore.release


def bare_checkpoint() -> Pair:
    """No lock at all."""
    return checkpoint, lambda: None


async def uncontended(make: Callable[[], Pair], times: int) -> float:
    """Take and give back in one task, per second."""
    take, give_back = make()
    start = perf_counter()
    for _ in range(times):
        await take()
        give_back()
    return times / (perf_counter() - start)


async def handed_over(make: Callable[[], Pair], waiters: int) -> float:
    """Let tasks that wait already go one by one, per second."""
    take, give_back = make()

    async def wait() -> None:
        await take()
        give_back()

    await take()
    async with anyio.create_task_group() as group:
        for _ in range(waiters):
            group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        start = perf_counter()
        give_back()
    return waiters / (perf_counter() - start)


async def cancelled(make: Callable[[], Pair], waiters: int) -> float:
    """Cancel all who wait, the last first: seconds until they are gone."""
    take, give_back = make()
    scopes: list[anyio.CancelScope] = []

    async def wait() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await take()

    await take()
    async with anyio.create_task_group() as group:
        for _ in range(waiters):
            group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        start = perf_counter()
        for scope in reversed(scopes):
            scope.cancel()
    seconds = perf_counter() - start
    give_back()
    return seconds


class Work(NamedTuple):
    """One thing that is measured, of everybody, on each loop."""

    name: str
    measure: Callable[[Callable[[], Pair], int], Awaitable[float]]
    size: int
    unit: str
    peers: dict[str, Callable[[], Pair]]
    goals: dict[str, str]


LOCK = {"anyio.Lock": anyio_lock}
WORKS = (
    Work(
        "take and give back",
        uncontended,
        50_000,
        "1/s",
        LOCK | {"bare checkpoint": bare_checkpoint},
        {"asyncio": ">= 1.5x anyio", "uvloop": ">= 1.5x anyio", "trio": ">= 1.1x anyio"},
    ),
    Work(
        "5,000 cancelled backwards",
        cancelled,
        5_000,
        "s",
        LOCK | {"anyio.Semaphore": anyio_semaphore},
        {"trio": "<= 1.2x the time of the peer"},
    ),
    Work("1,000 handed over", handed_over, 1_000, "1/s", LOCK, {}),
    Work("10,000 handed over", handed_over, 10_000, "1/s", LOCK, {}),
)


def run(size: Size) -> Iterator[Row]:
    for work in WORKS:
        n = work.size // size.of(100, 5, 1)
        for loop in LOOPS:
            figures = interleaved(
                {
                    name: partial(on_loop, loop, work.measure, make, n)
                    for name, make in ({"ours": ours} | work.peers).items()
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
                    goal=work.goals.get(loop, "") if peer != "bare checkpoint" else "the floor",
                )
                for peer in work.peers
            ]
