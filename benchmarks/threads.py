"""Blocking functions in threads: what the limits cost.

anyio's own `to_thread.run_sync` has a limit too, but no bound of its line, no account of abandoned threads, and no
refusal of nested use.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local import Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

WORKERS = 4
ANYIO = "anyio.to_thread"


def nothing() -> None:
    """What runs in the thread."""


def ours() -> Callable[[], Awaitable[None]]:
    """A bounded run."""
    return partial(Threads(WORKERS).run, nothing)


def anyios() -> Callable[[], Awaitable[None]]:
    """The same with anyio's limiter."""
    return partial(anyio.to_thread.run_sync, nothing, limiter=anyio.CapacityLimiter(WORKERS))


async def runs(make: Callable[[], Callable[[], Awaitable[None]]], tasks: int, times: int) -> float:
    """Runs a second of so many tasks."""
    call = make()

    async def work() -> None:
        for _ in range(times // tasks):
            await call()

    await call()
    began = perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(tasks):
            group.start_soon(work)
    return times / (perf_counter() - began)


def run(size: Size) -> Iterator[Row]:
    times = size.of(100, 1_000, 4_000)
    for loop in LOOPS:
        for tasks in (1, 20):
            figures = interleaved(
                {
                    "ours": partial(on_loop, loop, runs, ours, tasks, times),
                    ANYIO: partial(on_loop, loop, runs, anyios, tasks, times),
                },
                size,
            )
            yield row(f"no-op functions, {tasks} tasks on {WORKERS} threads", loop, figures, ANYIO)
