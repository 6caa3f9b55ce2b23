"""All processors of one name, seen together through the engine."""

from __future__ import annotations

import anyio
import pytest

import tenure
from tenure import ResourcePool
from tenure.engine import HOLDERS, Scan
from tenure.engines.memory import MemoryEngine
from tenure.processor import Context, Processor
from tenure.testing import FaultyEngine

QUIET = {"workers": 10}


def naps(seconds):
    async def handler(task: tenure.Task, context: Context):
        await anyio.sleep(seconds)

    return handler


async def test_the_fleet_is_all_processes_together(open_store_on, virtual_clock):
    async with open_store_on() as store, open_store_on() as other:
        pool = ResourcePool(store, "keys")
        for i in range(40):
            await pool.add(f"k{i}")
        async with (
            Processor(store, "p", naps(1), workers=5, claims=pool) as here,
            Processor(other, "p", naps(9), claims=pool, **QUIET) as there,
        ):
            await here.submit_many(range(60))
            await anyio.sleep(5.5)
            at_work = await there.fleet()
            await here.join()
            await anyio.sleep(6)
            fleet = await here.fleet()
            assert {m.process: m.workers for m in fleet.members} == {store.process: 5, other.process: 10}
            assert fleet.latency.running.count == 60
            assert fleet.latency.running.p50 == pytest.approx(1, rel=0.02)
            assert fleet.latency.running.p99 == pytest.approx(9, rel=0.02)
            assert fleet.queues[None].done == 60 and fleet.workers == 15
            assert fleet.throughput == pytest.approx(sum(m.throughput for m in fleet.members))
        assert at_work.claims.claimed == 15 and 10 <= at_work.busy <= 15


async def test_a_process_that_ends_or_dies_leaves_the_fleet(virtual_clock):
    engine = MemoryEngine()
    dying = FaultyEngine(engine)
    async with tenure.open_store(engine, ttl=3.0) as store:
        async with Processor(store, "p", naps(0), **QUIET) as processor:
            async with tenure.open_store(engine, ttl=3.0) as other:
                async with Processor(other, "p", naps(0), **QUIET):
                    await anyio.sleep(1)
                    assert len((await processor.fleet()).members) == 2
            assert len((await processor.fleet()).members) == 1
            async with tenure.open_store(dying, ttl=3.0) as other:
                async with Processor(other, "p", naps(0), **QUIET):
                    await anyio.sleep(1)
                    assert len((await processor.fleet()).members) == 2
                    dying.pause()
                    await anyio.sleep(5)
                    assert len((await processor.fleet()).members) == 1
                    dying.resume()
                    await anyio.sleep(5)
                    assert len((await processor.fleet()).members) == 2
        holdings = await store._handle.call(Scan(HOLDERS, store._handle.key("processor", "p")))
        assert holdings.holders == ()
