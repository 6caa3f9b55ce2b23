"""Several limits at once, corrections, and holding off."""

from __future__ import annotations

import logging

import anyio
import depth
import pytest

import tenure
from tenure import Limit, RateLimiter, StoreClosed, WouldExceedDeadline
from tenure.engine import HoldOff, Refund, Scan, Spend
from tenure.testing import Fault

NEAR = 0.002
LLM = [Limit(60, per=60), Limit(6000, per=60, unit="tokens")]


def near(*times):
    return [pytest.approx(time, abs=NEAR) for time in times]


async def test_two_limits_of_one_unit(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(10, per=1), Limit(30, per=60))
    start = virtual_clock.now()
    for _ in range(31):
        await limiter.acquire()
    assert virtual_clock.now() - start == pytest.approx(2, abs=0.5)
    await limiter.acquire()
    assert virtual_clock.now() - start == pytest.approx(4, abs=0.5)


async def test_one_round_trip_for_all_limits(recording, virtual_clock):
    async with tenure.open_store(recording, ttl=300) as store:
        limiter = RateLimiter(store, "llm", *LLM)
        await limiter.acquire()
        recording.take()
        await limiter.acquire({"tokens": 6000})
        async with limiter.spend({"tokens": 600}) as spending:
            spending.correct({"tokens": 500})
        await virtual_clock.settle()
        assert [type(one) for one in recording.take(Spend, Refund, HoldOff, Scan)] == [
            Spend,
            Spend,
            Refund,
        ]
        other = RateLimiter(store, "other", *LLM)
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(correct, other)
        await virtual_clock.settle()
        assert len(recording.take(Spend, Refund)) <= 4


async def correct(limiter, booked=100, cost=50):
    async with limiter.spend({"tokens": booked}) as spending:
        spending.correct({"tokens": cost})


@pytest.mark.parametrize("how", ["left", "raises", "cancelled"])
async def test_a_correction_counts_however_the_block_ends(store, virtual_clock, how):
    limiter = RateLimiter(store, "llm", *LLM)
    with anyio.CancelScope() as scope:
        try:
            async with limiter.spend({"tokens": 4000}) as spending:
                spending.correct({"tokens": 1000})
                if how == "raises":
                    raise ZeroDivisionError
                if how == "cancelled":
                    scope.cancel()
                    await anyio.sleep(1)
        except ZeroDivisionError:
            pass
    await virtual_clock.settle()
    state = await limiter.state()
    assert state.available["tokens"] == pytest.approx(5000, abs=1)
    assert state.available == pytest.approx(59, abs=0.1)


async def test_without_a_correction_it_stays_as_booked(store, virtual_clock):
    limiter = RateLimiter(store, "llm", *LLM)
    with pytest.raises(ZeroDivisionError):
        async with limiter.spend({"tokens": 4000}):
            raise ZeroDivisionError
    assert (await limiter.state()).available["tokens"] == pytest.approx(2000, abs=1)


async def test_another_task_than_the_one_that_spent_may_correct(store, virtual_clock):
    limiter = RateLimiter(store, "llm", *LLM)
    async with limiter.spend({"tokens": 4000}) as spending, anyio.create_task_group() as group:
        group.start_soon(correct_later, spending)
    await virtual_clock.settle()
    assert (await limiter.state()).available["tokens"] == pytest.approx(5100, abs=1)


async def correct_later(spending):
    await anyio.sleep(1)
    spending.correct({"tokens": 1000})


async def test_a_block_is_for_one_use(store, virtual_clock):
    limiter = RateLimiter(store, "llm", *LLM)
    block = limiter.spend({"tokens": 4000})
    with pytest.raises(RuntimeError, match="tenure:rate:llm: this block was not entered"):
        await block.__aexit__(None, None, None)
    async with block as spending:
        with pytest.raises(
            RuntimeError, match="tenure:rate:llm: this block was entered before; make a new one"
        ):
            await block.__aenter__()
        spending.correct({"tokens": 1000})
    with pytest.raises(RuntimeError, match="entered before"):
        await block.__aenter__()
    await virtual_clock.settle()
    assert (await limiter.state()).available["tokens"] == pytest.approx(5000, abs=1)


async def test_a_cost_above_the_burst_is_a_debt(store, virtual_clock):
    limiter = RateLimiter(store, "llm", *LLM)
    async with limiter.spend({"tokens": 6000}) as spending:
        spending.correct({"tokens": 9000})
    state = await limiter.state()
    assert (state.available["tokens"], state.retry_after) == (0, 0)
    start = virtual_clock.now()
    await limiter.acquire({"tokens": 1000})
    assert virtual_clock.now() - start == pytest.approx(40, abs=NEAR)


async def test_a_correction_is_booked_when_the_store_closes_behind_it(open_store_on, virtual_clock):
    async with open_store_on(ttl=3) as other:
        async with open_store_on(ttl=3) as store:
            await correct(RateLimiter(store, "llm", *LLM), 4000, 1000)
        state = await RateLimiter(other, "llm", *LLM).state()
        assert state.available["tokens"] == pytest.approx(5000, abs=1)


async def test_a_correction_that_cannot_be_booked_is_seen(faulty, virtual_clock, caplog):
    async with tenure.open_store(faulty, ttl=3) as store:
        limiter = RateLimiter(store, "llm", *LLM)
        await limiter.acquire()
        with caplog.at_level(logging.WARNING, "tenure"):
            async with limiter.spend({"tokens": 100}) as spending:
                spending.correct({"tokens": 50})
                faulty.plan(Fault.LOST_REPLY, on=Refund)
                faulty.plan(Fault.LOST_REQUEST, times=30)
            await anyio.sleep(30)
        assert "limiter.correction_failed" in caplog.text
        caplog.clear()
        with pytest.raises(StoreClosed), caplog.at_level(logging.WARNING, "tenure"):
            async with limiter.spend() as spending:
                spending.correct(2)
                store._handle._refuse()
                raise StoreClosed("closed")
        assert "limiter.correction_failed" in caplog.text


