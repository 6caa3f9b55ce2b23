"""Queues inside a process, from one task to another, against anyio's memory stream, asyncio and aiologic.

asyncio's queues do not give way when there is nothing to wait for, and lose items in some windows of cancellation;
they are here to show what that costs. aiologic's serve threads too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import aiologic
import anyio

from benchmarks._measure import LOOPS, Row, Size, interleaved, on_loop, row
from tenure.local import PriorityQueue, Queue

Ends = tuple[Callable[[int], Awaitable[object]], Callable[[], Awaitable[object]]]
Make = Callable[[int], Ends]

SIZE = 100
STREAM = "anyio memory stream"
AIOLOGIC = "aiologic.PriorityQueue"


def fifo(size: int) -> Ends:
    queue: Queue[int] = Queue(size)
    return queue.put, queue.get


def by_priority(size: int) -> Ends:
    queue: PriorityQueue[int] = PriorityQueue(size)
    return (lambda item: queue.put(item, item % 10)), queue.get


def of_anyio(size: int) -> Ends:
    send, receive = anyio.create_memory_object_stream[int](size)
    return send.send, receive.receive


def of_asyncio(size: int) -> Ends:
    queue: asyncio.Queue[int] = asyncio.Queue(size)
    return queue.put, queue.get


def of_asyncio_by_priority(size: int) -> Ends:
    queue: asyncio.PriorityQueue[tuple[int, int]] = asyncio.PriorityQueue(size)
    return (lambda item: queue.put((item % 10, item))), queue.get


def of_aiologic(size: int) -> Ends:
    queue: Any = aiologic.PriorityQueue(size)
    return (lambda item: queue.async_put((item % 10, item))), queue.async_get


async def passed(make: Make, items: int) -> float:
    """Items a second from one task to another."""
    put, get = make(SIZE)

    async def produce() -> None:
        for item in range(items):
            await put(item)

    start = perf_counter()
    async with anyio.create_task_group() as group:
        group.start_soon(produce)
        for _ in range(items):
            await get()
    return items / (perf_counter() - start)


def run(size: Size) -> Iterator[Row]:
    items = size.of(200, 5_000, 50_000)
    for loop in LOOPS:
        peers: dict[str, Make] = {STREAM: of_anyio, AIOLOGIC: of_aiologic}
        if loop != "trio":
            peers |= {"asyncio.Queue": of_asyncio, "asyncio.PriorityQueue": of_asyncio_by_priority}
        contestants = {"ours": by_priority, "ours fifo": fifo} | peers
        figures = interleaved(
            {name: partial(on_loop, loop, passed, make, items) for name, make in contestants.items()},
            size,
        )
        goals = {STREAM: ">= 1x the peer", AIOLOGIC: ">= 3x the peer"}
        yield from [
            row("PriorityQueue, one to one", loop, figures, peer, goal=goals.get(peer, ""))
            for peer in (STREAM, AIOLOGIC, "asyncio.PriorityQueue")
            if peer in figures
        ]
        of_fifo = figures | {"ours": figures["ours fifo"]}
        yield from [
            row("Queue, one to one", loop, of_fifo, peer)
            for peer in (STREAM, "asyncio.Queue")
            if peer in figures
        ]
