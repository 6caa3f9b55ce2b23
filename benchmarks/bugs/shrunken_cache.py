"""anyio's lru_cache: the entry that a caller waits for may be gone, and a call that fails keeps its room for ever."""

from __future__ import annotations

import anyio
from anyio.functools import lru_cache

from tenure.testing import Machine, at_rest, rule


class _Cache(Machine):
    tasks = 3

    def __init__(self) -> None:
        self.calls: list[int] = []

        @lru_cache(maxsize=2)
        async def get(key: int) -> int:
            self.calls.append(key)
            await anyio.sleep(1)
            return key

        self.get = get

    @rule(key=(1, 2, 3))
    async def ask(self, key: int) -> None:
        assert await self.get(key) == key


class _Roomy(_Cache):
    tasks = 1

    @at_rest
    async def two_values_have_room(self) -> None:
        for key in (1, 2):
            await self.get(key)
        self.calls.clear()
        for key in (1, 2):
            await self.get(key)
        assert not self.calls, f"{self.calls} were called again, and the cache has room for two"


every_call_is_answered = _Cache.scenario
the_room_stays = _Roomy.scenario
