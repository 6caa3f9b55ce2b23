"""The pool: what it lends, keeps, replaces and closes, in virtual time."""

import asyncio
import logging
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from local.pool_world import Notes, Works

from tenure.errors import BulkheadFull, PoolClosed, PoolTimeout
from tenure.local._pool import Pool
from tenure.observe import LoggingObserver, Observers
from tenure.testing import assert_checkpoints

JITTER = 0.025


def pool_of(works, **options):
    return Pool(works.create, close=works.close, **options)


async def test_what_comes_back_is_lent_again_the_most_recently_used_first(virtual_clock):
    works = Works()
    async with pool_of(works) as pool:
        async with pool.acquire() as first, pool.acquire() as second:
            assert (first.number, second.number) == (0, 1)
        assert await works.use(pool.acquire()) is first, "the first was left last"
        state = pool.statistics()
        assert (state.size, state.idle, state.lent, state.created) == (2, 2, 0, 2)
        assert repr(pool) == (
            "<Pool open: 2 of 10 slots in use (0 lent, 2 idle, 0 being created, 0 being closed), 0 waiting>"
        )
    assert works.open == []
    assert pool.statistics().closed == 2
    assert pool.statistics().size == 0


async def test_plain_functions_will_do(virtual_clock):
    closed = []
    async with Pool(list, close=closed.append, check=lambda _: None, check_after_idle=0) as pool:
        async with pool.acquire() as first:
            pass
        async with pool.acquire() as again:
            assert again is first
    assert closed == [[]]


async def test_borrowing_is_a_checkpoint_and_giving_back_works_in_a_cancelled_scope(virtual_clock):
    works = Works()
    async with pool_of(works, max_size=1) as pool:
        await works.use(pool.acquire())
        with assert_checkpoints():
            loan = pool.acquire()
            await loan.__aenter__()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await loan.__aexit__(None, None, None)
        assert pool.statistics().idle == 1
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with pool.acquire():
                raise AssertionError
        assert pool.statistics().idle == 1


async def test_a_returned_one_serves_the_waiter_that_caused_a_creation(virtual_clock):
    works = Works(create=5)
    async with pool_of(works, max_size=2) as pool, anyio.create_task_group() as group:
        async with pool.acquire():
            group.start_soon(works.use, pool.acquire(), 0)
            await anyio.sleep(1)
        await virtual_clock.settle()
        assert pool.statistics().tasks_waiting == 0
        assert pool.statistics().creating == 1


async def test_a_creation_that_fails_is_raised_by_all_waiters_if_nothing_can_come_back(virtual_clock):
    """R15: ten waiters must not make ten failing attempts, one after the other."""
    works, errors = Works(create=1), []
    works.errors = [ConnectionError("refused")]

    async def borrow():
        try:
            await works.use(pool.acquire())
        except ConnectionError as error:
            errors.append(error)

    async with pool_of(works) as pool:
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(borrow)
        assert len(errors) == 10
        assert virtual_clock.now() == 1
        state = pool.statistics()
        assert (state.size, state.create_failures) == (0, 1)
        await works.use(pool.acquire())


async def test_a_waiter_that_can_be_served_by_a_return_waits_on_while_creating_is_tried_again(
    virtual_clock, caplog
):
    works = Works()
    async with pool_of(works) as pool:
        async with pool.acquire():
            works.errors = [ConnectionError("too many")] * 1000
            with pytest.raises(PoolTimeout, match="1 of 10 slots in use .1 lent") as caught:
                await works.use(pool.acquire(timeout=60))
            assert isinstance(caught.value.__cause__, ConnectionError)
            assert 10 < pool.statistics().create_failures < 40, "with pauses that grow to five seconds"
            async with anyio.create_task_group() as group:
                group.start_soon(works.use, pool.acquire(), 0)
                await anyio.sleep(1)
                works.errors = []
        assert len(works.things) == 2
        failures = pool.statistics().create_failures
    assert len(caplog.records) == 11, "ten lines, and the number of the others when the pool is closed"
    assert caplog.messages[-1] == f"pool.create_failed left_out={failures - 10}"


async def test_when_the_last_one_breaks_during_a_pause_creating_is_tried_at_once(virtual_clock):
    works = Works()
    async with pool_of(works, max_size=2) as pool, anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with pool.acquire():
                works.errors = [ConnectionError("refused")] * 7
                group.start_soon(works.use, pool.acquire(), 0)
                while works.errors:
                    await anyio.sleep(0.01)
                start = virtual_clock.now()
                scope.cancel()
                await anyio.sleep(0)
        await virtual_clock.settle()
        assert virtual_clock.now() == start
        assert pool.statistics().tasks_waiting == 0


