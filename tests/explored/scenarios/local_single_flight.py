"""One call for all who ask for the same."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from explored.catalogue import scenario
from explored.world import pause

from tenure.local import SingleFlight
from tenure.testing import cancellable, newcomer


class Calls:
    """What is called: one at a time for each key."""

    def __init__(self):
        self.inside = set()
        self.begun = 0
        self.returned = {}

    async def __call__(self, key):
        assert key not in self.inside, "two calls for one key"
        self.inside.add(key)
        self.begun += 1
        try:
            await pause()
            await pause()
            self.returned[key] = anyio.current_time()
            return key, object()
        finally:
            self.inside.discard(key)


async def all_get_what_they_asked_for(flight):
    calls, results = Calls(), []

    async def caller(key, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        results.append((key, await flight.run(key, calls, key)))

    async def victim(key):
        with cancellable():
            await caller(key)

    async def alone():
        await victim("c")
        left = anyio.current_time()
        await anyio.sleep(1)
        assert calls.returned.get("c", 0) <= left, "nobody waited for it, and it went on"

    async with anyio.create_task_group() as group:
        group.start_soon(victim, "a")
        group.start_soon(caller, "a")
        group.start_soon(victim, "b")
        group.start_soon(caller, "b")
        group.start_soon(alone)
        group.start_soon(caller, "a", newcomer)
    assert len(results) >= 3 and all(asked == key for asked, (key, _) in results)
    assert len({thing for _, (_, thing) in results}) <= calls.begun
    assert not calls.inside
    state = flight.statistics()
    assert (state.flights, state.tasks_waiting) == (0, 0)


@scenario("local.SingleFlight.run")
async def a_call_goes_on_while_anybody_waits_for_it():
    await all_get_what_they_asked_for(SingleFlight())


@scenario("local.SingleFlight.run", "local.SingleFlight.__asynccontextmanager__")
async def calls_run_in_the_block_of_their_flight():
    async with SingleFlight() as flight:
        await all_get_what_they_asked_for(flight)
    calls = Calls()
    with cancellable():
        async with SingleFlight() as flight, anyio.create_task_group() as group:
            group.start_soon(flight.run, "a", calls, "a")
            group.start_soon(flight.run, "a", calls, "a")
    assert not calls.inside
