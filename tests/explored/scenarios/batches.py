"""What travels together: one operation that fails takes no other with it."""

from __future__ import annotations

import anyio.lowlevel
from explored.catalogue import scenario

from tenure import EngineError, WorkQueue
from tenure.engine import HOLDERS, Scan
from tenure.testing import cancellable

BAD = Scan(HOLDERS, "\ud800")
"""Its key is no text that a file could keep."""


@scenario("store.StoreHandle.call", "shared.WorkQueue.put", engines=("sqlite",))
async def a_put_beside_an_operation_that_fails_is_kept(world):
    async with world.open() as store, world.open():
        await store._handle.session(store.ttl)
        queue, put, failed = WorkQueue(store, "q"), [], []

        async def producer(name):
            put.append((await queue.put(name), name))

        async def blunderer(turns):
            # puts are sent at the end of their turn: this comes before them, or behind
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            try:
                await store._handle.call(BAD)
            except EngineError:
                failed.append(BAD)

        async def victim():
            with cancellable():
                await producer("v")

        async with world.group() as group:
            for turns, name in enumerate("abc"):
                group.start_soon(producer, name)
                group.start_soon(blunderer, turns)
            group.start_soon(victim)
        waiting = {(record.id, record.payload) for record in (await queue.tasks("waiting").page()).records}
        assert waiting >= set(put) and len(failed) == 3
        # it is forgotten then
        await queue.purge("waiting")
        assert (await queue.statistics()).put == 0