async def test_a_creation_that_hangs_is_given_up(virtual_clock):
    works = Works(create=1000)
    async with pool_of(works, create_timeout=3) as pool:
        with pytest.raises(TimeoutError, match="create took longer than 3 s"):
            await works.use(pool.acquire(timeout=60))
        assert virtual_clock.now() == 3
        assert pool.statistics().size == 0


async def test_the_timeout_reports_the_state_of_the_pool(virtual_clock):
    works = Works()
    async with pool_of(works, max_size=1) as pool, pool.acquire():
        with pytest.raises(
            PoolTimeout, match="no resource within 2.5 s: 1 of 1 slots in use .1 lent"
        ) as late:
            await works.use(pool.acquire(timeout=2.5))
        assert str(late.value).endswith("; this task holds 1 of them itself")
        assert virtual_clock.now() == 2.5
        assert (pool.statistics().timeouts, pool.statistics().tasks_waiting) == (1, 0)


async def test_a_timeout_of_zero_takes_only_what_is_idle(virtual_clock):
    works = Works(create=1, check=1)
    async with pool_of(works, max_size=1, check=works.check, idle_timeout=None) as pool:
        with pytest.raises(PoolTimeout):
            await works.use(pool.acquire(timeout=0))
        await anyio.sleep(2)
        await works.use(pool.acquire(timeout=0), 5)
        await anyio.sleep(5)
        thing = await works.use(pool.acquire(timeout=0))
        assert thing.checks == 2 and not thing.closed
        assert len(works.things) == 1


@pytest.mark.backends("asyncio")  # a scope does not reach a task that was woken
async def test_what_a_task_was_handed_before_it_was_cancelled_goes_to_the_next(virtual_clock):
    """asyncpg #467."""
    works = Works()
    async with pool_of(works, max_size=1) as pool:
        async with pool.acquire() as thing:
            task = asyncio.create_task(works.use(pool.acquire()))
            await virtual_clock.settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await works.use(pool.acquire(timeout=1)) is thing


async def test_so_many_may_wait(virtual_clock):
    works = Works()
    async with pool_of(works, max_size=1, max_waiting=1) as pool, anyio.create_task_group() as group:
        async with pool.acquire():
            group.start_soon(works.use, pool.acquire(), 0)
            await virtual_clock.settle()
            for timeout in (None, 0):
                with pytest.raises(BulkheadFull, match="1 task waits already") as caught:
                    await works.use(pool.acquire(timeout))
                assert (caught.value.limit, caught.value.waiting) == (1, 1)
            assert (pool.statistics().refused, pool.statistics().timeouts) == (2, 0)


async def test_with_no_waiting_at_all_it_lends_while_there_is_room(virtual_clock):
    """psycopg_pool's users write max_waiting=0; it must not be a pool that never creates anything."""
    works = Works(create=1)
    async with pool_of(works, max_size=2, max_waiting=0, idle_timeout=60) as pool:
        for _ in range(2):  # at first, and after it has gone idle
            async with pool.acquire(), pool.acquire():
                with assert_checkpoints(), pytest.raises(BulkheadFull, match="0 tasks wait already: 2 of 2"):
                    await works.use(pool.acquire())
            await anyio.sleep(100)
            assert pool.statistics().size == 0
        assert (pool.statistics().refused, pool.statistics().created) == (2, 4)


async def test_only_those_that_wait_for_a_return_count_as_waiting(virtual_clock):
    works, refused = Works(create=1), []

    async def borrow(name):
        try:
            await works.use(pool.acquire(), 100)
        except BulkheadFull:
            refused.append(name)

    async with pool_of(works, max_size=10, max_waiting=2) as pool, anyio.create_task_group() as group:
        for name in range(13):
            group.start_soon(borrow, name)
            await virtual_clock.settle()
            assert pool.statistics().tasks_waiting == min(name + 1, 12)
        assert refused == [12]
        await anyio.sleep(50)
        assert (pool.statistics().lent, pool.statistics().tasks_waiting) == (10, 2)
        await borrow(13)
        assert refused == [12, 13]


