"""The keyed pool: its limits, who has its turn, what is evicted and why, in virtual time."""

import gc
import logging
import weakref
from contextlib import suppress

import anyio
import depth
import pytest
from local.pool_world import Notes, Works

from tenure.errors import BulkheadFull, PoolClosed, PoolTimeout
from tenure.local._keyed_pool import KeyedPool
from tenure.testing import assert_checkpoints


def pool_of(works, **options):
    return KeyedPool(works.create, close=works.close, **options)


class Evictions(list):
    """What `on_evict` was told, as (key, number, reason)."""

    def __call__(self, key, thing, reason):
        assert not thing.closed, "it is told before it is closed"
        self.append((key, thing.number, reason))


async def test_each_key_has_resources_of_its_own(virtual_clock):
    works = Works()
    async with pool_of(works) as pool:
        a = await works.use(pool.acquire("a"))
        b = await works.use(pool.acquire("b"))
        assert (a.key, b.key) == ("a", "b")
        assert await works.use(pool.acquire("a")) is a
        async with pool.acquire("a"), pool.acquire("a") as second:
            assert second.number == 2
        state = pool.statistics()
        assert (state.keys, state.size, state.idle, state.lent, state.created) == (2, 3, 3, 0, 3)
        assert repr(pool) == "<KeyedPool open: 3 of 100 slots in use (3 idle, 0 being closed) by 2 keys>"
    assert works.open == []
    assert pool.statistics().keys == 0


async def test_the_limit_of_a_key(virtual_clock):
    works, order = Works(), []

    async def borrow(name):
        async with pool.acquire("a"):
            order.append((virtual_clock.now(), name))
            await anyio.sleep(1)

    async with pool_of(works, max_per_key=2) as pool, anyio.create_task_group() as group:
        for name in range(5):
            group.start_soon(borrow, name)
            await virtual_clock.settle()
        await works.use(pool.acquire("b"))
        assert virtual_clock.now() == 0, "another key does not wait"
    assert sorted(order) == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4)]
    assert sum(thing.key == "a" for thing in works.things) == 2


async def test_creations_run_one_at_a_time_for_a_key(virtual_clock):
    works = Works(create=1)
    async with pool_of(works) as pool, anyio.create_task_group() as group:
        for key in "aaab":
            group.start_soon(works.use, pool.acquire(key), 10)
        await anyio.sleep(0.5)
        assert pool.statistics().creating == 2
        await anyio.sleep(1)
        assert pool.statistics().lent == 2
        assert pool.statistics().creating == 1
        await anyio.sleep(2)
        assert pool.statistics().lent == 4


# sharing


async def test_what_fails_to_be_created_is_raised_by_all_waiters_and_not_remembered(virtual_clock):
    works, errors = Works(create=1), []
    works.errors = [ConnectionError("refused")]

    async def borrow():
        try:
            await works.use(pool.acquire("a"))
        except ConnectionError as error:
            errors.append(error)

    async with pool_of(works) as pool:
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(borrow)
        assert len(errors) == 10 and virtual_clock.now() == 1
        state = pool.statistics()
        assert (state.keys, state.size, state.create_failures) == (0, 0, 1)
        await works.use(pool.acquire("a"))


async def test_a_creation_that_nobody_waits_for_any_more_is_cancelled(virtual_clock):
    works = Works(create=5)
    async with pool_of(works, max_total=1) as pool:
        async with anyio.create_task_group() as group:
            leader = anyio.CancelScope()

            async def leads():
                with leader:
                    await works.use(pool.acquire("a"))

            group.start_soon(leads)
            await anyio.sleep(1)
            group.start_soon(works.use, pool.acquire("a"))
            await anyio.sleep(1)
            leader.cancel()
        assert virtual_clock.now() == 5, "one follows: it goes on"
        with anyio.move_on_after(1):
            await works.use(pool.acquire("b"))
        await virtual_clock.settle()
        assert works.creating == 0
        assert pool.statistics().keys == 0, "the idle one had to go for it, and then nobody came"


