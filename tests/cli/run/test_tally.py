"""What a process has seen of a run is stored with it, whatever becomes of the store meanwhile."""

from __future__ import annotations

import anyio

import tenure
from tenure.cli.run._tally import Keeper, RunTotals, total


async def test_an_outage_longer_than_the_ttl_does_not_end_it(engine, virtual_clock):
    tally = RunTotals()
    async with tenure.open_store(engine, ttl=3.0) as store, anyio.create_task_group() as group:
        queue = tenure.WorkQueue(store, "run:x")
        group.start_soon(Keeper(queue, tally, anyio.current_time()).keep)
        tally.times.record(1.0)
        await anyio.sleep(1.5)
        engine.down = True
        tally.times.record(1.0)
        await anyio.sleep(10)
        engine.down = False
        await anyio.sleep(3)
        assert total(await queue.cursors()).times.count == 2
        group.cancel_scope.cancel()