async def test_a_slot_that_is_being_closed_is_room(virtual_clock):
    works = Works(close=5)
    options = {"check": works.check, "check_every": None}
    async with pool_of(works, max_size=1, max_waiting=0, **options) as pool:
        thing = await works.use(pool.acquire())
        thing.healthy = False
        await anyio.sleep(1)
        assert (await works.use(pool.acquire())).number == 1, "the check of the first one has failed"
        pool.reload()
        assert (await works.use(pool.acquire())).number == 2
        assert pool.statistics().refused == 0


async def test_one_that_the_pool_itself_is_checking_is_room(virtual_clock):
    works = Works(check=4)
    options = {"check": works.check, "check_every": 60, "idle_timeout": None}
    async with pool_of(works, max_size=1, max_waiting=0, **options) as pool:
        await works.use(pool.acquire())
        await anyio.sleep(61)
        async with pool.acquire() as thing:
            assert (virtual_clock.now(), thing.number, thing.checks) == (64, 0, 1)
            with pytest.raises(BulkheadFull):
                await works.use(pool.acquire())


# checks


async def test_an_idle_one_is_checked_unless_it_was_just_used(virtual_clock):
    works = Works()
    async with pool_of(works, check=works.check) as pool:
        thing = await works.use(pool.acquire(), 10)
        await anyio.sleep(0.4)
        await works.use(pool.acquire())
        assert thing.checks == 0
        await anyio.sleep(0.5)
        await works.use(pool.acquire())
        assert thing.checks == 1


@pytest.mark.parametrize("answer", ["raises", "hangs", "says no"])
async def test_one_that_fails_its_check_is_replaced(virtual_clock, answer):
    works, notes = Works(), Notes()

    async def check(thing):
        if answer == "hangs":
            await anyio.sleep(1000)
        elif answer == "raises":
            raise ConnectionError
        return False

    async with pool_of(works, check=check, check_timeout=2, observer=notes) as pool:
        async with pool.acquire() as one, pool.acquire() as two:
            pass
        await anyio.sleep(1)
        async with pool.acquire() as three:
            assert three.number == 2
            assert virtual_clock.now() == (5 if answer == "hangs" else 1), "each check is bounded"
        assert one.closed and two.closed
        assert [fields["reason"] for fields in notes.named("pool.closed")] == ["unhealthy"] * 2


async def test_checks_that_always_fail_come_to_an_end(virtual_clock):
    """psycopg #709: a check that never passes must not loop: what was just created is not checked."""
    works = Works()

    async def check(_):
        raise ConnectionError

    async with pool_of(works, max_size=3, check=check, check_after_idle=0) as pool:
        for _ in range(5):
            await works.use(pool.acquire())
        assert len(works.things) == 5


async def test_cancelled_in_a_check_it_raises_and_closes_what_nobody_knows_any_more(virtual_clock):
    """psycopg #1401 and R3: a cancelled check is no answer, and keeps no slot."""
    works = Works(check=3)
    async with pool_of(works, max_size=1, check=works.check) as pool:
        thing = await works.use(pool.acquire())
        await anyio.sleep(1)
        with anyio.move_on_after(1) as scope:
            await works.use(pool.acquire())
        assert scope.cancelled_caught
        assert virtual_clock.now() == 2
        assert (await works.use(pool.acquire(timeout=1))).number == 1
        assert thing.closed


async def test_the_timeout_covers_the_check(virtual_clock):
    works = Works(check=3)
    async with pool_of(works, max_size=1, check=works.check) as pool:
        await works.use(pool.acquire())
        await anyio.sleep(1)
        with pytest.raises(PoolTimeout):
            await works.use(pool.acquire(timeout=2))
        assert virtual_clock.now() == 3


async def test_an_idle_one_is_checked_now_and_then_and_replaced_before_anybody_needs_it(virtual_clock):
    works, notes = Works(check=1), Notes()
    async with pool_of(
        works, check=works.check, min_size=2, check_every=60, idle_timeout=500, observer=notes
    ) as pool:
        await anyio.sleep(130)
        assert [thing.checks for thing in works.things] == [2, 2]
        works.things[0].healthy = False
        await anyio.sleep(60)
        assert works.things[0].closed
        assert pool.statistics().idle == 2
        assert [fields["reason"] for fields in notes.named("pool.closed")] == ["unhealthy"]


