"""The barrier of one process."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from explored.catalogue import scenario

from tenure import BarrierBroken
from tenure.local import Barrier
from tenure.testing import cancellable, newcomer


@scenario("local.Barrier.wait")
async def a_barrier_lets_all_go_on_or_none():
    barrier, places, broken, cancelled = Barrier(3), [], [], []

    async def party(arrival=None):
        if arrival is not None:
            await arrival()
        try:
            places.append(await barrier.wait())
        except BarrierBroken:
            broken.append(barrier.broken)

    async def victim():
        with cancellable() as scope:
            await party()  # which comes to the barrier, cancelled or not
        cancelled.append(scope.cancelled_caught)

    async with anyio.create_task_group() as group:
        group.start_soon(party)
        group.start_soon(victim)
        group.start_soon(party, newcomer)
    # native cancellations can hit one that was let go with the others
    assert len(places) + sum(cancelled) == 3 or (places, broken) == ([], [True, True])
    assert len(set(places)) == len(places) and barrier.broken == bool(broken)
    barrier.reset()
    places.clear()
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(party)
    assert sorted(places) == [0, 1, 2] and barrier.n_waiting == 0


@scenario("local.Barrier.__aenter__", "local.Barrier.__aexit__")
async def a_barrier_that_drops_who_leaves_waits_for_another():
    barrier, passed, ended = Barrier(2, on_departure="drop"), [], []

    async def party(name, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        async with barrier:
            passed.append(name)

    async def victim():
        with cancellable():
            await party("victim")
        ended.append("victim")

    async def filler():
        """Waits with whoever is left, and gives up again and again."""
        while not (ended and {"a", "b"} <= set(passed)):
            with anyio.move_on_after(1):
                await barrier.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(party, "a")
        group.start_soon(victim)
        group.start_soon(party, "b", newcomer)
        group.start_soon(filler)
    assert {"a", "b"} <= set(passed) and barrier.n_waiting == 0 and not barrier.broken
