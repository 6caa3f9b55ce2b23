"""Schedules that several processes run: each tick is put once."""

from __future__ import annotations

from datetime import datetime

import anyio
from explored.catalogue import on_a_wire, on_every_engine
from explored.world import at_rest

from tenure import Schedule, WorkQueue
from tenure.engine import Put
from tenure.engines.memory import MemoryEngine
from tenure.testing import cancellable

EVERY = 7.0
AWAY = 40.0
"""Seconds, more than a ttl."""


async def each_tick_once(queue, least):
    """The ticks on record are one after the other, none missing and none twice, and so many at least."""
    tasks = (await queue.tasks("waiting").page(limit=1000)).records
    ticks = [task.meta["scheduled_for"] for task in tasks if task.meta["schedule"] == "often"]
    times = [datetime.fromisoformat(tick).timestamp() for tick in ticks]
    assert times == [times[0] + EVERY * n for n in range(len(times))], times
    assert len(times) >= least, times


def from_nought(world):
    """Memory's time begins with that of the scenario, so that a seed determines all."""
    if isinstance(world.engine, MemoryEngine):
        world.engine._state._epoch = 0.0


def schedule(store):
    return Schedule(WorkQueue(store, "q"), "often", every=EVERY, missed="all")


async def until_put(of, count):
    """Wait until so many ticks are on record."""
    while (await of.queue.statistics()).put < count:
        await anyio.sleep(EVERY)


@on_every_engine(
    "shared.Schedule.run", "shared.Schedule.drain", "shared.Schedule.next", "shared.Schedule.run_now"
)
async def several_run_a_schedule(world):
    from_nought(world)
    async with world.open() as store, world.open() as elsewhere:
        steady, other, victim = schedule(store), schedule(elsewhere), schedule(elsewhere)
        by_hand = Schedule(steady.queue, "by hand", every=3600)

        async def look():
            with cancellable():
                await by_hand.run_now()
                assert await by_hand.next() > datetime.fromtimestamp(0, (await steady.next()).tzinfo)

        async def run():
            with cancellable():
                await victim.run()

        async with anyio.create_task_group() as group:
            group.start_soon(steady.run)
            group.start_soon(other.run)
            group.start_soon(run)
            group.start_soon(look)
            await until_put(steady, 4)
            for one in (steady, other, victim):
                await one.drain()
        await each_tick_once(steady.queue, 3)
        await at_rest(store, elsewhere)


@on_every_engine(
    "shared.Schedules.set",
    "shared.Schedules.next",
    "shared.Schedules.pause",
    "shared.Schedules.resume",
    "shared.Schedules.remove",
    "shared.Schedules.run_now",
    "shared.Schedules.run",
    "shared.Schedules.drain",
    "store.read_counts",
)
async def several_run_a_schedule_of_the_store(world):
    from_nought(world)
    async with world.open() as store, world.open() as elsewhere:
        steady, other = WorkQueue(store, "q").schedules, WorkQueue(elsewhere, "q").schedules
        victim = WorkQueue(elsewhere, "q").schedules

        async def meddle():
            with cancellable():
                await other.set("more", every=EVERY, payload=1)
                await other.pause("more")
                await other.resume("more")
                await other.run_now("more")
                await other.list().page()
                await other.next("more")
                await other.remove("more")

        async def run():
            with cancellable():
                await victim.run()

        async with anyio.create_task_group() as group:
            await steady.set("often", every=EVERY, missed="all")
            group.start_soon(steady.run)
            group.start_soon(other.run)
            group.start_soon(run)
            group.start_soon(meddle)
            while not await _ticks(steady.queue, 4):
                await anyio.sleep(EVERY)
            assert await steady.pause("often")
            put = len((await steady.queue.tasks("waiting").page(limit=1000)).records)
            await anyio.sleep(3 * EVERY)
            assert not await _ticks(steady.queue, put + 1), "it is paused"
            for one in (steady, other, victim):
                await one.drain()
        await each_tick_once(steady.queue, 3)
        await at_rest(store, elsewhere)


async def _ticks(queue, count):
    tasks = (await queue.tasks("waiting").page(limit=1000)).records
    return sum(task.meta["schedule"] == "often" for task in tasks) >= count


@on_a_wire("shared.Schedule.run")
async def a_schedule_goes_on_after_its_session_was_lost(world):
    from_nought(world)
    async with world.open() as store, world.open() as elsewhere:
        cut, other = schedule(store), schedule(elsewhere)

        async def run():
            with cancellable():
                await cut.run()

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            group.start_soon(other.run)
            await until_put(other, 1)
            world.links[0].pause(before_effect=True)
            await anyio.sleep(AWAY)
            world.links[0].resume()
            await until_put(other, 8)
            await cut.drain()
            await other.drain()
        await each_tick_once(other.queue, 8)
        await at_rest(store, elsewhere)


@on_a_wire("shared.Schedule.run")
async def a_schedule_whose_put_is_cut_off_puts_no_tick_twice(world):
    """What was put and never answered is on record."""
    from_nought(world)
    async with world.open() as store:
        alone = schedule(store)

        async def run():
            with cancellable():
                await alone.run()

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            for _ in range(2):
                world.links[0].cut_after = (Put,)
                await anyio.sleep(AWAY)
                world.links[0].cut_after = ()  # the put may come later than that
                world.links[0].resume()
                await anyio.sleep(EVERY)
            await alone.drain()
        again = schedule(store)
        async with anyio.create_task_group() as group:
            group.start_soon(again.run)
            await until_put(again, 4)
            await again.drain()
        await each_tick_once(again.queue, 4)
        await at_rest(store)