async def test_being_checked_does_not_keep_alive_what_nobody_needs(virtual_clock):
    works = Works(check=1)
    async with pool_of(works, check=works.check, check_every=60, idle_timeout=200) as pool:
        async with pool.acquire(), pool.acquire():
            pass
        async with pool.acquire() as used:
            pass
        for _ in range(25):
            await anyio.sleep(10)
            assert await works.use(pool.acquire()) is used
        assert len(works.open) == 1


async def test_one_that_is_being_checked_is_lent_when_it_has_passed(virtual_clock):
    works = Works(check=1)
    async with pool_of(works, check=works.check, max_size=1, check_every=60) as pool:
        thing = await works.use(pool.acquire())
        await anyio.sleep(60.5)
        assert await works.use(pool.acquire()) is thing
        assert virtual_clock.now() == 61
        assert thing.checks == 1


# how the body ended


async def test_an_exception_in_the_body_has_the_resource_checked(virtual_clock):
    works = Works()
    async with pool_of(works, check=works.check) as pool:
        with pytest.raises(KeyError):
            async with pool.acquire() as thing:
                raise KeyError
        assert (thing.checks, pool.statistics().idle) == (1, 1)
        with pytest.raises(KeyError):
            async with pool.acquire() as thing:
                thing.healthy = False
                raise KeyError
        await virtual_clock.settle()
        assert thing.closed
        assert pool.statistics().size == 0


async def test_an_exception_in_the_body_closes_it_if_there_is_neither_check_nor_reset(virtual_clock):
    works = Works()
    async with pool_of(works) as pool:
        with pytest.raises(KeyError):
            async with pool.acquire():
                raise KeyError
        assert (pool.statistics().idle, pool.statistics().lent) == (0, 0)
        assert (await works.use(pool.acquire())).number == 1


async def test_a_cancelled_body_has_its_resource_closed_and_the_slot_comes_back(virtual_clock):
    works, notes = Works(close=1), Notes()
    async with pool_of(works, max_size=1, check=works.check, observer=notes) as pool:
        with anyio.move_on_after(1):
            await works.use(pool.acquire(), 1000)
        assert pool.statistics().closing == 1
        assert (await works.use(pool.acquire())).number == 1
        assert virtual_clock.now() == 2, "the old one was closed before the new one was made"
        assert notes.named("pool.closed")[0] == {"reason": "cancelled", "age": 2}


async def test_a_reset_that_fails_or_hangs_closes_it(virtual_clock):
    works = Works(reset=1)
    async with pool_of(works, max_size=1, reset=works.reset, check_timeout=3) as pool:
        async with pool.acquire() as thing:
            thing.healthy = False
        async with pool.acquire() as other:
            assert thing.closed and not other.closed
            works.times["reset"] = 1000
        await works.use(pool.acquire())
        assert virtual_clock.now() == 1 + 3 + 3


# what ends by itself


async def test_what_nobody_needs_is_closed_down_to_the_minimum(virtual_clock):
    works, notes = Works(), Notes()
    async with pool_of(works, min_size=1, max_size=3, idle_timeout=60, observer=notes) as pool:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(works.use, pool.acquire(), 1)
        assert pool.statistics().idle == 3
        await anyio.sleep(59)
        assert pool.statistics().idle == 3
        await anyio.sleep(2)
        assert pool.statistics().idle == 1
        await anyio.sleep(1000)
        assert len(works.open) == 1
        assert {fields["reason"] for fields in notes.named("pool.closed")} == {"idle"}


async def test_the_minimum_is_there_from_the_start_and_kept(virtual_clock):
    works = Works(create=1)
    async with pool_of(works, min_size=2) as pool:
        assert virtual_clock.now() == 2
        assert pool.statistics().idle == 2
        with anyio.move_on_after(1):
            await works.use(pool.acquire(), 1000)
        await anyio.sleep(1.5)
        assert pool.statistics().idle == 2
        assert len(works.things) == 3


async def test_a_minimum_that_cannot_be_made_is_tried_again(virtual_clock):
    works, notes = Works(), Notes()
    works.errors = [ConnectionError("down")] * 5
    async with pool_of(works, min_size=2, observer=notes) as pool:
        assert pool.statistics().size <= 1, "it is open, and will be tried again"
        await anyio.sleep(10)
        assert pool.statistics().idle == 2
        assert len(notes.named("pool.create_failed")) == 5


