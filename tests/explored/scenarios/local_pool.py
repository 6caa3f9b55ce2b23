"""Pools: no slot is lost, and nothing is closed while it is lent."""

from __future__ import annotations

from contextlib import suppress

import anyio
import anyio.lowlevel
from explored.catalogue import scenario
from local.pool_world import Works

from tenure import BulkheadFull, PoolClosed
from tenure.local import KeyedPool, Pool
from tenure.testing import cancellable, newcomer


async def all_can_be_lent(acquire, size):
    """At once, that is: no slot is lost."""
    everybody, lent = anyio.Event(), []

    async def borrow(number):
        async with acquire(number):
            lent.append(number)
            if len(lent) == size:
                everybody.set()
            await everybody.wait()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for number in range(size):
                group.start_soon(borrow, number)


@scenario("local.Pool.acquire", "local.Pool.__asynccontextmanager__")
async def a_pool_loses_no_slot():
    works = Works(create=0.02, check=0.02, close=0.02, reset=0.02)
    pool = Pool(
        works.create,
        close=works.close,
        check=works.check,
        reset=works.reset,
        max_size=2,
        check_after_idle=0,
        check_every=0.05,
    )

    async def borrower(arrival=anyio.lowlevel.checkpoint):
        await arrival()
        await works.use(pool.acquire(), 0.01)

    async def victim():
        with cancellable():
            await borrower()

    async with pool:
        async with anyio.create_task_group() as group:
            for task in (borrower, victim, victim, borrower):
                group.start_soon(task)
            group.start_soon(borrower, newcomer)
        await all_can_be_lent(lambda _: pool.acquire(), 2)
        assert pool.statistics().tasks_waiting == 0 and works.most_open <= 2
    assert works.open == [] and works.creating == 0


@scenario("local.Pool.drain", "local.Pool.__asynccontextmanager__")
async def a_pool_that_is_drained_or_cancelled_closes_everything():
    works, served, refused = Works(create=0.02, close=0.02), [], []
    pool = Pool(works.create, close=works.close, max_size=2)

    async def borrower(arrival=anyio.lowlevel.checkpoint):
        await arrival()
        try:
            served.append(await works.use(pool.acquire(), 0.03))
        except PoolClosed:
            refused.append(None)

    async def drainer():
        await anyio.sleep(0.03)
        with cancellable():
            await pool.drain()
            assert works.open == []

    with cancellable() as scope:
        async with pool:
            async with anyio.create_task_group() as group:
                for task in (borrower, borrower, borrower, drainer):
                    group.start_soon(task)
                group.start_soon(borrower, newcomer)
            assert len(served) + len(refused) == 4
    # one who is cancelled natively does not wait until it is done
    assert works.open == [] or scope.cancelled_caught


