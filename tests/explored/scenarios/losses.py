"""Sessions that are lost, because the link is away for longer than they last."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from explored.catalogue import on_a_wire
from explored.referees import Fair
from explored.scenarios.holds import Holder, nothing_is_held
from explored.scenarios.queues import all_is_done
from explored.scenarios.takers import Work
from explored.world import pause

from tenure import LeaseLost, Lock, WorkQueue
from tenure.testing import cancellable

AWAY = 40.0
"""Seconds, more than a ttl. Losses are noticed 3 seconds before it ends, far more than schedules come late."""


@on_a_wire("shared.Hold.__aenter__", "shared.Hold.__aexit__", "shared.Lock.hold")
async def a_lock_that_was_lost_goes_to_the_next(world):
    async with world.open() as store, world.open() as elsewhere:
        link, lock, fair, lost = world.links[0], Lock(store, "x"), Fair(), []

        async def loser():
            with cancellable():
                try:
                    async with lock.hold() as lease:
                        with fair.inside(fair.came(steady=False), lease):
                            await anyio.sleep(100)
                except LeaseLost as error:
                    lost.append((error.reason, lease.lost, lease.remaining()))

        holder = Holder(fair)
        async with anyio.create_task_group() as group:
            group.start_soon(loser)
            await anyio.sleep(1)
            group.start_soon(holder.foreign, lock.hold)
            group.start_soon(holder.foreign, Lock(elsewhere, "x").hold)
            group.start_soon(holder.victim, lock.hold)
            await anyio.sleep(1)
            link.pause()
            await anyio.sleep(AWAY)
            link.resume()
        assert lost in ([], [("expired", "expired", 0)]) and fair.served >= 2
        await nothing_is_held(lock, lock.hold, store, elsewhere)


@on_a_wire("shared.WorkQueue.take", "shared.WorkQueue.put", "shared.WorkQueue.result")
async def a_task_that_was_lost_goes_to_the_next(world):
    async with world.open() as store, world.open() as elsewhere:
        link, work = world.links[0], Work()
        queue, other = WorkQueue(store, "q", max_size=2), WorkQueue(elsewhere, "q", max_size=2)
        results, lost = [], []

        async def loser():
            with cancellable():
                try:
                    async with queue.take() as task:
                        with work.on(task):
                            await anyio.sleep(100)
                except LeaseLost as error:
                    lost.append((error.reason, task.lost))

        async def taker(queue):
            async with queue.take() as task:
                with work.on(task):
                    assert task.attempt == 1
                    await pause()
                task.set_result(task.payload)

        async def watcher(task_id):
            results.append(await queue.result(task_id))

        async def victim():
            with cancellable():
                await taker(queue)

        async with anyio.create_task_group() as group:
            group.start_soon(loser)
            await anyio.sleep(1)
            first = await other.put("a")
            await other.put("b")
            group.start_soon(watcher, first)
            group.start_soon(queue.put, "c")
            await anyio.sleep(1)
            link.pause()
            group.start_soon(victim)
            group.start_soon(taker, queue)
            await anyio.sleep(AWAY)
            group.start_soon(taker, other)
            link.resume()
        while len(set(work.done)) < 3:
            await taker(queue)
        assert results == ["a"] and lost in ([], [("expired", "expired")])
        await all_is_done(queue, store, elsewhere, put=3)