async def test_a_caller_in_a_pause_of_a_failing_pool_gets_an_answer_at_once(virtual_clock):
    works = Works()
    works.errors = [ConnectionError("down")] * 20
    async with pool_of(works, min_size=1) as pool:
        await anyio.sleep(5)
        left = len(works.errors)
        assert left > 1
        now = virtual_clock.now()
        with pytest.raises(ConnectionError):
            await works.use(pool.acquire())
        assert virtual_clock.now() == now
        assert len(works.errors) == left - 1


@pytest.mark.parametrize("busy", [False, True])
async def test_none_is_lent_beyond_its_lifetime(virtual_clock, busy):
    """HikariCP #2014 and bb8 #224: a pool in which nothing is ever idle must renew its resources too."""
    works, notes = Works(), Notes()
    async with pool_of(works, max_size=2, max_lifetime=100, observer=notes) as pool:

        async def keep_busy():
            while virtual_clock.now() < 500:
                await works.use(pool.acquire(), 3)
                if not busy:
                    await anyio.sleep(3)

        async with anyio.create_task_group() as group:
            for _ in range(3 if busy else 2):
                group.start_soon(keep_busy)
        ages = [fields["age"] for fields in notes.named("pool.closed") if fields["reason"] == "lifetime"]
    assert len(ages) >= 8
    assert all(100 * (1 - JITTER) <= age <= 104 for age in ages)


async def test_a_lifetime_ends_while_idle_too_and_the_minimum_is_kept(virtual_clock):
    works, notes = Works(), Notes()
    async with pool_of(works, min_size=2, max_lifetime=100, idle_timeout=None, observer=notes) as pool:
        await anyio.sleep(1000)
        assert pool.statistics().idle == 2
    ages = [fields["age"] for fields in notes.named("pool.closed") if fields["reason"] == "lifetime"]
    assert len(ages) == 20
    assert all(100 * (1 - JITTER) <= age <= 100 for age in ages)
    assert len(set(ages)) == 20, "they do not all end together"


async def test_a_lifetime_that_ends_soon_after_its_return_is_noticed(virtual_clock):
    works = Works()
    async with pool_of(works, max_lifetime=100, idle_timeout=60) as pool:
        thing = await works.use(pool.acquire(), 90)
        await anyio.sleep(11)
        assert thing.closed


async def test_a_reload_replaces_what_is_idle_now_and_what_is_lent_when_it_comes_back(virtual_clock):
    works = Works()
    async with pool_of(works, min_size=1, max_size=3) as pool:
        async with pool.acquire() as lent:
            async with pool.acquire() as idle:
                pass
            pool.reload()
            await virtual_clock.settle()
            assert idle.closed and not lent.closed
            async with pool.acquire() as new:
                assert new.number == 2
        await virtual_clock.settle()
        assert lent.closed and not new.closed


# closing


async def test_draining_waits_for_what_is_lent_and_closes_everything(virtual_clock):
    works = Works(close=1)
    async with pool_of(works, max_size=2) as pool, anyio.create_task_group() as group:
        group.start_soon(works.use, pool.acquire(), 10)
        group.start_soon(works.use, pool.acquire(), 5)

        async def too_late():
            with pytest.raises(PoolClosed):
                await works.use(pool.acquire())

        await anyio.sleep(1)
        group.start_soon(too_late)
        await anyio.sleep(1)
        await pool.drain()
        assert virtual_clock.now() == 11
        assert works.open == []
        await too_late()
        with pytest.raises(PoolClosed):
            pool.reload()
        await pool.drain()


async def test_a_drain_that_is_cancelled_lends_nothing_more_all_the_same(virtual_clock):
    works = Works()
    async with pool_of(works) as pool, anyio.create_task_group() as group:
        group.start_soon(works.use, pool.acquire(), 5)
        await anyio.sleep(1)
        with anyio.move_on_after(1):
            await pool.drain()
        assert virtual_clock.now() == 2
        with pytest.raises(PoolClosed):
            await works.use(pool.acquire())


async def test_leaving_waits_for_what_is_lent_even_if_cancelled(virtual_clock):
    works = Works(close=1)
    async with anyio.create_task_group() as group:
        with anyio.move_on_after(2):
            async with pool_of(works) as pool:
                group.start_soon(works.use, pool.acquire(), 5)
                await anyio.sleep_forever()
        assert virtual_clock.now() == 6
        assert works.open == []
        with pytest.raises(PoolClosed):
            await works.use(pool.acquire())


