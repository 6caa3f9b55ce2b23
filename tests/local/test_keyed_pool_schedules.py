"""The keyed pool under every schedule and every cancellation: limits hold, nothing is lost, nothing stays behind."""

import anyio
import anyio.lowlevel
import depth
import pytest
from local.pool_world import Works

from tenure.errors import BulkheadFull, PoolClosed
from tenure.local._keyed_pool import KeyedPool
from tenure.testing import cancel_everywhere, cancellable, explore, newcomer

SEEDS = 60


def at_rest(pool, works, most):
    """Nobody has or wants anything, and the counts agree with what is open."""
    state = pool.statistics()
    assert (state.lent, state.tasks_waiting) == (0, 0), state
    assert state.size == state.idle + state.creating + state.closing, state
    assert works.most_open <= most
    assert len(pool._slot_queue) == 0


async def all_slots_are_back(pool, works, keys):
    """A resource of each of so many keys, as many as there are slots, can be had at once."""
    together = 0

    async def borrow(key):
        nonlocal together
        async with pool.acquire(key, timeout=60):
            together += 1
            while together < len(keys):
                await anyio.sleep(0.1)

    async with anyio.create_task_group() as group:
        for key in keys:
            group.start_soon(borrow, key)
    at_rest(pool, works, len(keys))


async def keys_compete_for_slots():
    works = Works(create=0.02, check=0.02, close=0.02)
    pool = KeyedPool(works.create, close=works.close, check=works.check, max_per_key=1, max_total=2)

    async def borrower(key, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        await works.use(pool.acquire(key), 0.01)

    async def victim(key):
        with cancellable():
            await works.use(pool.acquire(key), 0.01)

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(borrower, "a")
            group.start_soon(victim, "b")
            group.start_soon(victim, "c")
            group.start_soon(borrower, "d", newcomer)
            group.start_soon(victim, "a")
            group.start_soon(borrower, "b")
        await all_slots_are_back(pool, works, "xy")
    assert works.open == [] and works.creating == 0 and pool.statistics().keys == 0


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
        await all_slots_are_back(pool, works, "xy")
    assert works.open == [] and pool.statistics().keys == 0


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
        await all_slots_are_back(pool, works, "a")
    assert works.open == [] and pool.statistics().keys == 0


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
        await all_slots_are_back(pool, works, "x")
    assert works.open == [] and pool.statistics().keys == 0


async def a_keyed_pool_drains():
    works, ended = Works(create=0.02, close=0.02), []
    pool = KeyedPool(works.create, close=works.close, max_total=2)

    async def borrower(key, exclusive, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        try:
            await works.use(pool.acquire(key, exclusive=exclusive), 0.03, share=not exclusive)
            ended.append("served")
        except PoolClosed:
            ended.append("refused")

    async def victim(key, exclusive):
        with cancellable():
            await borrower(key, exclusive)

    async def drainer():
        await anyio.sleep(0.03)
        with cancellable() as scope:
            await pool.drain()
        if not scope.cancelled_caught:
            assert works.open == []

    async with pool:
        async with anyio.create_task_group() as group:
            group.start_soon(borrower, "a", True)
            group.start_soon(victim, "a", False)
            group.start_soon(borrower, "b", False)
            group.start_soon(borrower, "c", True, newcomer)
            group.start_soon(victim, "b", False)
            group.start_soon(drainer)
        assert 3 <= len(ended) <= 5
    assert works.open == [] and works.creating == 0 and pool.statistics().keys == 0


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
        await all_slots_are_back(pool, works, "x")
    assert works.open == [] and works.creating == 0 and pool.statistics().keys == 0


SCENARIOS = [
    what_comes_back_is_reset_and_few_may_wait,
    keys_compete_for_slots,
    idle_ones_are_checked_and_evicted,
    sharers_and_loners_take_turns,
    creations_fail_and_are_cancelled,
    a_keyed_pool_drains,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_under_random_schedules(scenario):
    explore(scenario, seeds=depth.share(SEEDS))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_cancelled_in_every_place(scenario):
    found = cancel_everywhere(scenario, backends=depth.loops(scenario.__name__), native=depth.full)
    assert {"W1", "W2", "W3"} <= set(found.windows)