async def test_those_that_share_get_the_same_one(virtual_clock):
    works, seen = Works(create=1), []

    async def share():
        seen.append(await works.use(pool.acquire("a", exclusive=False), 1, share=True))

    async with pool_of(works) as pool:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(share)
            await anyio.sleep(1.5)
            group.start_soon(share)
        assert virtual_clock.now() == 2.5
        assert len(works.things) == 1 and seen == works.things * 6
        assert pool.statistics().idle == 1


async def test_one_that_shares_and_is_cancelled_spoils_nothing_for_the_others(virtual_clock):
    works = Works()
    async with pool_of(works) as pool, anyio.create_task_group() as group:
        group.start_soon(lambda: works.use(pool.acquire("a", exclusive=False), 10, share=True))
        with anyio.move_on_after(1):
            await works.use(pool.acquire("a", exclusive=False), 10, share=True)
        assert works.open == works.things and len(works.things) == 1


async def test_one_that_wants_it_alone_is_not_starved_by_those_that_share(virtual_clock):
    works, order = Works(), []

    async def borrow(name, exclusive):
        async with pool.acquire("a", exclusive=exclusive):
            order.append(name)
            await anyio.sleep(1)

    async with pool_of(works, max_per_key=1) as pool, anyio.create_task_group() as group:
        for name, exclusive in [("s1", False), ("s2", False), ("x", True), ("s3", False), ("s4", False)]:
            group.start_soon(borrow, name, exclusive)
            await virtual_clock.settle()
    assert order[:3] == ["s1", "s2", "x"] and set(order[3:]) == {"s3", "s4"}
    assert virtual_clock.now() == 3


async def test_when_the_one_that_wants_it_alone_gives_up_those_behind_share(virtual_clock):
    works = Works()
    async with pool_of(works, max_per_key=1) as pool, anyio.create_task_group() as group:
        group.start_soon(lambda: works.use(pool.acquire("a", exclusive=False), 100, share=True))
        await anyio.sleep(1)

        async def behind():
            await anyio.sleep(1)
            await works.use(pool.acquire("a", exclusive=False), 0, share=True)
            assert virtual_clock.now() == 3

        group.start_soon(behind)
        with anyio.move_on_after(2) as limit:
            await works.use(pool.acquire("a"))
        assert limit.cancelled_caught


async def test_those_that_share_wait_for_one_check(virtual_clock):
    works = Works(check=2)
    async with pool_of(works, check=works.check) as pool:
        thing = await works.use(pool.acquire("a"))
        await anyio.sleep(1)
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(lambda: works.use(pool.acquire("a", exclusive=False), 1, share=True))
        assert virtual_clock.now() == 4
        assert thing.checks == 1 and works.things == [thing]
        thing.healthy = False
        await anyio.sleep(1)
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(lambda: works.use(pool.acquire("a", exclusive=False), 1, share=True))
        assert len(works.things) == 2 and thing.closed


async def test_one_that_wants_it_alone_behind_a_check_of_those_that_share_gets_another(virtual_clock):
    works = Works(check=2)
    async with pool_of(works, check=works.check) as pool, anyio.create_task_group() as group:
        await works.use(pool.acquire("a"))
        await anyio.sleep(1)
        for _ in range(2):
            group.start_soon(lambda: works.use(pool.acquire("a", exclusive=False), 100, share=True))
            await virtual_clock.settle()
        assert (await works.use(pool.acquire("a"))).number == 1
        assert virtual_clock.now() == 3


# the limit of all keys together