async def test_what_does_not_come_back_in_time_is_closed_all_the_same(virtual_clock):
    works, notes = Works(), Notes()
    async with pool_of(works, close_timeout=3, observer=notes) as pool:
        loan = pool.acquire()
        thing = await loan.__aenter__()
    assert virtual_clock.now() == 3
    assert thing.closed
    assert notes.named("pool.closed") == [{"reason": "closed while lent", "age": 3}]
    await loan.__aexit__(None, None, None)


async def test_leaving_cancels_a_creation_and_gives_up_a_closing(virtual_clock):
    works, notes = Works(), Notes()
    async with pool_of(works, close_timeout=3, observer=notes) as pool, anyio.create_task_group() as group:
        async with pool.acquire():
            works.times.update(create=1000, close=1000)
            with pytest.raises(PoolTimeout):
                await works.use(pool.acquire(timeout=1))
            group.cancel_scope.cancel()
    assert virtual_clock.now() == 4
    assert works.creating == 0
    assert "close took longer than 3 s" in str(notes.named("pool.close_failed")[0]["error"])


async def test_an_error_of_the_body_leaves_as_it_was_raised(virtual_clock):
    works = Works()
    with pytest.raises(KeyError):
        async with pool_of(works, min_size=1):
            raise KeyError
    assert len(works.things) == 1 and works.open == []


async def test_cancelled_while_it_opens_it_leaves_nothing(virtual_clock):
    works = Works(create=1)
    with anyio.move_on_after(1.5):
        async with pool_of(works, min_size=2):
            raise AssertionError
    assert works.creating == 0 and len(works.things) == 1 and works.open == []


async def test_it_is_opened_once_and_used_inside(virtual_clock):
    works = Works()
    pool = pool_of(works)
    for misuse in (pool.acquire().__aenter__, pool.drain):
        with pytest.raises(RuntimeError, match="not open"):
            await misuse()
    with pytest.raises(RuntimeError, match="not open"):
        pool.reload()
    async with pool:
        with pytest.raises(RuntimeError, match="already been entered"):
            async with pool:
                pass
        loan = pool.acquire()
        async with loan:
            pass
        with pytest.raises(RuntimeError, match="for one block"):
            await loan.__aenter__()
        with pytest.raises(RuntimeError, match="nothing was borrowed"):
            await loan.__aexit__(None, None, None)
    with pytest.raises(RuntimeError, match="only once"):
        async with pool:
            pass


# what it tells


async def test_a_leak_is_reported_once_with_the_place_where_it_was_taken(virtual_clock, caplog):
    works = Works()
    async with pool_of(works, leak_after=10) as pool, anyio.create_task_group() as group:

        async def forgetful():
            @asynccontextmanager
            async def borrows():
                # a context manager between the user's frames is none of them
                async with pool.acquire():
                    yield

            async with borrows():
                await anyio.sleep(35)

        group.start_soon(forgetful, name="forgetful")
        await anyio.sleep(9)
        assert pool.leaks() == () and pool.statistics().leaked == 0
        await anyio.sleep(11)
        (leak,) = pool.leaks()
        assert (leak.task, leak.seconds) == ("forgetful", 20)
        line = forgetful.__code__.co_firstlineno
        assert leak.where == (
            f"{__file__}:{line + 7} in forgetful > {__file__}:{line + 4} in borrows: async with pool.acquire():"
        )
        assert pool.statistics().leaked == 1
        await anyio.sleep(20)
        assert pool.leaks() == ()
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.WARNING, "tenure")
    assert "pool.leak task=forgetful seconds=10" in record.message


async def test_what_happens_is_reported(virtual_clock):
    works, notes = Works(create=2), Notes()
    async with pool_of(works, observer=notes) as pool:
        await works.use(pool.acquire(), 3)
    assert notes == [
        ("pool.created", {"seconds": 2}),
        ("pool.closed", {"reason": "closed", "age": 3}),
    ]


async def test_a_close_that_fails_is_reported_and_keeps_no_slot(virtual_clock, caplog):
    works = Works()

    async def close(thing):
        raise OSError("gone")

    async with Pool(works.create, close=close, max_size=1) as pool:
        await works.use(pool.acquire())
        pool.reload()
        await works.use(pool.acquire())
    assert [record.message for record in caplog.records] == ["pool.close_failed error=OSError('gone')"] * 2


HOOKS = pytest.mark.parametrize("hook", ["create", "check", "reset", "close"])


