"""Many puts, few flushes."""

from __future__ import annotations

from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio import ClosedResourceError
from explored.catalogue import scenario
from explored.world import pause

from tenure.local import Coalescer
from tenure.testing import cancellable, newcomer


class Flushes:
    """What was flushed: one batch at a time, and in order."""

    def __init__(self):
        self.done = []
        self.busy = False

    async def __call__(self, values):
        assert not self.busy and 0 < len(values) <= 2
        self.busy = True
        try:
            await pause()
            self.done.extend(values.values())
        finally:
            self.busy = False


@scenario("local.Coalescer.put", "local.Coalescer.__asynccontextmanager__")
async def what_was_put_is_flushed_once():
    flushes, put, cancelled = Flushes(), [], []

    async def producer(value, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        await coalescer.put(value, value)
        assert value in flushes.done
        put.append(value)

    async def victim(value):
        with cancellable() as scope:
            await producer(value)
        cancelled.append(scope.cancelled_caught)

    async with Coalescer(flushes, window=0.02, max_wait=0.05, max_items=2) as coalescer:
        async with anyio.create_task_group() as group:
            group.start_soon(producer, "a")
            group.start_soon(victim, "v")
            group.start_soon(producer, "b")
            group.start_soon(victim, "w")
            group.start_soon(producer, "c", newcomer)
        assert coalescer.statistics().tasks_waiting == 0
    assert sorted(flushes.done) == sorted(set(flushes.done)) and set(put) <= set(flushes.done)
    assert {"a", "b", "c"} <= set(put) and len(put) + sum(cancelled) == 5


@scenario("local.Coalescer.put", "local.Coalescer.__asynccontextmanager__")
async def what_is_gathered_is_flushed_when_the_block_ends():
    """However it ends, and although no window has passed."""
    flushes, put = Flushes(), []

    async def producer(value):
        with suppress(ClosedResourceError):  # one that comes after the end
            await coalescer.put(value, value)
            put.append(value)

    async with anyio.create_task_group() as group:
        with cancellable():
            async with Coalescer(flushes, window=1000) as coalescer:
                for value in "ab":
                    group.start_soon(producer, value)
                while coalescer.statistics().tasks_waiting < 2:
                    await anyio.lowlevel.checkpoint()
                await pause()
        group.cancel_scope.cancel()
    assert set(put) <= set(flushes.done) and not flushes.busy
