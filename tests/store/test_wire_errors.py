"""An engine that raises for a whole batch, which the contract does not allow, fails the batch and not the store."""

from __future__ import annotations

import pytest

import tenure
from tenure.engine import Ping
from tenure.engines.memory import MemoryEngine


class Rude(MemoryEngine):
    immediate = False

    async def execute(self, operations):
        if any(isinstance(operation, Ping) for operation in operations):
            raise tenure.EngineError("no pings")
        return await super().execute(operations)


async def test_the_store_lives_on():
    async with tenure.open_store(Rude()) as store:
        with pytest.raises(tenure.EngineError, match="no pings"):
            await store.ping()
        async with tenure.Lock(store, "report") as lease:
            lease.check()
