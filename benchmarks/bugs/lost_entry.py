"""async-lru: a call that was given up takes the entry of the call after it out of the cache."""

from __future__ import annotations

import asyncio

from async_lru import alru_cache

from tenure.testing import Machine, rule


class _Cache(Machine):
    tasks = 2

    def __init__(self) -> None:
        self.calls = 0
        self.get = alru_cache(self.call)

    async def call(self) -> None:
        self.calls += 1
        await asyncio.sleep(1)

    @rule()
    async def ask(self) -> None:
        await self.get()
        before = self.calls
        await self.get()
        assert self.calls == before, "what was just returned is not in the cache"


what_is_cached_is_not_computed_again = _Cache.scenario
