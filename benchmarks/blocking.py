"""What it costs to be watched: steps of tasks a second, with a watch and without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from time import perf_counter
from typing import Any

import anyio
import anyio.lowlevel

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local import BlockingWatch

TASKS = 10
BARE = "not watched"


async def steps(watch: AbstractAsyncContextManager[Any], times: int) -> float:
    """Steps a second of ten tasks that do nothing else."""

    async def work() -> None:
        for _ in range(times // TASKS):
            await anyio.lowlevel.checkpoint()

    async with watch:
        began = perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(TASKS):
                group.start_soon(work)
        return times / (perf_counter() - began)


def run(size: Size) -> Iterator[Row]:
    times = size.of(1_000, 40_000, 200_000)
    for loop in LOOPS:
        contestants = {
            "ours": lambda loop=loop: on_loop(loop, steps, BlockingWatch(), times),
            BARE: partial(on_loop, loop, steps, nullcontext(), times),
        }
        figures = interleaved(contestants, size)
        yield row("steps while being watched", loop, figures, BARE)
