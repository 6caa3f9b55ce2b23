"""The locks of keys of one process."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from explored.catalogue import scenario
from explored.referees import Fair
from explored.world import pause

from tenure import AcquireTimeout
from tenure.local import KeyedLock
from tenure.testing import Machine, at_rest, rule

KEYS = ("a", "b")


@scenario("local.KeyedLock.hold")
class FairKeyedLock(Machine):
    def __init__(self):
        self.lock, self.fair = KeyedLock(), defaultdict(Fair)

    async def use(self, key, timeout=None, *, steady=False):
        place = self.fair[key].came(steady=steady)
        async with self.lock.hold(key, timeout=timeout):
            with self.fair[key].inside(place):
                await pause()

    @rule(cancel=False, timeout=(0.01, 0))
    async def wait_a_little(self, timeout):
        with suppress(AcquireTimeout):
            await self.use("a", timeout)

    @rule(key=KEYS)
    async def give_up(self, key):
        await self.use(key)

    @rule(cancel=False, key=KEYS)
    async def stay(self, key):
        await self.use(key, steady=True)

    @at_rest
    async def all_keys_are_free(self):
        state = self.lock.statistics()
        assert (state.keys, state.tasks_waiting, self.lock._lines) == (0, 0, {}), state
        for key in KEYS:
            async with self.lock.hold(key, timeout=0):
                pass
