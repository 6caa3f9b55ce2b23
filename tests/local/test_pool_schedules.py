"""The pool under every schedule and every cancellation: no slot is lost, and nothing is closed while it is lent."""

import anyio
import depth
import pytest
from local.pool_world import Works

from tenure.errors import PoolClosed
from tenure.local._pool import Pool
from tenure.testing import cancel_everywhere, cancellable, explore, newcomer

SEEDS = 60


async def all_slots_are_back(pool, works):
    """As many as there are slots can be lent at once, and no more were ever open."""
    size = pool.statistics().max_size
    together = 0

    async def borrow():
        nonlocal together
        async with pool.acquire():
            together += 1
            while together < size:
                await anyio.sleep(0.1)

    async with anyio.create_task_group() as group:
        for _ in range(size):
            group.start_soon(borrow)
    assert pool.statistics().tasks_waiting == 0
    assert works.most_open <= size


async def a_pool_loses_no_slot():
    """Creating, checking, resetting and closing all take time; whatever is cancelled in them, the slots come back."""
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

    async def borrower(arrival=anyio.sleep, *args):
        await arrival(*args)
        await works.use(pool.acquire(), 0.01)

    async def victim():
        with cancellable():
            await works.use(pool.acquire(), 0.01)
            await works.use(pool.acquire(), 0.01)

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(borrower, anyio.sleep, 0)
            group.start_soon(victim)
            group.start_soon(victim)
            group.start_soon(borrower, newcomer)
            group.start_soon(victim)
        await all_slots_are_back(pool, works)
    assert works.open == [] and works.creating == 0


async def a_pool_without_pauses_loses_no_slot():
    """All hooks return at once: nothing but hand-overs."""
    works = Works()
    pool = Pool(works.create, close=works.close, max_size=1)

    async def borrower(arrival):
        await arrival()
        await works.use(pool.acquire())

    async def victim():
        with cancellable():
            await works.use(pool.acquire())

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(borrower, anyio.lowlevel.checkpoint)
            group.start_soon(victim)
            group.start_soon(victim)
            group.start_soon(borrower, newcomer)
            group.start_soon(borrower, anyio.lowlevel.checkpoint)
        await all_slots_are_back(pool, works)
    assert works.open == []


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
        await all_slots_are_back(pool, works)
    assert works.open == []


async def a_pool_that_drains_closes_everything():
    """Some are served and some refused; nothing is left open, whoever is cancelled, the drain included."""
    works, served, refused = Works(create=0.02, close=0.02), [], []
    pool = Pool(works.create, close=works.close, max_size=2)

    async def borrower(arrival=anyio.lowlevel.checkpoint):
        await arrival()
        try:
            served.append(await works.use(pool.acquire(), 0.03))
        except PoolClosed:
            refused.append(None)

    async def victim():
        with cancellable():
            await borrower()

    async def drainer():
        await anyio.sleep(0.03)
        with cancellable() as scope:
            await pool.drain()
        if not scope.cancelled_caught:
            assert works.open == []

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(borrower)
            group.start_soon(victim)
            group.start_soon(borrower)
            group.start_soon(borrower, newcomer)
            group.start_soon(drainer)
        assert 3 <= len(served) + len(refused) <= 4
    assert works.open == [] and works.creating == 0


async def a_pool_is_first_come_first_served():
    works, came, served = Works(create=0.01), [], []
    pool = Pool(works.create, close=works.close, max_size=1)

    async def borrower(name, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        came.append(name)
        async with pool.acquire():
            served.append(name)
            await anyio.sleep(0.01)

    async def victim():
        with cancellable():
            async with pool.acquire():
                await anyio.sleep(0.01)

    async with pool, anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(borrower, name)
            group.start_soon(victim)
        group.start_soon(borrower, "d", newcomer)
    assert served == came


SCENARIOS = [
    a_pool_loses_no_slot,
    a_pool_without_pauses_loses_no_slot,
    a_pool_that_breaks_serves_or_tells,
    a_pool_that_drains_closes_everything,
    a_pool_is_first_come_first_served,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_under_random_schedules(scenario):
    explore(scenario, seeds=depth.share(SEEDS))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_cancelled_in_every_place(scenario):
    found = cancel_everywhere(scenario, backends=depth.loops(scenario.__name__), native=depth.full)
    assert {"W1", "W2", "W3"} <= set(found.windows)
