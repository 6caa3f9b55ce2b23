from __future__ import annotations

import asyncio
from math import inf, nan

import anyio
import depth
import pytest

import tenure
from tenure import Limit, OutcomeUnknown, RateLimiter, WouldExceedDeadline
from tenure.engine import Refund, Spend
from tenure.testing import Fault, assert_checkpoints
from tenure.waiting import Line

NEAR = 0.002  # engines may keep time in microseconds


@pytest.mark.parametrize(("rate", "burst"), [(1, 1), (10, 1), (100, 5), (0.5, 2), (3, 3), (7, 1.5)])
async def test_rate_and_burst_are_exact(store, virtual_clock, rate, burst):
    limiter = RateLimiter(store, "api", Limit(rate, burst=burst))
    count = int(burst) + 20
    start = virtual_clock.now()
    for _ in range(count):
        await limiter.acquire()
    # the burst, and then one by one
    assert virtual_clock.now() - start == pytest.approx(max(0, count - burst) / rate, abs=NEAR)


async def test_a_block_spends_one_before_it_and_gives_nothing_back(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(1, burst=2))
    begin = virtual_clock.now()
    for _ in range(3):
        async with limiter:
            pass
    assert virtual_clock.now() - begin == pytest.approx(1, abs=NEAR)
    with pytest.raises(ZeroDivisionError):
        async with limiter:
            raise ZeroDivisionError
    assert not await limiter.try_acquire()


async def test_what_is_free_is_not_refused_for_a_rounding_error(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(3, burst=1))
    times = depth.share(200)
    for _ in range(times):
        assert await limiter.try_acquire()
        await anyio.sleep(1 / 3)
    assert await limiter.try_acquire()
    for _ in range(times):
        await anyio.sleep(0.4)
        assert await limiter.try_acquire()
        assert not await limiter.try_acquire()


async def test_the_defaults(store, virtual_clock):
    # burst: what comes in `per` seconds
    limiter = RateLimiter(store, "api", Limit(5, per=60))
    assert [await limiter.try_acquire() for _ in range(6)] == [True] * 5 + [False]
    start = virtual_clock.now()
    await limiter.acquire()
    assert virtual_clock.now() - start == pytest.approx(12, abs=NEAR)
    slow = RateLimiter(store, "slow", Limit(0.5))
    assert [await slow.try_acquire() for _ in range(2)] == [True, False]


async def test_one_round_trip_even_when_it_has_to_wait(recording, virtual_clock):
    async with tenure.open_store(recording, ttl=300) as store:
        limiter = RateLimiter(store, "api", Limit(1, burst=1))
        await limiter.acquire()
        recording.take()
        await limiter.acquire()
        assert len(recording.take(Spend, Refund)) == 1


@pytest.mark.parametrize(("rate", "burst"), [(1, 100), (10_000, 1)], ids=["free", "due soon"])
async def test_many_callers_share_a_round_trip(recording, virtual_clock, rate, burst):
    async with tenure.open_store(recording, ttl=300) as store:
        limiter = RateLimiter(store, "api", Limit(rate, burst=burst))
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(limiter.acquire)
        assert len(recording.take(Spend, Refund)) == 1


async def test_refused_at_once_when_the_deadline_does_not_leave_the_time(recording, virtual_clock):
    async with tenure.open_store(recording, ttl=300) as store:
        limiter = RateLimiter(store, "api", Limit(1, burst=1))
        await limiter.acquire()
        start = virtual_clock.now()
        recording.take()
        with anyio.fail_after(0.5), pytest.raises(WouldExceedDeadline) as refused:
            await limiter.acquire(fail_fast=True)
        assert virtual_clock.now() == start
        assert refused.value.delay == pytest.approx(1, abs=NEAR)
        assert len(recording.take(Spend, Refund)) == 1
        # nothing was booked
        await limiter.acquire(fail_fast=True)
        assert virtual_clock.now() - start == pytest.approx(1, abs=NEAR)