async def fails_in(hook, **options):
    """Borrow twice, with a function that fails every time; a creation fails only the first time."""
    works, failures = Works(), []

    def typo(*_):
        failures.append(hook)
        raise AttributeError("rolback")

    async def create():
        return typo() if hook == "create" and not failures else await works.create()

    functions = {"close": works.close, hook: typo} | {"create": create}
    async with Pool(functions.pop("create"), **functions, check_after_idle=0, **options) as pool:
        for _ in range(2):
            with suppress(AttributeError):
                await works.use(pool.acquire())
    return len(failures)


@HOOKS
@pytest.mark.parametrize("level", ["WARNING", "DEBUG"])
async def test_what_a_function_raises_is_logged_and_observed(virtual_clock, caplog, hook, level):
    """psycopg_pool's test_reset_broken: a typo in a reset must not turn the pool into a connection for each use."""
    caplog.set_level(level, logger="tenure")
    notes = Notes()
    times = await fails_in(hook, observer=notes)
    assert [str(fields["error"]) for fields in notes.named(f"pool.{hook}_failed")] == ["rolback"] * times
    assert times > 0 and len(caplog.records) == times, "each failure once"
    for record in caplog.records:
        assert (record.levelname, record.name) == ("WARNING", "tenure")
        assert record.message == f"pool.{hook}_failed error=AttributeError('rolback')"
        # a server that is gone fails all idle resources at once: a line for each
        assert ('raise AttributeError("rolback")' in (record.exc_text or "")) is (level == "DEBUG")


@HOOKS
async def test_an_observer_that_logs_too_logs_no_failure_twice(virtual_clock, caplog, hook):
    caplog.set_level(logging.DEBUG)
    times = await fails_in(hook, observer=Observers(LoggingObserver()))
    assert [record.levelno for record in caplog.records if "_failed" in record.message] == [30] * times


async def test_an_observer_that_logs_elsewhere_has_the_failures_there(virtual_clock, caplog):
    caplog.set_level(logging.DEBUG)
    times = await fails_in("check", observer=LoggingObserver(logging.getLogger("mine")))
    mine = [record for record in caplog.records if record.name == "mine" and "_failed" in record.message]
    assert [record.exc_info[0] for record in mine] == [AttributeError] * times
    assert {record.levelname for record in mine} == {"WARNING"}


async def test_a_check_or_reset_that_takes_too_long_is_named(virtual_clock, caplog):
    works = Works(check=1000, reset=1000)
    options = {"check": works.check, "reset": works.reset}
    async with pool_of(works, **options, check_timeout=3, check_every=None) as pool:
        await works.use(pool.acquire())
        works.times["reset"] = 0
        await works.use(pool.acquire())
        await anyio.sleep(1)
        await works.use(pool.acquire())
    assert [record.message for record in caplog.records] == [
        "pool.reset_failed error=TimeoutError('reset took longer than 3 s')",
        "pool.check_failed error=TimeoutError('check took longer than 3 s')",
    ]


async def test_an_answer_of_no_is_no_error(virtual_clock, caplog):
    works, notes = Works(), Notes()
    async with pool_of(works, check=lambda _: False, check_after_idle=0, observer=notes) as pool:
        for _ in range(2):
            await works.use(pool.acquire())
    assert [fields["reason"] for fields in notes.named("pool.closed")] == ["unhealthy", "closed"]
    assert caplog.records == []


async def test_an_observer_that_fails_is_logged_and_stops_nothing(virtual_clock, caplog):
    class Broken:
        def notice(self, event, /, **fields):
            raise KeyError(event)

    works = Works()
    async with pool_of(works, observer=Broken()) as pool:
        await works.use(pool.acquire())
    assert [record.message for record in caplog.records] == [
        "the observer failed at pool.created seconds=0.0 error=KeyError('pool.created')",
        "the observer failed at pool.closed reason=closed age=0.0 error=KeyError('pool.closed')",
    ]
    assert works.open == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_size": 0}, ValueError, "max_size must be at least 1, not 0"),
        ({"max_size": 1.5}, TypeError, "max_size must be an int"),
        ({"min_size": -1}, ValueError, "min_size must be at least 0"),
        ({"min_size": 11}, ValueError, "min_size must be at most the max_size of 10, not 11"),
        ({"max_waiting": -1}, ValueError, "max_waiting must be at least 0"),
        ({"idle_timeout": 0}, ValueError, "idle_timeout must be more than 0 seconds"),
        ({"max_lifetime": "1"}, TypeError, "max_lifetime must be a number of seconds"),
        ({"check_timeout": -1}, ValueError, "check_timeout must be more than 0 seconds"),
        ({"create_timeout": 0}, ValueError, "create_timeout must be"),
        ({"close_timeout": 0}, ValueError, "close_timeout must be"),
        ({"check_after_idle": -1}, ValueError, "check_after_idle must be 0 or more seconds"),
        ({"leak_after": 0}, ValueError, "leak_after must be"),
        ({"check": 1}, TypeError, "check must be a function, not 1"),
        ({"reset": 1}, TypeError, "reset must be a function"),
        ({"close": None}, TypeError, "close must be a function"),
    ],
)
def test_arguments_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        Pool(list, **({"close": print} | options))


