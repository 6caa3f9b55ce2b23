from __future__ import annotations

import anyio
import pytest

from tenure import AcquireTimeout, open_store
from tenure.engine import Claim, Scan
from tenure.engines.memory import MemoryEngine
from tenure.shared.holds._resource_pool import ResourcePool

KEY = "tenure:pool:keys"


@pytest.fixture
async def pool(store):
    pool = ResourcePool(store, "keys")
    await pool.add("a", {"tier": "paid"})
    return pool


def unmatched(caplog):
    return [record.message for record in caplog.records if "claim.unmatched" in record.message]


@pytest.mark.parametrize("timeout", [0.3, 5])
async def test_a_timeout_says_that_no_resource_matches(pool, virtual_clock, timeout):
    with pytest.raises(AcquireTimeout) as caught:
        async with pool.claim(timeout, where={"teir": "paid"}):
            pytest.fail("it was claimed")
    why = 'when the claim read the pool, no resource matched where teir="paid"'
    assert str(caught.value) == f"{KEY}: not acquired within {timeout:g} s; {why}"
    assert caught.value.reason == why


async def test_a_claimer_without_a_timeout_is_warned_of_once(pool, virtual_clock, caplog):
    with anyio.move_on_after(60):
        async with pool.claim(where={"tier": "free"}):
            pytest.fail("it was claimed")
    assert unmatched(caplog) == [
        f'claim.unmatched key={KEY} reason=when the claim read the pool, no resource matched where tier="free"'
    ]


async def test_a_resource_that_is_claimed_matches(pool, virtual_clock, caplog):
    async with pool.claim():
        with pytest.raises(AcquireTimeout, match="it was first in line"):
            async with pool.claim(5, where={"tier": "paid"}):
                pytest.fail("it was claimed")
    assert unmatched(caplog) == []


class Recorded(MemoryEngine):
    def __init__(self):
        super().__init__()
        self.log = []

    def submit(self, operation, on_answer):
        self.log.append(type(operation))
        super().submit(operation, on_answer)


async def test_a_claim_that_waits_shortly_reads_nothing(virtual_clock):
    engine = Recorded()
    async with open_store(engine) as store:
        pool = ResourcePool(store, "keys")
        await pool.add("a", {"tier": "paid"})
        async with anyio.create_task_group() as group:

            async def hold():
                async with pool.claim():
                    await anyio.sleep(0.5)

            group.start_soon(hold)
            await anyio.sleep(0.1)
            async with pool.claim(where={"tier": "paid"}):
                await anyio.sleep(5)
    assert Claim in engine.log and Scan not in engine.log


async def test_a_large_pool_is_read_in_part(store, virtual_clock, caplog):
    pool = ResourcePool(store, "keys")
    for number in range(1_030):
        await pool.add(f"{number:04}", {"number": number})
    for where, messages in (({"number": 1_029}, 0), ({"number": 2_000}, 0)):
        with anyio.move_on_after(5):
            async with pool.claim(where=where):
                pass
        assert len(unmatched(caplog)) == messages
