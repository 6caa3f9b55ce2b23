"""Jobs: each call that was put is made once on record, with its own arguments."""

from __future__ import annotations

from contextlib import suppress

from explored.catalogue import on_every_engine
from explored.scenarios.queues import all_is_done
from explored.world import pause

from tenure import Job, QueueFull, Worker, WorkQueue
from tenure.testing import cancellable


@on_every_engine("shared.Job.put", "shared.Job.try_put", "shared.Job.result", "shared.Worker.run")
async def calls_are_made_with_their_arguments(world):
    async with world.open() as store, world.open() as elsewhere:
        calls, results = [], {}

        async def add(a, *, b=10):
            calls.append((a, b))
            await pause()
            return a + b

        job = Job(WorkQueue(store, "q", max_size=2), add)
        there = Job(WorkQueue(elsewhere, "q", max_size=2), add)

        async def caller(a):
            results[a] = await job.result(await job.put(a, b=1))

        async def tries():
            with suppress(QueueFull):
                results["tried"] = await there.result(await there.try_put(5))

        async def victim():
            with cancellable():
                await caller(100)

        async with world.group() as group:
            worker = Worker(there, concurrency=2)
            group.start_soon(worker.run)
            async with world.group() as callers:
                callers.start_soon(caller, 1)
                callers.start_soon(victim)
                callers.start_soon(caller, 2)
                callers.start_soon(tries)
            await job.queue.join()
            await worker.drain()
        assert results.items() >= {1: 2, 2: 3}.items()
        assert results.get(100, 101) == 101 and results.get("tried", 15) == 15
        done = worker.statistics().done
        assert len(set(calls)) == done and {(1, 1), (2, 1)} <= set(calls) <= {
            (1, 1),
            (2, 1),
            (100, 1),
            (5, 10),
        }
        await all_is_done(job.queue, store, elsewhere, done=done, put=done)