def test_a_pool_needs_a_function_that_creates_and_a_timeout_that_is_one():
    with pytest.raises(TypeError, match="create must be a function, not 1"):
        Pool(1, close=print)
    with pytest.raises(ValueError, match="timeout must be 0 or more seconds, or None, not -1"):
        Pool(list, close=print).acquire(timeout=-1)
    with pytest.raises(TypeError, match="timeout must be a number of seconds, a timedelta or None, not '5'"):
        Pool(list, close=print).acquire(timeout="5")


# another size


async def test_more_slots_serve_waiting_tasks_at_once(virtual_clock):
    works = Works()
    async with pool_of(works, max_size=1) as pool, anyio.create_task_group() as group:
        got = []

        async def borrow():
            async with pool.acquire() as resource:
                got.append(resource)
                await anyio.sleep(100)

        for _ in range(3):
            group.start_soon(borrow)
        await anyio.sleep(1)
        assert len(got) == 1
        pool.resize(3)
        await anyio.sleep(1)
        assert len(got) == 3
        assert pool.statistics().max_size == 3
        group.cancel_scope.cancel()


async def test_with_fewer_slots_idle_ones_are_closed_and_lent_ones_when_they_come_back(virtual_clock):
    works, notes = Works(), Notes()
    async with pool_of(works, max_size=4, max_waiting=1, observer=notes) as pool:
        loans = [pool.acquire() for _ in range(4)]
        things = [await loan.__aenter__() for loan in loans]
        for loan in loans[2:]:
            await loan.__aexit__(None, None, None)
        pool.resize(1)
        await anyio.sleep(1)
        assert works.open == things[:2]
        served = []

        async def borrow():
            async with pool.acquire() as thing:
                served.append(thing)

        async with anyio.create_task_group() as group:
            group.start_soon(borrow)  # it may wait, although more are lent than there are slots
            await anyio.sleep(1)
            with pytest.raises(BulkheadFull):
                await works.use(pool.acquire())
            await loans[1].__aexit__(None, None, None)
            await anyio.sleep(1)
            assert (served, works.open) == ([], things[:1])
            await loans[0].__aexit__(None, None, None)
        assert served == things[:1]
        state = pool.statistics()
        assert (state.size, state.max_size, state.idle, state.created) == (1, 1, 1, 4)
        assert [fields["reason"] for fields in notes.named("pool.closed")] == ["resized"] * 3


async def test_one_that_is_being_created_may_be_one_too_many(virtual_clock):
    works = Works(create=1)
    async with pool_of(works, max_size=2) as pool, anyio.create_task_group() as group:
        group.start_soon(works.use, pool.acquire(), 0.5)
        group.start_soon(works.use, pool.acquire(), 0.5)
        await anyio.sleep(1.2)
        assert (pool.statistics().lent, pool.statistics().creating) == (1, 1)
        pool.resize(1)
        await anyio.sleep(5)
        assert (pool.statistics().size, pool.statistics().idle) == (1, 1)


async def test_which_sizes_there_are(virtual_clock):
    works = Works()
    pool = pool_of(works, min_size=2)
    with pytest.raises(RuntimeError, match="not open"):
        pool.resize(3)
    async with pool:
        with pytest.raises(ValueError, match="max_size must be at least the min_size of 2, not 1"):
            pool.resize(1)
        with pytest.raises(TypeError, match="max_size"):
            pool.resize("3")
        pool.resize(2)
        assert pool.statistics().idle == 2
    with pytest.raises(PoolClosed):
        pool.resize(3)
