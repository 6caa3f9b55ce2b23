"""anyio #728: an item that is handed to a receiver already cancelled is lost to all receivers."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from benchmarks.bugs._blocks import by_scope
from tenure.testing import Cancellable, cancellable

ITEMS = 4


async def lost_item(block: Callable[[], Cancellable] = by_scope) -> None:
    """What was sent is received, by a receiver that may be cancelled or by the one that stays."""
    send, receive = anyio.create_memory_object_stream[int](1)
    received: list[int] = []

    async def produce() -> None:
        with send:
            for item in range(ITEMS):
                await send.send(item)

    async def victim() -> None:
        with block():
            # the stream ends without an item if the producer is cancelled
            async for item in receive:
                received.append(item)
                return

    async def consume() -> None:
        async for item in receive:
            received.append(item)  # noqa: PERF401 # one by one, whatever comes between

    with receive:
        async with anyio.create_task_group() as group:
            for task in (victim, victim, consume, produce):
                group.start_soon(task)
    assert sorted(received) == list(range(ITEMS)), f"sent {ITEMS} items, received {received}"


async def lost_item_natively() -> None:
    """The same, where `task.cancel()` comes after the hand-over; no fix of the release reaches that."""
    await lost_item(cancellable)
