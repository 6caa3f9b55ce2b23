"""The bulkhead."""

from __future__ import annotations

from contextlib import suppress

from explored.catalogue import scenario
from explored.referees import Fair
from explored.world import pause

from tenure import AcquireTimeout, BulkheadFull
from tenure.local import Bulkhead
from tenure.testing import Machine, at_rest, rule


@scenario("local.Bulkhead.enter")
class FairBulkhead(Machine):
    def __init__(self):
        self.bulkhead, self.fair = Bulkhead(2), Fair(2)

    async def use(self, timeout=None, *, steady=False):
        place = self.fair.came(steady=steady)
        async with self.bulkhead.enter(timeout=timeout):
            with self.fair.inside(place):
                await pause()

    @rule(cancel=False, timeout=(0.01, 0))
    async def wait_a_little(self, timeout):
        with suppress(AcquireTimeout):
            await self.use(timeout)

    @rule()
    async def give_up(self):
        await self.use()

    @rule(cancel=False)
    async def stay(self):
        await self.use(steady=True)

    @at_rest
    async def all_of_it_is_there(self):
        state = self.bulkhead.statistics()
        assert (state.in_use, state.tasks_waiting) == (0, 0), state
        async with self.bulkhead.enter(timeout=0), self.bulkhead.enter(timeout=0):
            pass


@scenario("local.Bulkhead.enter")
class FullBulkhead(Machine):
    """It refuses, and shares what it has."""

    def __init__(self):
        self.bulkhead, self.fair = Bulkhead(2, max_waiting=1, shares={"a": 2, "b": 1}), Fair(2)
        self.refused = set()

    @rule(kind=("a", "b"))
    async def enter(self, kind):
        try:
            async with self.bulkhead.enter(kind):
                with self.fair.inside(self.fair.came(steady=False)):
                    await pause()
        except BulkheadFull as error:
            self.refused.add(error.waiting)

    @at_rest
    def nothing_is_left(self):
        state = self.bulkhead.statistics()
        assert (state.in_use, state.tasks_waiting) == (0, 0), state
        assert self.refused <= {1}
