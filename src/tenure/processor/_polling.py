from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from tenure.errors import EngineError, StoreClosed, StoreUnavailable
from tenure.shared import WorkQueue
from tenure.store import handle_of

from ._meter import Meter

EVERY = 5.0
"""Seconds between two questions to the engine, and between two reports to the fleet."""


async def repeat(function: Callable[[], Awaitable[object]]) -> None:
    with suppress(StoreClosed):
        while True:
            with suppress(EngineError, StoreUnavailable):
                await function()
            await anyio.sleep(EVERY)


async def watch_heartbeats(queue: WorkQueue, meter: Meter) -> None:
    """Report each late heartbeat of the session that has a queue's tasks.

    They are sent every third of the ttl, so an acknowledgement that is older than a half is late.
    """
    store = handle_of(queue.store)
    step = store.ttl / 6
    reported: float | None = None
    while True:
        due = anyio.current_time() + step
        await anyio.sleep_until(due)
        overslept = anyio.current_time() - due
        session = store.sessions.current(store.ttl, queue.key)
        age = 0.0 if session is None else session.ttl - session.margin - session.remaining()
        # of a session that is renewed late each poll finds the same, until it has been renewed
        renewal = due if session is None else session.deadline
        if (overslept > step or age > 3 * step) and reported != renewal:
            reported = renewal
            meter.report("heartbeats_late", seconds=max(overslept, age - 2 * step))
