"""Explored runs a second of a scenario of five tasks, beside the same scenario run by anyio alone.

The five tasks contend for one lock, twice each, and sleep in between; every wait for the lock may be cancelled. No
library explores on both loops, so there is no peer; the floor is what starting and ending a loop costs anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import perf_counter

import anyio
import anyio.lowlevel

from benchmarks._measure import Row, Size, interleaved, row
from tenure import testing
from tenure.testing import cancellable

TASKS = 5


async def scenario() -> None:
    """Five tasks, one lock."""
    lock = anyio.Lock()
    inside = 0

    async def use(number: int) -> None:
        nonlocal inside
        for _ in range(2):
            with cancellable():
                async with lock:
                    inside += 1
                    assert inside == 1
                    try:
                        await anyio.lowlevel.checkpoint()
                    finally:
                        inside -= 1
            await anyio.sleep(0.01 * number)

    async with anyio.create_task_group() as group:
        for number in range(TASKS):
            group.start_soon(use, number)


def explored(backend: str, times: int) -> float:
    """Runs a second, each under a schedule of its own."""
    start = perf_counter()
    testing.explore(scenario, seeds=times, backends=[backend])
    return times / (perf_counter() - start)


def cancelled(backend: str) -> float:
    """Runs a second, each cancelled in a place of its own."""
    start = perf_counter()
    runs = testing.cancel_everywhere(scenario, backends=[backend]).runs
    return runs / (perf_counter() - start)


def plain(backend: str, times: int) -> float:
    """Runs a second on the virtual clock alone, nothing explored."""
    start = perf_counter()
    for _ in range(times):
        testing.run(scenario, backend=backend)
    return times / (perf_counter() - start)


def run(size: Size) -> Iterator[Row]:
    times, floor = size.of(2, 50, 400), "no exploration"
    for backend in ("asyncio", "trio"):
        figures = interleaved(
            {
                "ours": partial(explored, backend, times),
                "ours everywhere": partial(cancelled, backend),
                floor: partial(plain, backend, times),
            },
            size,
        )
        yield row("explored runs of five tasks", backend, figures, floor, goal=">= 200/s")
        everywhere = {"ours": figures["ours everywhere"], floor: figures[floor]}
        yield row("the same, cancelled everywhere", backend, everywhere, floor)
