"""Single flight: many callers who share one load, and loads that are not shared.

async-lru and anyio's lru_cache keep what was loaded; here they are given a new key for each load, so that each figure
is of a load. async-lru runs on asyncio alone.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import anyio
import anyio.functools
import anyio.lowlevel
from async_lru import alru_cache

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local import SingleFlight

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Ask = Callable[[int], Awaitable[int]]

OURS = "ours"
ANYIO = "anyio lru_cache"
ASYNC_LRU = "async-lru"


async def load(key: int) -> int:
    """What is loaded, in one turn of the loop."""
    await anyio.lowlevel.checkpoint()
    return key


def single_flight() -> Ask:
    """Ours, used as it is: the first caller hosts the load."""
    flight = SingleFlight()
    return lambda key: flight.run(key, load, key)


MAKES: dict[str, Callable[[], Ask]] = {
    OURS: single_flight,
    ANYIO: lambda: anyio.functools.lru_cache(maxsize=1)(load),
    ASYNC_LRU: lambda: alru_cache(maxsize=1)(load),
}


async def shared(make: Callable[[], Ask], callers: int) -> float:
    """So many callers at once for one key, per second."""
    ask = make()
    start = anyio.Event()

    async def call() -> None:
        await start.wait()
        await ask(1)

    async with anyio.create_task_group() as group:
        for _ in range(callers):
            group.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        began = perf_counter()
        start.set()
    return callers / (perf_counter() - began)


async def alone(make: Callable[[], Ask], times: int) -> float:
    """Loads a second of one caller, each of a new key."""
    ask = make()
    began = perf_counter()
    for key in range(times):
        await ask(key)
    return times / (perf_counter() - began)


def run(size: Size) -> Iterator[Row]:
    callers, times = size.of((100, 100), (1_000, 1_000), (10_000, 10_000))
    for loop in LOOPS:
        peers = (ANYIO,) if loop == "trio" else (ANYIO, ASYNC_LRU)
        for work, measure, n in (
            (f"{callers:,} callers share a load", shared, callers),
            ("a load of one's own", alone, times),
        ):
            contestants = {name: partial(on_loop, loop, measure, MAKES[name], n) for name in (OURS, *peers)}
            figures = interleaved(contestants, size)
            yield from [row(work, loop, figures, peer) for peer in peers]