async def test_by_default_it_sleeps_out_its_scope_and_books_nothing(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(1, burst=1))
    await limiter.acquire()
    start = virtual_clock.now()
    for _ in range(3):
        with anyio.move_on_after(0.25) as scope:
            await limiter.acquire()
        assert scope.cancelled_caught
    assert virtual_clock.now() - start == pytest.approx(0.75)
    await limiter.acquire()
    assert virtual_clock.now() - start == pytest.approx(1, abs=NEAR)


async def test_a_deadline_that_is_moved_meanwhile(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(1, burst=1))
    await limiter.acquire()
    start = virtual_clock.now()
    async with anyio.create_task_group() as group:
        with anyio.move_on_after(0.5) as scope:

            async def postpone():
                await anyio.sleep(0.25)
                scope.deadline = inf

            group.start_soon(postpone)
            await limiter.acquire()
    assert not scope.cancelled_caught
    assert virtual_clock.now() - start == pytest.approx(1, abs=NEAR)


async def test_in_a_scope_that_is_cancelled_already(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(1, burst=1))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await limiter.acquire()
    assert scope.cancelled_caught
    assert await limiter.try_acquire()


@pytest.mark.backends("asyncio")
async def test_booked_and_then_cancelled_in_the_same_turn(store, virtual_clock, monkeypatch):
    """W3, natively: the only cancellation that still reaches one that was handed something."""

    class Cancelling(Line):
        __slots__ = ()

        def grant(self, waiter, value):
            granted = super().grant(waiter, value)
            spending.cancel()
            return granted

    monkeypatch.setattr("tenure.shared.limits._lanes.Line", Cancelling)
    limiter = RateLimiter(store, "api", Limit(1, burst=1))
    spending = asyncio.get_running_loop().create_task(limiter.try_acquire())
    with pytest.raises(asyncio.CancelledError):
        await spending
    await virtual_clock.settle()
    assert await limiter.try_acquire()


async def test_the_outcome_is_unknown_when_the_session_ended_meanwhile(faulty, faulty_store, virtual_clock):
    limiter = RateLimiter(faulty_store, "api", Limit(1))
    await limiter.acquire()
    faulty.plan(Fault.LOST_REPLY, on=Spend)
    faulty.plan(Fault.LOST_REQUEST, times=30)
    with pytest.raises(OutcomeUnknown, match="spending may or may not"):
        await limiter.acquire()
    await limiter.acquire()


async def test_a_frozen_link_delays_and_no_more(faulty, faulty_store, virtual_clock):
    limiter = RateLimiter(faulty_store, "api", Limit(1, burst=2))
    await limiter.acquire()
    faulty.pause(before_effect=True)
    async with anyio.create_task_group() as group:
        group.start_soon(limiter.acquire)
        await anyio.sleep(20)
        faulty.resume()


async def test_it_is_a_checkpoint(store):
    limiter = RateLimiter(store, "api", Limit(100))
    await limiter.acquire()
    with assert_checkpoints():
        await limiter.acquire()
    with assert_checkpoints():
        await limiter.try_acquire()


async def test_wrong_arguments(store):
    for wrong in (0, -1, inf, nan):
        with pytest.raises(ValueError, match="rate"):
            RateLimiter(store, "api", Limit(wrong))
        with pytest.raises(ValueError, match="per"):
            RateLimiter(store, "api", Limit(1, per=wrong))
        with pytest.raises(ValueError, match="cost"):
            await RateLimiter(store, "api", Limit(1)).acquire(wrong)
    for wrong in (0.5, inf, nan):
        with pytest.raises(ValueError, match="burst"):
            RateLimiter(store, "api", Limit(1, burst=wrong))
    for name in ("rate", "per", "burst"):
        with pytest.raises(TypeError, match=f"{name} must be a number.*, not str"):
            Limit(**{"rate": 1, name: "5"})
    with pytest.raises(ValueError, match="at most the burst of 2"):
        await RateLimiter(store, "api", Limit(1, burst=2)).try_acquire(3)
    with pytest.raises(ValueError, match="name"):
        RateLimiter(store, "", Limit(1))
