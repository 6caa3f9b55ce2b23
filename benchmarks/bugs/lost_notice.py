"""anyio #1075: a condition notifies a waiter that is already cancelled, and the notice is lost."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from benchmarks.bugs._blocks import by_scope
from tenure.testing import Cancellable, cancellable

ITEMS = 1


async def lost_notice(block: Callable[[], Cancellable] = by_scope) -> None:
    """Each item comes with one notification, and is consumed by somebody."""
    condition = anyio.Condition()
    items: list[int] = []
    consumed: list[int] = []

    async def consume() -> None:
        async with condition:
            while len(consumed) < ITEMS:
                if items:
                    consumed.append(items.pop())
                else:
                    await condition.wait()
            condition.notify_all()

    async def victim() -> None:
        with block():
            await consume()

    async def produce() -> None:
        for item in range(ITEMS):
            await anyio.sleep(1)
            async with condition:
                items.append(item)
                condition.notify()

    async with anyio.create_task_group() as group:
        for task in (victim, victim, consume, produce):
            group.start_soon(task)


async def lost_notice_natively() -> None:
    """The same with `task.cancel()`, which may also come while the lock is taken again."""
    await lost_notice(cancellable)
