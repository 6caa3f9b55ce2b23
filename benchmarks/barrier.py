"""The barrier: 100 tasks that meet again and again, beside the barriers of asyncio and aiologic.

asyncio's does not break when a party is cancelled; aiologic's serves threads too.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import aiologic
import anyio

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local._barrier import Barrier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Make = Callable[[int], Callable[[], Awaitable[Any]]]

PARTIES = 100
ASYNCIO = "asyncio.Barrier"
AIOLOGIC = "aiologic.Barrier"


def ours(parties: int) -> Callable[[], Awaitable[Any]]:
    """The barrier of ours."""
    return Barrier(parties).wait


def of_asyncio(parties: int) -> Callable[[], Awaitable[Any]]:
    """The barrier of asyncio."""
    return asyncio.Barrier(parties).wait


def of_aiologic(parties: int) -> Callable[[], Awaitable[Any]]:
    """The barrier of aiologic: to be awaited itself, its `wait` is for threads."""
    barrier = aiologic.Barrier(parties)

    async def wait() -> None:
        await barrier

    return wait


async def met(make: Make, turns: int) -> float:
    """Waits a second of 100 tasks that meet so often; starting them does not count."""
    wait, go = make(PARTIES), anyio.Event()

    async def party() -> None:
        await go.wait()
        for _ in range(turns):
            await wait()

    async with anyio.create_task_group() as group:
        for _ in range(PARTIES):
            group.start_soon(party)
        await anyio.wait_all_tasks_blocked()
        start = perf_counter()
        go.set()
    return PARTIES * turns / (perf_counter() - start)


def run(size: Size) -> Iterator[Row]:
    turns = size.of(3, 50, 200)
    for loop in LOOPS:
        peers: dict[str, Make] = {AIOLOGIC: of_aiologic}
        goals = {AIOLOGIC: ">= 1x the peer"} if loop == "trio" else {}
        if loop != "trio":
            peers[ASYNCIO] = of_asyncio
            goals[ASYNCIO] = ">= 1x the peer"
        figures = interleaved(
            {
                name: partial(on_loop, loop, met, make, turns)
                for name, make in ({"ours": ours} | peers).items()
            },
            size,
        )
        yield from [
            row(f"barrier, {PARTIES} parties", loop, figures, peer, goal=goals.get(peer, ""))
            for peer in peers
        ]
