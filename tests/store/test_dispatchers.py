"""An engine in lanes: what is away in one does not stop the others."""

from __future__ import annotations

import anyio
import pytest

from tenure import Keep, LeaseLost, Lock, WorkQueue, open_store
from tenure.engine import Acquire, Engine, OpenSession, Ping, RenewSession
from tenure.engines.memory import MemoryEngine
from tenure.errors import StoreUnavailable
from tenure.testing import Fault, FaultyEngine
from tenure.testing._batch_link import BatchLink


class Shards(Engine):
    """A memory engine for each lane, which is told by the last letter of a name; a lane may be away."""

    url = "lanes:"
    shards = 3

    def __init__(self):
        self.engines = [MemoryEngine() for _ in range(self.shards)]
        self.away = set()
        self.log = []

    def link(self):
        return BatchLink(self)

    def shard(self, name):
        return ord(name[-1]) % self.shards

    async def execute(self, operations):
        await anyio.sleep(0.01)
        answers = []
        for operation in operations:
            name = operation.key
            needed = {self.shard(name)} if name else set(range(self.shards))
            if needed & self.away:
                raise StoreUnavailable("away")
            self.log.append((needed, operation))
            answers += [self.engines[shard].apply(operation) for shard in needed][-1:]
        return answers

    async def serve(self, process, deliver, *, task_status):
        async with anyio.create_task_group() as group:
            for engine in self.engines:
                await group.start(engine.serve, process, deliver)
            task_status.started()


@pytest.fixture
def engine():
    return Shards()


@pytest.fixture(params=[lambda engine: engine, FaultyEngine], ids=["", "faulty"])
def link(request, engine):
    """What the store is opened on: the engine, or a faulty one around it, which has its lanes."""
    return request.param(engine)


@pytest.fixture
async def store(link, engine, virtual_clock):
    async with open_store(link, ttl=3) as store:
        yield store
        engine.away.clear()


async def test_each_lane_has_a_session_of_its_own(store, engine):
    for name in "abcabc":
        async with Lock(store, name):
            pass
    opened = [(shards, operation) for shards, operation in engine.log if isinstance(operation, OpenSession)]
    assert sorted(min(shards) for shards, _ in opened) == [0, 1, 2]
    assert all(shards == {engine.shard(operation.key)} for shards, operation in opened)
    assert (await store.statistics()).sessions == 3


async def test_patterns_ask_with_the_session_of_their_lane(store):
    for name in "abc":
        queue = WorkQueue(store, name, keep=Keep(results=60))
        put = await queue.put(1)
        async with queue.take() as task:
            task.set_result(task.payload)
        assert await queue.result(put) == 1
        await queue.join()


async def test_what_is_away_in_one_lane_stops_nothing_in_the_others(store, engine, virtual_clock):
    async with Lock(store, "b") as kept:
        with pytest.raises(LeaseLost, match="expired"):
            async with Lock(store, "a"):
                engine.away = {engine.shard("a")}
                await anyio.sleep(10)
        for _ in range(100):
            async with Lock(store, "c"):
                await anyio.sleep(0.1)
        kept.check()
        assert not (await store.statistics()).available
        engine.away.clear()
        async with Lock(store, "a"):
            pass
        assert (await store.statistics()).available
    renewals = [operation for _, operation in engine.log if isinstance(operation, RenewSession)]
    assert len(renewals) > 20


async def test_a_ping_goes_everywhere_and_holds_nobody_up(store, engine, virtual_clock):
    await store.ping()
    assert ({0, 1, 2}, Ping()) in engine.log
    engine.away = {0}
    with anyio.move_on_after(1) as scope:
        await store.ping()
    assert scope.cancelled_caught
    began = virtual_clock.now()
    async with Lock(store, "a"):
        pass
    assert virtual_clock.now() - began < 0.1


async def test_a_store_closes_while_a_lane_is_away(link, engine, virtual_clock):
    async with open_store(link, ttl=3, settle_timeout=1) as store:
        for name in "abc":
            async with Lock(store, name):
                pass
        engine.away = {0}
    assert virtual_clock.now() < 2


async def test_what_is_slow_in_one_lane_holds_up_nothing_in_the_others(engine, virtual_clock):
    faulty = FaultyEngine(engine, delay=5)
    async with open_store(faulty, ttl=30) as store:
        for name in "ac":
            async with Lock(store, name):
                pass
        faulty.plan(Fault.DELAY, on=Acquire)
        async with anyio.create_task_group() as group:
            group.start_soon(lock, store, "a")
            await virtual_clock.settle()
            began = virtual_clock.now()
            await lock(store, "c")
            assert virtual_clock.now() - began < 1
        assert virtual_clock.now() - began > 5
    assert (faulty.shards, faulty.shard("a"), faulty.suffered) == (3, engine.shard("a"), {Fault.DELAY: 1})


async def lock(store, name):
    async with Lock(store, name):
        pass


def test_around_an_engine_without_lanes_there_is_one():
    faulty = FaultyEngine(MemoryEngine())
    assert (faulty.shards, faulty.shard("a")) == (1, 0)