async def test_the_least_recently_used_makes_room_for_another_key(virtual_clock):
    """The oldest is not the least recently used, and what is in use is not to be had."""
    works, evictions, notes = Works(), Evictions(), Notes()
    async with pool_of(works, max_total=3, on_evict=evictions, observer=notes) as pool:
        for key in "abc":
            await works.use(pool.acquire(key))
            await anyio.sleep(1)
        await works.use(pool.acquire("a"))
        await works.use(pool.acquire("d"))
        assert evictions == [("b", 1, "room")]
        async with pool.acquire("c"):
            await works.use(pool.acquire("e"))
            assert evictions[1:] == [("a", 0, "room")]
        assert works.most_open == 3
        state = pool.statistics()
        assert (state.evicted, state.closed, state.size, state.keys) == (2, 2, 3, 3)
    assert len(evictions) == 2, "the end of the pool is no eviction"
    assert {fields["reason"] for fields in notes.named("pool.closed")} == {"room", "closed"}


async def test_it_waits_when_everything_is_in_use(virtual_clock):
    works, evictions = Works(), Evictions()
    async with pool_of(works, max_total=2, on_evict=evictions) as pool, anyio.create_task_group() as group:
        group.start_soon(works.use, pool.acquire("a"), 5)
        await virtual_clock.settle()
        group.start_soon(works.use, pool.acquire("b"), 9)
        await anyio.sleep(1)
        with pytest.raises(
            PoolTimeout, match="'c': no resource within 1 s: 0 of 10 slots of this key in use; 2 of 2"
        ):
            await works.use(pool.acquire("c", timeout=1))
        assert pool.statistics().keys == 2, "a key is forgotten when nobody waits for it any more"
        await works.use(pool.acquire("c"))
        assert virtual_clock.now() == 5
        assert evictions == [("a", 0, "room")]