# holding off


async def test_the_end_of_a_hold_off_costs_the_same_however_many_wait(recording, virtual_clock):
    async with tenure.open_store(recording, ttl=300) as store:
        limiter = RateLimiter(store, "api", Limit(1000, burst=1))
        async with anyio.create_task_group() as group:
            for _ in range(depth.share(1000)):
                group.start_soon(limiter.acquire)
            await virtual_clock.settle()
            recording.take()
            await limiter.hold_off(10)
            await anyio.sleep(9.9)
            # a look when it is held off, and one for the hint; nothing when that ends
            assert [type(one) for one in recording.take(Spend, Refund, HoldOff, Scan)] == [
                HoldOff,
                Scan,
                Scan,
            ]


@pytest.mark.parametrize("waits", ["booked", "beyond the scope", "spends"])
async def test_a_hold_ends_at_once(store, virtual_clock, waits):
    limiter, went = RateLimiter(store, "api", Limit(2, burst=1)), []

    async def caller():
        if waits == "beyond the scope":
            with anyio.fail_after(60):
                await limiter.acquire()
        elif waits == "spends":
            async with limiter.spend():
                pass
        else:
            await limiter.acquire()
        went.append(virtual_clock.now())

    await limiter.hold_off(36_000)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(caller)
        await anyio.sleep(5)
        assert went == []
        ended = virtual_clock.now()
        await limiter.hold_off(0)
    assert [at - ended for at in went] == pytest.approx([0, 0.5, 1.0], abs=0.1)
    state = await limiter.state()
    assert state.held_off == 0
    await limiter.hold_off(0)


async def test_an_end_and_a_hold_of_the_same_moment_keep_their_order(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(2))
    for calls, left in (((0, 60), 60), ((60, 0), 0), ((3600, 0, 30, 20), 30)):
        await limiter.hold_off(600)
        async with anyio.create_task_group() as group:
            for seconds in calls:
                group.start_soon(limiter.hold_off, seconds)
                await virtual_clock.settle()
        assert (await limiter.state()).held_off == pytest.approx(left, abs=0.1)
        await limiter.hold_off(0)


async def test_a_look_at_one_that_is_held_off(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(2, burst=4))
    await limiter.acquire(4)
    await limiter.hold_off(5)
    state = await limiter.state()
    assert (state.available, state.held_off, state.retry_after) == (0, *near(5, 5.5))
    assert not await limiter.try_acquire()
    with anyio.fail_after(1), pytest.raises(WouldExceedDeadline) as refused:
        await limiter.acquire(fail_fast=True)
    assert refused.value.retry_after == refused.value.delay == pytest.approx(5.5, abs=NEAR)
    await anyio.sleep(6)
    state = await limiter.state()
    assert (state.available, state.retry_after, state.held_off) == (pytest.approx(2, abs=0.01), 0, 0)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", True])
async def test_odd_times_are_refused(store, seconds):
    with pytest.raises((TypeError, ValueError), match="seconds must be"):
        await RateLimiter(store, "api", Limit(1)).hold_off(seconds)


# other figures


async def test_another_object_has_other_figures_from_its_next_booking_on(store, virtual_clock):
    slow = RateLimiter(store, "api", Limit(1, burst=10))
    fast = RateLimiter(store, "api", Limit(10, burst=10))
    await slow.acquire(10)
    start, times = virtual_clock.now(), []

    async def call(limiter, cost):
        await limiter.acquire(cost)
        times.append(virtual_clock.now() - start)

    async with anyio.create_task_group() as group:
        group.start_soon(call, slow, 5)  # keeps its booking, for 5 s
        await virtual_clock.settle()
        group.start_soon(call, fast, 5)  # a debt of 10 calls more than the burst is one of 1 s now
    assert times == near(1, 5)
    assert (await fast.state()).available == 10


async def test_a_limit_of_another_time_is_another_limit(store, virtual_clock):
    assert await RateLimiter(store, "api", Limit(1, per=60)).try_acquire()
    assert not await RateLimiter(store, "api", Limit(1, per=60)).try_acquire()
    assert await RateLimiter(store, "api", Limit(1, per=30)).try_acquire()


# what is fair, and what is left


async def test_two_objects_of_a_name_with_different_limits(store, virtual_clock):
    """The limits change while the old ones are in use: what was spent stays spent, in amount."""
    old = RateLimiter(store, "llm", *LLM)
    new = RateLimiter(store, "llm", Limit(120, per=60), Limit(5, per=1, unit="a b\n'%s' é"))
    async with anyio.create_task_group() as group:
        for limiter in (old, new) * 10:
            group.start_soon(limiter.acquire)
    assert (await new.state()).available == pytest.approx(100, abs=0.5)
    assert (await old.state()).available == pytest.approx(40, abs=0.5)
    assert (await new.state()).available["a b\n'%s' é"] == 5


async def test_a_mapping_may_change_while_its_spender_waits(store, virtual_clock):
    limiter, cost = RateLimiter(store, "llm", *LLM), {"tokens": 6000}
    await limiter.acquire(cost)
    async with anyio.create_task_group() as group:
        group.start_soon(limiter.acquire, cost)
        await virtual_clock.settle()
        cost["tokens"] = 1
    assert (await limiter.state()).available["tokens"] == pytest.approx(0, abs=1)
    cost["tokens"] = 600
    start = virtual_clock.now()
    await limiter.acquire(cost)
    assert virtual_clock.now() - start == pytest.approx(6, abs=NEAR)