@scenario("local.KeyedPool.acquire", "local.KeyedPool.__asynccontextmanager__")
async def keys_compete_for_slots_and_lose_none():
    works = Works(create=0.02, check=0.02, close=0.02)
    pool = KeyedPool(works.create, close=works.close, check=works.check, max_per_key=1, max_total=2)

    async def borrower(key, exclusive=True, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        await works.use(pool.acquire(key, exclusive=exclusive), 0.01, share=not exclusive)

    async def victim(key, exclusive=True):
        with cancellable():
            await borrower(key, exclusive)

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(borrower, "a")
            group.start_soon(victim, "b")
            group.start_soon(victim, "c", False)
            group.start_soon(borrower, "a", False)
            group.start_soon(borrower, "d", True, newcomer)
        await all_can_be_lent(pool.acquire, 2)
        state = pool.statistics()
        assert (state.lent, state.tasks_waiting) == (0, 0) and works.most_open <= 2
        await anyio.sleep(1)
        assert pool.statistics().keys == 2, "those for which nobody waits are forgotten"
    assert works.open == [] and works.creating == 0 and pool.statistics().keys == 0


@scenario("local.KeyedPool.drain")
async def a_keyed_pool_that_is_drained_closes_everything():
    works, ended = Works(create=0.02, close=0.02), []
    pool = KeyedPool(works.create, close=works.close, max_per_key=1)

    async def borrower(key, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        with suppress(PoolClosed):
            await works.use(pool.acquire(key), 0.03)
        ended.append(key)

    async def victim(key):
        with cancellable():
            await borrower(key)

    async def drainer():
        await anyio.sleep(0.03)
        with cancellable():
            await pool.drain()
            assert works.open == []

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(borrower, "a")
            group.start_soon(victim, "a")
            group.start_soon(borrower, "b")
            group.start_soon(drainer)
            group.start_soon(borrower, "a", newcomer)
        assert len(ended) >= 3
    assert works.open == [] and pool.statistics().keys == 0


@scenario("local.Pool.acquire")
async def a_pool_that_breaks_serves_or_tells():
    """Creations and checks fail; everybody gets a thing or an error, in time."""
    works, outcomes = Works(create=0.02, check=0.02), []
    works.errors = [ConnectionError("down"), ConnectionError("down")]
    pool = Pool(
        works.create,
        close=works.close,
        check=works.check,
        min_size=1,
        max_size=2,
        check_after_idle=0,
        check_every=0.05,
    )

    async def borrower(arrival=anyio.lowlevel.checkpoint):
        await arrival()
        try:
            thing = await works.use(pool.acquire(timeout=10), 0.01)
            thing.healthy = False
            outcomes.append("served")
        except ConnectionError:
            outcomes.append("failed")

    async def victim():
        with cancellable():
            await borrower()

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(borrower)
            group.start_soon(victim)
            group.start_soon(borrower)
            group.start_soon(borrower, newcomer)
            group.start_soon(victim)
        works.errors = []
        assert len(outcomes) >= 3
        await all_can_be_lent(lambda _: pool.acquire(), 2)
    assert works.open == []


@scenario("local.KeyedPool.acquire")
async def idle_ones_are_checked_and_evicted():
    """All have been idle long enough to be checked; cancelled in it, the slot is not lost."""
    works = Works(create=0.02, check=0.02, close=0.02)
    pool = KeyedPool(works.create, close=works.close, check=works.check, max_total=2)

    async def borrower(key, exclusive, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        await works.use(pool.acquire(key, exclusive=exclusive), 0.01, share=not exclusive)

    async def victim(key, exclusive):
        with cancellable():
            await borrower(key, exclusive)

    async with pool:
        for key in "ab":
            await works.use(pool.acquire(key))
        works.things[0].healthy = False
        await anyio.sleep(1)
        async with anyio.create_task_group() as group:
            group.start_soon(victim, "a", True)
            group.start_soon(victim, "b", False)
            group.start_soon(borrower, "b", False)
            group.start_soon(borrower, "c", True)
            group.start_soon(victim, "b", False)
            group.start_soon(borrower, "a", False, newcomer)
        await all_can_be_lent(pool.acquire, 2)
    assert works.open == [] and pool.statistics().keys == 0


@scenario("local.KeyedPool.acquire")
async def sharers_and_loners_take_turns():
    works = Works(create=0.02)
    users = {"shared": 0, "alone": 0}
    pool = KeyedPool(works.create, close=works.close, max_per_key=1)

    async def use(exclusive):
        async with pool.acquire("a", exclusive=exclusive):
            kind = "alone" if exclusive else "shared"
            users[kind] += 1
            assert users["alone"] <= 1 and not (users["alone"] and users["shared"])
            try:
                await anyio.sleep(0.01)
            finally:
                users[kind] -= 1

    async def borrower(exclusive, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        await use(exclusive)

    async def victim(exclusive):
        with cancellable():
            await use(exclusive)

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(borrower, False)
            group.start_soon(victim, True)
            group.start_soon(victim, False)
            group.start_soon(borrower, True)
            group.start_soon(borrower, False, newcomer)
            group.start_soon(victim, False)
        await all_can_be_lent(lambda _: pool.acquire("a"), 1)
    assert works.open == [] and pool.statistics().keys == 0


@scenario("local.KeyedPool.acquire")
async def creations_fail_and_are_cancelled():
    """Whoever waits gets a resource or an error; the last who leaves takes the creation along."""
    works, outcomes = Works(create=0.02), []
    works.errors = [ConnectionError("down"), ConnectionError("down")]
    pool = KeyedPool(works.create, close=works.close, max_total=1)

    async def borrower(key, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        try:
            await works.use(pool.acquire(key), 0.01)
            outcomes.append("served")
        except ConnectionError:
            outcomes.append("failed")

    async def victim(key):
        with cancellable():
            await borrower(key)

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(victim, "a")
            group.start_soon(borrower, "b")
            group.start_soon(victim, "c")
            group.start_soon(borrower, "c", newcomer)
            group.start_soon(borrower, "a")
        works.errors = []
        assert len(outcomes) >= 3
        await all_can_be_lent(pool.acquire, 1)
    assert works.open == [] and pool.statistics().keys == 0


@scenario("local.KeyedPool.acquire")
async def what_comes_back_is_reset_and_few_may_wait():
    works, outcomes = Works(create=0.02, reset=0.02, close=0.02), []
    options = {"max_per_key": 1, "max_total": 1, "max_waiting": 1, "max_lifetime": 0.1, "leak_after": 0.05}
    pool = KeyedPool(works.create, close=works.close, reset=works.reset, **options)

    async def borrower(key, exclusive, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        try:
            await works.use(pool.acquire(key, exclusive=exclusive), 0.03, share=not exclusive)
            outcomes.append("served")
        except BulkheadFull:
            outcomes.append("refused")

    async def victim(key, exclusive):
        with cancellable():
            await borrower(key, exclusive)

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(borrower, "a", False)
            group.start_soon(victim, "a", False)
            group.start_soon(victim, "a", True)
            group.start_soon(borrower, "a", False, newcomer)
        assert len(outcomes) >= 2
        assert pool.leaks() == ()
        await all_can_be_lent(pool.acquire, 1)
    assert works.open == [] and works.creating == 0 and pool.statistics().keys == 0