async def test_a_busy_key_does_not_starve_a_quiet_one(virtual_clock):
    works, served = Works(), []

    async def borrow(key, name):
        async with pool.acquire(key):
            served.append((virtual_clock.now(), name))
            await anyio.sleep(1)

    async with pool_of(works, max_total=2) as pool, anyio.create_task_group() as group:
        names = ["a1", "a2", "a3", "a4", "b1", "a5", "a6", "b2", "c1"]
        for name in names:
            group.start_soon(borrow, name[0], name)
            await virtual_clock.settle()
    expected = [(place // 2, name) for place, name in enumerate(names)]
    assert sorted(served) == sorted(expected), "first come first served, over all keys"
    assert works.most_open == 2


async def test_when_the_first_of_a_key_leaves_the_key_goes_behind_those_that_came_before_its_next(
    virtual_clock,
):
    works, served = Works(), []

    async def borrow(key, name):
        async with pool.acquire(key):
            served.append(name)

    async with pool_of(works, max_total=1) as pool, anyio.create_task_group() as group:
        async with pool.acquire("x"):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as leaving:
                    leaving.start_soon(borrow, "a", "a1")
                    await virtual_clock.settle()
                    group.start_soon(borrow, "b", "b")
                    await virtual_clock.settle()
                    group.start_soon(borrow, "a", "a2")
                    await virtual_clock.settle()
                    scope.cancel()
    assert served == ["b", "a2"]


async def test_a_key_at_its_own_limit_holds_up_nobody(virtual_clock):
    works = Works()
    async with pool_of(works, max_per_key=1, max_total=2) as pool, anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(works.use, pool.acquire("a"), 10)
        await anyio.sleep(1)
        await works.use(pool.acquire("b"))
        await works.use(pool.acquire("c"))
        assert virtual_clock.now() == 1


async def test_those_that_never_evict_wait(virtual_clock):
    works = Works()
    async with pool_of(works, max_total=1, evict="never", idle_timeout=60) as pool:
        await works.use(pool.acquire("a"))
        with pytest.raises(PoolTimeout):
            await works.use(pool.acquire("b", timeout=30))
        await works.use(pool.acquire("b"))
        assert virtual_clock.now() == 60


async def test_what_nobody_uses_is_closed_and_its_user_learns_why(virtual_clock):
    works, told = Works(), []

    async def on_evict(key, thing, reason):
        await anyio.sleep(1)
        told.append((key, thing.closed, reason))

    async with pool_of(works, idle_timeout=60, on_evict=on_evict) as pool:
        await works.use(pool.acquire("a"))
        await anyio.sleep(50)
        await works.use(pool.acquire("a"))
        await works.use(pool.acquire("b"))
        await anyio.sleep(59)
        assert pool.statistics().idle == 2 and told == []
        await anyio.sleep(3)
        assert pool.statistics().keys == 0
        assert sorted(told) == [("a", False, "idle"), ("b", False, "idle")]


async def test_an_old_timer_does_not_end_a_new_resource(virtual_clock):
    """duolicious #1616."""
    works = Works()
    async with pool_of(works, idle_timeout=60) as pool:
        with anyio.move_on_after(30):
            await works.use(pool.acquire("a"), 1000)
        second = await works.use(pool.acquire("a"))
        await anyio.sleep(59)
        assert not second.closed
        await anyio.sleep(2)
        assert second.closed


async def test_one_that_fails_its_check_is_replaced_and_its_user_learns_why(virtual_clock):
    works, evictions = Works(), Evictions()
    async with pool_of(works, check=works.check, on_evict=evictions) as pool:
        thing = await works.use(pool.acquire("a"))
        thing.healthy = False
        assert await works.use(pool.acquire("a")) is thing, "it was just used"
        await anyio.sleep(0.5)
        assert (await works.use(pool.acquire("a"))).number == 1
        await virtual_clock.settle()
        assert evictions == [("a", 0, "unhealthy")] and thing.closed


async def test_how_the_body_ends_decides_what_becomes_of_it(virtual_clock):
    works, evictions = Works(), Evictions()
    async with pool_of(works, check=works.check, on_evict=evictions) as pool:
        with pytest.raises(KeyError):
            async with pool.acquire("a") as thing:
                raise KeyError
        assert thing.checks == 1 and pool.statistics().idle == 1
        with anyio.move_on_after(1):
            await works.use(pool.acquire("a"), 10)
        await virtual_clock.settle()
        assert evictions == [("a", 0, "cancelled")]
        with pytest.raises(KeyError):
            async with pool.acquire("a", exclusive=False) as thing:
                thing.healthy = False
                raise KeyError
        await virtual_clock.settle()
        assert thing.checks == 1 and thing.closed


@pytest.mark.parametrize("exclusive", [True, False])
async def test_without_check_and_reset_a_body_that_raises_has_its_resource_closed(virtual_clock, exclusive):
    works, evictions = Works(), Evictions()
    async with pool_of(works, on_evict=evictions) as pool:
        with pytest.raises(KeyError):
            async with pool.acquire("a", exclusive=exclusive):
                raise KeyError
        await virtual_clock.settle()
        assert evictions == [("a", 0, "unhealthy")] and works.things[0].closed
        async with pool.acquire("a", exclusive=exclusive, timeout=1) as fresh:
            assert fresh.number == 1


async def test_a_shared_resource_whose_body_raised_is_closed_by_its_last_user_and_joined_by_none(
    virtual_clock,
):
    works, evictions = Works(), Evictions()
    async with pool_of(works, on_evict=evictions) as pool:
        async with pool.acquire("a", exclusive=False) as first:
            with pytest.raises(KeyError):
                async with pool.acquire("a", exclusive=False) as same:
                    raise KeyError
            assert same is first and not first.closed, "another task uses it"
            async with pool.acquire("a", exclusive=False) as other:
                assert other is not first
            await virtual_clock.settle()
            assert not first.closed
        await virtual_clock.settle()
        assert evictions == [("a", 0, "unhealthy")] and first.closed and not other.closed


@pytest.mark.parametrize("healthy", [True, False])
async def test_a_shared_resource_whose_body_raised_is_checked_before_a_waiting_task_gets_it(
    virtual_clock, healthy
):
    works = Works(check=1)
    async with pool_of(works, max_per_key=1, check=works.check) as pool, anyio.create_task_group() as group:
        with anyio.fail_after(10):
            async with pool.acquire("a", exclusive=False) as first:
                with suppress(KeyError):
                    async with pool.acquire("a", exclusive=False):
                        group.start_soon(works.use, pool.acquire("a"), 3)
                        await virtual_clock.settle()
                        raise KeyError
                first.healthy = healthy
            assert (virtual_clock.now(), first.checks) == (1, 1)
            thing = await works.use(pool.acquire("a"))
        assert (thing is first, virtual_clock.now()) == (healthy, 4)


@pytest.mark.parametrize("exclusive", [True, False])
async def test_a_task_that_waits_for_itself_is_told(virtual_clock, exclusive):
    works = Works()
    async with pool_of(works, max_total=2) as pool, pool.acquire("a", exclusive=exclusive):
        async with pool.acquire("b", exclusive=False), pool.acquire("b", exclusive=False):
            with pytest.raises(PoolTimeout, match="this task holds 3 of them itself$"):
                await works.use(pool.acquire("c", timeout=1))
        with pytest.raises(PoolTimeout, match="this task holds 1 of them itself$"):
            await works.use(pool.acquire("a", timeout=0))

        async def other():
            with pytest.raises(PoolTimeout, match="by 1 keys$"):
                await works.use(pool.acquire("a", timeout=0))

        async with anyio.create_task_group() as group:
            group.start_soon(other)


async def test_a_callback_that_fails_stops_nothing(virtual_clock, caplog):
    works = Works()

    def on_evict(*_):
        raise KeyError("oops")

    async with pool_of(works, max_total=1, on_evict=on_evict) as pool:
        for key in "abc":
            await works.use(pool.acquire(key))
    assert works.open == []
    assert [record.message for record in caplog.records] == [
        "pool.on_evict_failed key=a error=KeyError('oops')",
        "pool.on_evict_failed key=b error=KeyError('oops')",
    ]


@pytest.mark.backends("asyncio")  # trio's own frames make circles
async def test_an_error_of_create_does_not_wait_for_the_garbage_collector(virtual_clock, caplog):
    class Big(ConnectionError):
        pass

    caplog.set_level(logging.CRITICAL, logger="tenure")  # records keep their errors

    works = Works()
    works.errors = [Big()]
    async with pool_of(works) as pool:
        gc.collect()
        gc.disable()
        try:
            try:
                await works.use(pool.acquire("a"))
            except Big as error:
                gone = weakref.ref(error)
            await virtual_clock.settle()
            assert gone() is None
        finally:
            gc.enable()


# resets


async def test_what_comes_back_is_reset(virtual_clock):
    works, evictions = Works(reset=1), Evictions()
    async with pool_of(works, reset=works.reset, on_evict=evictions) as pool:
        thing = await works.use(pool.acquire("a"))
        with pytest.raises(KeyError):
            async with pool.acquire("a"):
                raise KeyError
        with anyio.move_on_after(1):
            await works.use(pool.acquire("a"), 1000)
        assert (thing.resets, virtual_clock.now(), evictions) == (3, 4, [])
        async with pool.acquire("a") as same:
            assert same is thing
            thing.healthy = False
        await virtual_clock.settle()
        assert evictions == [("a", 0, "reset failed")]
        assert (await works.use(pool.acquire("a"))).number == 1


async def test_one_that_is_shared_is_reset_when_the_last_has_left_and_nobody_joins_meanwhile(virtual_clock):
    works = Works(reset=2)

    async def share(seconds):
        await works.use(pool.acquire("a", exclusive=False), seconds, share=True)

    async with pool_of(works, reset=works.reset, max_per_key=1) as pool, anyio.create_task_group() as group:
        group.start_soon(share, 1)
        with anyio.move_on_after(3):
            await share(1000)
        assert (virtual_clock.now(), works.things[0].resets) == (5, 1)
        group.start_soon(share, 1)
        await anyio.sleep(2)
        assert pool.statistics().lent == 1, "it is being reset"
        await share(0)
        assert virtual_clock.now() == 10
        assert works.things[0].resets == 3 and len(works.things) == 1


# ages


async def test_nobody_joins_those_that_share_what_is_too_old(virtual_clock):
    works = Works()

    async def share(seconds):
        return await works.use(pool.acquire("a", exclusive=False), seconds, share=True)

    async with pool_of(works, max_lifetime=100) as pool, anyio.create_task_group() as group:
        group.start_soon(share, 150)
        await anyio.sleep(50)
        assert (await share(0)).number == 0
        await anyio.sleep(51)
        assert (await share(0)).number == 1
        assert not works.things[0].closed, "what is lent is never closed"
        await anyio.sleep(50)
        assert works.things[0].closed
        assert (await share(0)).number == 1


async def test_how_long_it_is_lent_without_a_check_can_be_said(virtual_clock):
    works = Works()
    async with pool_of(works, check=works.check, check_after_idle=10) as pool:
        thing = await works.use(pool.acquire("a"))
        for seconds, checks in [(9, 0), (11, 1), (9, 1)]:
            await anyio.sleep(seconds)
            await works.use(pool.acquire("a"))
            assert thing.checks == checks


async def test_behind_one_that_fails_its_check_what_was_just_used_is_lent_without_one(virtual_clock):
    works = Works(check=1)
    async with pool_of(works, check=works.check) as pool, anyio.create_task_group() as group:
        async with pool.acquire("a") as good:
            bad = await works.use(pool.acquire("a"))
            await anyio.sleep(1)
            bad.healthy = False
            group.start_soon(lambda: works.use(pool.acquire("a", exclusive=False), 10, share=True))
            await anyio.sleep(0.8)
        await anyio.sleep(0.7)
        async with pool.acquire("a", exclusive=False) as thing:
            assert thing is good and bad.closed
        assert (good.checks, bad.checks) == (0, 1)


# who may wait


async def test_with_no_waiting_at_all_it_lends_while_there_is_room(virtual_clock):
    works = Works(create=1)
    async with pool_of(works, max_per_key=2, max_total=3, max_waiting=0) as pool:
        async with pool.acquire("a"), pool.acquire("a"):
            with assert_checkpoints(), pytest.raises(BulkheadFull, match="0 tasks wait already: 'a': 2 of 2"):
                await works.use(pool.acquire("a"))
            await works.use(pool.acquire("b"))
            async with pool.acquire("c"):  # the idle one has to go for it
                with pytest.raises(BulkheadFull, match="'d': 0 of 2 slots of this key in use; 3 of 3"):
                    await works.use(pool.acquire("d"))
                assert pool.statistics().keys == 2, "a key that was refused leaves nothing"
        assert pool.statistics().refused == 2


async def test_only_those_that_wait_for_a_return_count_as_waiting_for_each_key_by_itself(virtual_clock):
    works, refused = Works(create=1), []

    async def borrow(name):
        try:
            await works.use(pool.acquire(name[0]), 100)
        except BulkheadFull:
            refused.append(name)

    async with pool_of(works, max_per_key=3, max_waiting=1) as pool, anyio.create_task_group() as group:
        for name in ["a1", "a2", "a3", "a4", "a5", "b1", "b2", "b3", "b4", "b5", "b6"]:
            group.start_soon(borrow, name)
            await virtual_clock.settle()
        assert refused == ["a5", "b5", "b6"]
        await anyio.sleep(10)
        await borrow("a6")
        assert refused == ["a5", "b5", "b6", "a6"]


async def test_those_that_share_what_is_being_created_do_not_count_as_waiting(virtual_clock):
    works, refused = Works(create=1), []

    async def borrow(name, exclusive):
        try:
            await works.use(pool.acquire("a", exclusive=exclusive), 10, share=True)
        except BulkheadFull:
            refused.append(name)

    async with pool_of(works, max_per_key=1, max_waiting=1) as pool, anyio.create_task_group() as group:
        for name, exclusive in [("s1", False), ("s2", False), ("x1", True), ("s3", False), ("x2", True)]:
            group.start_soon(borrow, name, exclusive)
            await virtual_clock.settle()
        assert refused == ["s3", "x2"]


async def test_without_eviction_what_other_keys_keep_idle_is_no_room(virtual_clock):
    works = Works()
    async with pool_of(works, max_total=1, max_waiting=0, evict="never") as pool:
        await works.use(pool.acquire("a"))
        with pytest.raises(BulkheadFull):
            await works.use(pool.acquire("b"))
        await works.use(pool.acquire("a"))


async def test_draining_waits_for_what_is_lent_and_refuses_the_rest(virtual_clock):
    works, refused = Works(create=1), []

    async def late(key, **options):
        with pytest.raises(PoolClosed):
            await works.use(pool.acquire(key, **options))
        refused.append(key)

    async with pool_of(works, max_per_key=1) as pool, anyio.create_task_group() as group:
        group.start_soon(lambda: works.use(pool.acquire("a", exclusive=False), 10, share=True))
        await anyio.sleep(2)
        group.start_soon(late, "a")
        group.start_soon(late, "b")
        await anyio.sleep(0.5)
        async with anyio.create_task_group() as drain:
            drain.start_soon(pool.drain)
            await anyio.sleep(0.1)
            await late("a")
            await late("a1")
            with pytest.raises(PoolClosed):
                await works.use(pool.acquire("a", exclusive=False))
        assert virtual_clock.now() == 11
    assert len(refused) == 4
    assert works.open == [] and works.creating == 0
    assert pool.statistics().keys == 0


# leaks


# closing


async def test_a_timeout_of_zero_takes_only_what_is_idle_or_shared(virtual_clock):
    works = Works(check=1)
    async with pool_of(works, check=works.check) as pool:
        with pytest.raises(PoolTimeout):
            await works.use(pool.acquire("a", timeout=0))
        thing = await works.use(pool.acquire("a"))
        await anyio.sleep(1)
        async with pool.acquire("a", exclusive=False, timeout=0) as same:
            async with pool.acquire("a", exclusive=False, timeout=0) as too:
                assert same is too is thing and thing.checks == 1


async def test_many_keys_leave_nothing(virtual_clock):
    """Maps of locks by key: aden-hive #2584, MemMachine #1566."""
    works = Works()
    async with pool_of(works, max_total=10) as pool:
        for key in range(depth.share(2000)):
            await works.use(pool.acquire(key))
        assert pool.statistics().keys == pool.statistics().size == 10
        assert len(pool._slot_queue._heap) == len(pool._slot_queue._recorded) == 0
        await anyio.sleep(301)
        assert pool.statistics().keys == 0
        assert len(works.open) == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_per_key": 0}, ValueError, "max_per_key must be at least 1, not 0"),
        ({"max_total": "1"}, TypeError, "max_total must be an int"),
        ({"idle_timeout": 0}, ValueError, "idle_timeout must be more than 0 seconds"),
        ({"evict": "newest"}, ValueError, "evict must be 'oldest' or 'never', not 'newest'"),
        ({"on_evict": 1}, TypeError, "on_evict must be a function"),
        ({"check": 1}, TypeError, "check must be a function"),
        ({"reset": 1}, TypeError, "reset must be a function"),
        ({"max_waiting": -1}, ValueError, "max_waiting must be at least 0"),
        ({"max_lifetime": "1"}, TypeError, "max_lifetime must be a number of seconds"),
        ({"check_after_idle": -1}, ValueError, "check_after_idle must be 0 or more seconds"),
        ({"leak_after": 0}, ValueError, "leak_after must be more than 0 seconds"),
        ({"close": None}, TypeError, "close must be a function"),
    ],
)
def test_arguments_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        KeyedPool(list, **({"close": print} | options))


def test_the_key_and_the_timeout_are_checked():
    pool = KeyedPool(list, close=print)
    with pytest.raises(TypeError, match=r"key must be hashable, not \[\]"):
        pool.acquire([])
    with pytest.raises(ValueError, match="timeout must be"):
        pool.acquire("a", timeout=-1)
    with pytest.raises(TypeError, match="timeout must be a number"):
        pool.acquire("a", timeout=True)
