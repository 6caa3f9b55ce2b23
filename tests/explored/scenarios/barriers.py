"""The barrier across processes."""

from __future__ import annotations

from collections import defaultdict

import anyio
import anyio.lowlevel
from explored.catalogue import on_a_wire, on_every_engine
from explored.scenarios.outages import LATE
from explored.world import at_rest

from benchmarks.soak.referees import History, agreement
from tenure import BarrierBroken
from tenure.shared.holds._barrier import Barrier
from tenure.testing import cancellable, newcomer

TTL = 30.0


@on_every_engine(
    *("shared.Barrier.wait", "shared.Barrier.abort", "shared.Barrier.reset", "shared.Barrier.statistics"),
    "store.Acquisition.answer",
)
async def all_parties_over_stores_go_on_or_none(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(TTL)
        await elsewhere._handle.session(TTL)
        history, barrier, other = History(), Barrier(store, "x", 3), Barrier(elsewhere, "x", 3)
        left, natively = [], []

        async def party(barrier, turn, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            try:
                with history.arriving("x", turn=turn) as call:
                    generation, place = await barrier.wait()
                    call.tell(generation=generation, place=place)
            except BarrierBroken:
                pass

        async def victim():
            with cancellable() as scope:
                await party(barrier, 0, nothing)  # so it arrives, cancelled or not
            if scope.cancelled_caught:
                (natively if scope.cancelled_natively else left).append("victim")

        async with world.group() as group:
            group.start_soon(party, barrier, 0)
            group.start_soon(victim)
            group.start_soon(party, other, 0, newcomer)
        first = agreement(history.events(), 3)
        if left and not world.faults:  # who is cancelled by a scope and raises did break it
            assert first.passed == 0 and first.broken == 1
        if not (left or natively):
            assert first.passed + first.broken == 1
        assert (await barrier.statistics()).broken == bool(first.broken)

        await other.abort()
        try:
            await barrier.wait()
        except BarrierBroken:
            pass
        else:
            raise AssertionError("it was aborted, and let a party pass")
        await barrier.reset()
        async with world.group() as group:
            group.start_soon(party, barrier, 1)
            group.start_soon(party, other, 1)
            group.start_soon(party, other, 1)
        assert agreement(history.events(), 3).passed == first.passed + 1
        now = await barrier.statistics()
        assert (now.waiting, now.broken) == (0, False)
        await all_withdrawn(store, elsewhere)


@on_every_engine("shared.Barrier.wait", "store.PendingRelease.wait")
async def who_is_dropped_holds_nobody_up(world):
    async with world.open() as store, world.open() as elsewhere:
        await store._handle.session(TTL)
        await elsewhere._handle.session(TTL)
        barrier = Barrier(store, "x", 2, on_departure="drop")
        other = Barrier(elsewhere, "x", 2, on_departure="drop")
        passed, places, ended, excused = [], defaultdict(list), [], []

        async def meet(barrier):
            generation, place = await barrier.wait()
            places[generation].append(place)

        async def party(barrier, name, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            await meet(barrier)
            passed.append(name)

        async def victim():
            with cancellable() as scope:
                await meet(barrier)
            excused.extend(["victim"] * bool(scope.cancelled_natively))
            ended.append("victim")

        async def filler():
            """Waits with whoever is left, and gives up again and again."""
            while not (ended and {"a", "b"} <= set(passed)):
                with anyio.move_on_after(1):
                    await meet(other)

        async with world.group() as group:
            group.start_soon(party, barrier, "a")
            group.start_soon(victim)
            group.start_soon(party, other, "b", newcomer)
            group.start_soon(filler)
        for generation in places.values():
            assert len(generation) == len(set(generation)) and set(generation) <= {0, 1}
            # natively cancelled, or without the engine's answer, one may raise that was let go with the other
            assert len(generation) == 2 or excused or world.faults
        assert (await barrier.statistics()).waiting == 0
        await all_withdrawn(store, elsewhere)


@on_a_wire("shared.Barrier.wait", "store.PendingRelease.wait")
async def giving_up_at_a_barrier_waits_for_the_engine_but_not_for_long(world):
    async with world.open(settle_timeout=2) as store:
        await store._handle.session(TTL)
        link, barrier = world.links[0], Barrier(store, "x", 2)

        async def give_up(away):
            """Give up a second after the arrival, and wait in its shield for an engine that is away for so long."""
            async with anyio.create_task_group() as group:
                with anyio.CancelScope() as scope:
                    group.start_soon(cut, away, scope)
                    await barrier.wait()
                return round(anyio.current_time() - scope.deadline + 1, 6)

        async def cut(away, scope):
            while not (await barrier.statistics()).waiting:  # it ends with the party, which may never arrive
                await anyio.sleep(0.01)  # else no time passes, and a link that was cut is not opened again
            with anyio.CancelScope(shield=True):
                link.pause(before_effect=True)
                scope.deadline = anyio.current_time() + 1
                await anyio.sleep(away)
                link.resume()

        for away, left_at in ((2, 2), (8, 3)):
            assert left_at <= await give_up(away) <= left_at + LATE
            await barrier.reset()
        with cancellable(), anyio.move_on_after(1):
            await barrier.wait()
        await all_withdrawn(store)


async def all_withdrawn(*stores):
    """Nobody waits, and no outcome is kept."""
    for store in stores:
        await store.ping()  # a withdrawal leaves when its arrival has been answered
    await at_rest(*stores)


async def nothing():
    """No checkpoint."""
