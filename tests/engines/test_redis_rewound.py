"""A server that comes back as it was some time ago, as a replica does that lacked the last of its primary's words.

What it has forgotten was acknowledged: releases and grants, completions and takings, places and sessions.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from tenure import (
    Barrier,
    LeaseLost,
    Lock,
    ResourcePool,
    ResultUnavailable,
    Semaphore,
    WorkQueue,
    open_store,
)
from tenure.engine import SESSION, Hint, Notice, Reply, Scan
from tenure.store import read_pages

KEEP = """
local kept = {}
for _, name in ipairs(redis.call('KEYS', 'tenure:*')) do
    kept[#kept + 1] = name
    kept[#kept + 1] = redis.call('DUMP', name)
end
return kept
"""
COME_BACK = """
redis.call('FLUSHDB')
for i = 1, #ARGV, 2 do
    redis.call('RESTORE', ARGV[i], 0, ARGV[i + 1])
end
"""
TTL = 3600.0  # long: what comes to light does so by asking


class Past:
    """The server as it was; `come_back()` brings it back, and the stores hear that hints may have been lost."""

    def __init__(self, server, stores):
        self._server = server
        self._stores = stores
        self._dumps = server("EVAL", KEEP, "0")

    async def come_back(self, *stores):
        self._server("EVAL", COME_BACK, "0", *self._dumps)
        await self.tell(*stores or self._stores)

    async def tell(self, *stores):
        for store in stores:
            store._handle.on_hint(Hint(store.process, "", "", Notice.MISSED))
            await anyio.sleep(1)


@pytest.fixture
async def stores(inline_redis, virtual_clock):
    engine = inline_redis(virtual_clock.now)
    async with open_store(engine, ttl=TTL) as one, open_store(engine, ttl=TTL) as other:
        yield one, other


@pytest.fixture
def keep(redis_server, stores):
    return lambda: Past(redis_server, stores)


async def everything(store):
    """What the engine says that the sessions of a store have."""
    found = []
    for session in store._handle.sessions:
        found += (await read_pages(store._handle, Scan(SESSION, session.id))).rows
    return found


@asynccontextmanager
async def lost(reason="gone"):
    with pytest.raises(LeaseLost) as caught:
        yield
    assert caught.value.reason == reason


# ------------------------------------------------------------------------------------------------- what was given back


HOLDS = {
    "lock": lambda store: Lock(store, "x"),
    "semaphore": lambda store: Semaphore(store, "x", 3).hold(2),
    "claim": lambda store: ResourcePool(store, "pool").claim(),
}


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
async def test_what_was_given_back_is_given_back_again(stores, keep, hold):
    one, other = stores
    await ResourcePool(one, "pool").add("the only one")
    async with hold(one):
        past = keep()
    await past.come_back()
    with anyio.fail_after(1):
        async with hold(other):
            pass


async def test_one_that_still_waits_keeps_its_place(stores, keep):
    one, other = stores
    order = []

    async def wait(store, number):
        async with Lock(store, "x"):
            order.append(number)

    async with anyio.create_task_group() as group, Lock(other, "x"):
        for number, store in enumerate((one, other, one)):
            group.start_soon(wait, store, number)
            await anyio.sleep(1)
        await keep().come_back()
    assert order == [0, 1, 2]


async def test_a_place_that_was_left_is_left_again(stores, keep):
    one, other = stores
    async with Lock(other, "x"):
        with anyio.move_on_after(2):
            async with anyio.create_task_group() as group:
                group.start_soon(Lock(one, "x").__aenter__)
                await anyio.sleep(1)
                past = keep()
        await past.come_back()
        assert await everything(one) == []


async def test_an_arrival_that_was_undone_is_undone_again(stores, keep):
    one, _ = stores
    barrier = Barrier(one, "b", 2, on_departure="drop")
    with anyio.move_on_after(2):
        async with anyio.create_task_group() as group:
            group.start_soon(barrier.wait)
            await anyio.sleep(1)
            past = keep()
    await past.come_back()
    assert (await barrier.statistics()).waiting == 0


# --------------------------------------------------------------------------------------------------------- what was got


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
async def test_a_grant_that_is_forgotten_is_lost_at_once(stores, keep, hold):
    one, _ = stores
    await ResourcePool(one, "pool").add("the only one")
    async with Lock(one, "another") as another:
        past = keep()
        with anyio.fail_after(5):
            async with lost(), hold(one):
                await past.come_back()
                await anyio.sleep_forever()
        another.check()


async def test_what_lasted_is_not_lost(stores, keep):
    one, other = stores
    async with Lock(one, "x") as lease, Lock(other, "y") as another:
        await keep().come_back()
        lease.check()
        another.check()
        assert (
            await other._handle.sessions.current(TTL).dispatcher.call(Scan(SESSION, "nobody's"))
            is Reply.UNKNOWN
        )


async def test_a_session_that_is_forgotten_is_lost_at_once(stores, keep):
    one, _ = stores
    past = keep()
    with anyio.fail_after(5):
        async with lost(), Lock(one, "x"):
            await past.come_back()
            await anyio.sleep_forever()
        async with Lock(one, "x"):
            pass


async def test_a_claim_that_became_another_one_is_lost(stores, keep):
    """Its place came back, and before its process was connected another one gave back another resource."""
    one, other = stores
    held, leave = {}, {name: anyio.Event() for name in ("r1", "r2", "mine")}
    pools = [ResourcePool(store, "pool") for store in stores]

    async def lend(name):
        async with pools[1].claim(where={"name": name}):
            await leave[name].wait()

    async def claim():
        with suppress(LeaseLost):
            async with pools[0].claim() as held["mine"]:
                await leave["mine"].wait()

    async with anyio.create_task_group() as group:
        for name in ("r1", "r2"):
            await pools[0].add(name, {"name": name})
            group.start_soon(lend, name)
        await anyio.sleep(1)
        group.start_soon(claim)
        await anyio.sleep(1)
        past = keep()
        for name in ("r2", "r1"):
            leave[name].set()
            await anyio.sleep(1)
        assert held["mine"].resource == "r2"
        await past.come_back(other, one)
        assert held["mine"].lost == "gone"
        async with pools[1].claim(timeout=1), pools[1].claim(timeout=1):
            pass


# --------------------------------------------------------------------------------------------------------------- tasks


async def test_a_task_whose_completion_is_forgotten_is_taken_again(stores, keep):
    one, other = stores
    queue = WorkQueue(one, "jobs")
    await queue.put("work")
    async with queue.take() as task:
        past = keep()
    await past.come_back()
    with anyio.fail_after(5):
        async with WorkQueue(other, "jobs").take() as again:
            assert (again.id, again.attempt) == (task.id, 1)


async def test_a_taking_that_is_forgotten_is_lost(stores, keep):
    one, _ = stores
    queue = WorkQueue(one, "jobs")
    async with Lock(one, "opens the session"):
        await queue.put("work")
        past = keep()
        with anyio.fail_after(5):
            async with lost(), queue.take():
                await past.come_back()
                await anyio.sleep_forever()
        async with queue.take():
            pass


@pytest.mark.parametrize("heard", [True, False])
async def test_an_idle_taker_that_has_gone_is_not_counted_on(stores, keep, heard):
    one, _ = stores
    got = []

    async def take(queue):
        async with queue.take() as task:
            got.append(task.payload)

    queues = [WorkQueue(store, "jobs") for store in stores]
    async with anyio.create_task_group() as group:
        group.start_soon(take, queues[0])
        await anyio.sleep(1)
        past = keep()
        await queues[1].put("a")
        await anyio.sleep(1)
        if not heard:
            one._handle.unlisten("tenure:queue:jobs", one._handle._listeners["tenure:queue:jobs"])
        await past.come_back()
        assert await everything(one) == []
        group.start_soon(take, queues[1])
        await anyio.sleep(1)
        await queues[1].put("b")
        await anyio.sleep(1)
    assert got == ["a", "b"]


async def test_a_producer_that_has_gone_is_sent_away_again(stores, keep):
    one, _ = stores
    small = [WorkQueue(store, "jobs", max_size=1) for store in stores]
    await small[0].put("first")
    with anyio.move_on_after(2):
        async with anyio.create_task_group() as group:
            group.start_soon(small[0].put, "never")
            await anyio.sleep(1)
            past = keep()
    await past.come_back()
    assert all(found.family != "producers" for found in await everything(one))
    async with small[1].take():
        pass
    with anyio.fail_after(5):
        await small[1].put("second")


async def test_one_that_waits_for_tasks_and_for_room_goes_on_waiting(stores, keep):
    one, other = stores
    got = []

    async def work(queue):
        while True:
            async with queue.take() as task:
                got.append(task.payload)

    async with anyio.create_task_group() as group:
        idle, busy = WorkQueue(one, "idle"), WorkQueue(one, "busy", max_size=1)
        group.start_soon(work, idle)
        await busy.put(0)
        group.start_soon(busy.put, 1)
        await anyio.sleep(1)
        await keep().come_back()
        await WorkQueue(other, "idle").put("for one")
        async with WorkQueue(other, "busy", max_size=1).take():
            pass
        async with WorkQueue(other, "busy", max_size=1).take() as task:
            assert task.payload == 1
        assert got == ["for one"]
        group.cancel_scope.cancel()


# ------------------------------------------------------------------------------------------------------ what was put


async def test_whoever_waits_for_a_task_that_was_forgotten_gets_no_other_ones_result(stores, keep):
    one, other = stores
    async with anyio.create_task_group() as group:
        past = keep()
        mine = await WorkQueue(one, "jobs").put("mine")
        group.start_soon(is_unavailable, WorkQueue(one, "jobs"), mine)
        await anyio.sleep(1)
        await past.come_back(other)
        theirs = await WorkQueue(other, "jobs").put("theirs")
        async with WorkQueue(other, "jobs").take() as task:
            task.set_result(task.payload)
        await anyio.sleep(1)
        await past.tell(one)
    assert await WorkQueue(other, "jobs").result(theirs) == "theirs"
    await is_unavailable(WorkQueue(one, "jobs"), mine)


async def is_unavailable(queue, task_id):
    with pytest.raises(ResultUnavailable):
        await queue.result(task_id)
