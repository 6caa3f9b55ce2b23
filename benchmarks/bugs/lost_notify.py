"""CPython gh-112202: asyncio's condition notifies a waiter that is already cancelled, and the notice is lost."""

from __future__ import annotations

import asyncio

from tenure.testing import cancellable


async def lost_notify() -> None:
    """The item comes with one notification, and is consumed by somebody."""
    condition = asyncio.Condition()
    items: list[int] = []
    consumed: list[int] = []

    async def consume() -> None:
        async with condition:
            await condition.wait_for(lambda: items or consumed)
            if items:
                consumed.append(items.pop())
            condition.notify_all()

    async def victim() -> None:
        with cancellable():
            await consume()

    async def produce() -> None:
        await asyncio.sleep(1)
        async with condition:
            items.append(1)
            condition.notify()

    async with asyncio.TaskGroup() as group:
        for task in (victim, victim, consume, produce):
            group.create_task(task())
