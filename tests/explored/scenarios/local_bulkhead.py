"""The bulkhead."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from explored.catalogue import scenario
from explored.referees import Fair
from explored.world import pause

from tenure import AcquireTimeout, BulkheadFull
from tenure.local import Bulkhead
from tenure.testing import cancellable, newcomer


def at_rest(bulkhead):
    state = bulkhead.statistics()
    assert (state.in_use, state.tasks_waiting) == (0, 0), state


@scenario("local.Bulkhead.enter")
async def a_bulkhead_goes_down_its_line():
    bulkhead, fair, gave_up = Bulkhead(2), Fair(2), []

    async def caller(steady=True, timeout=None, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        place = fair.came(steady=steady)
        async with bulkhead.enter(timeout=timeout):
            with fair.inside(place):
                await pause()

    async def impatient():
        try:
            await caller(steady=False, timeout=0.01)
        except AcquireTimeout:
            gave_up.append(None)

    async def victim():
        with cancellable():
            await caller(steady=False)

    async with anyio.create_task_group() as group:
        for task in (caller, victim, caller, impatient, victim):
            group.start_soon(task)
        group.start_soon(caller, True, None, newcomer)
    assert fair.served + len(gave_up) >= 4
    at_rest(bulkhead)
    async with anyio.create_task_group() as group:  # all of it is there
        for _ in range(2):
            group.start_soon(caller, False, 0)


@scenario("local.Bulkhead.enter")
async def a_full_bulkhead_refuses_and_shares_what_it_has():
    bulkhead = Bulkhead(2, max_waiting=1, shares={"a": 2, "b": 1})
    served, refused, inside = [], [], []

    async def caller(kind, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        try:
            async with bulkhead.enter(kind):
                inside.append(kind)
                assert len(inside) <= 2
                try:
                    await pause()
                finally:
                    inside.remove(kind)
            served.append(kind)
        except BulkheadFull as error:
            refused.append(error.waiting)

    async def victim(kind):
        with cancellable():
            await caller(kind)

    async with anyio.create_task_group() as group:
        group.start_soon(caller, "a")
        group.start_soon(victim, "a")
        group.start_soon(caller, "b")
        group.start_soon(victim, "b")
        group.start_soon(caller, "a")
        group.start_soon(caller, "b", newcomer)
    assert len(served) + len(refused) >= 4 and set(refused) <= {1}
    at_rest(bulkhead)
