"""A bucket of several limits, and what both kinds of buckets have in common: corrections and holding off."""

from __future__ import annotations

import contextlib

import anyio
import pytest
from anyio import WouldBlock
from hypothesis import given, strategies as st

from tenure import Limit
from tenure.local import TokenBucket
from tenure.testing import run

LLM = [Limit(60, per=60), Limit(6000, per=60, unit="tokens")]


def near(*times):
    return [pytest.approx(time, abs=0.002) for time in times]


def plain():
    return TokenBucket(1, burst=4)


def of_limits():
    return TokenBucket.of(Limit(1, burst=4))


both = pytest.mark.parametrize("make", [plain, of_limits])


async def test_a_call_needs_room_in_all_limits(virtual_clock):
    bucket = TokenBucket.of(*LLM)
    start, times = virtual_clock.now(), []
    for tokens in (3000, 3000, 100, 500):
        await bucket.acquire({"tokens": tokens})
        times.append(virtual_clock.now() - start)
    assert times == near(0, 0, 1, 6)
    # what needs no tokens does not wait for them
    await bucket.acquire()
    assert virtual_clock.now() - start == pytest.approx(6, abs=0.002)


async def test_all_or_none(virtual_clock):
    bucket = TokenBucket.of(*LLM)
    bucket.acquire_nowait({"tokens": 6000})
    with pytest.raises(WouldBlock):
        bucket.acquire_nowait({"tokens": 10})
    state = await bucket.state()
    assert (state.available, state.available["tokens"], state.retry_after) == (59, 0, 0)
    with anyio.move_on_after(1):
        await bucket.acquire({"tokens": 600})
    assert (await bucket.state()).available == pytest.approx(60, abs=0.01)


async def test_big_ones_are_not_overtaken(virtual_clock):
    bucket, came = TokenBucket.of(*LLM), []
    await bucket.acquire({"tokens": 6000})
    start = virtual_clock.now()

    async def call(tokens):
        await bucket.acquire({"tokens": tokens})
        came.append((tokens, virtual_clock.now() - start))

    async with anyio.create_task_group() as group:
        for tokens in (5000, 10, 3000, 0):
            group.start_soon(call, tokens)
            await virtual_clock.settle()
    assert came == [(5000, *near(50)), (10, *near(50.1)), (3000, *near(80.1)), (0, *near(80.1))]


async def test_a_reservation_is_one_of_all_limits(virtual_clock):
    bucket = TokenBucket.of(*LLM)
    await bucket.acquire({"tokens": 6000})
    reservation = bucket.reserve({"tokens": 500})
    assert reservation.delay == pytest.approx(5)
    assert repr(reservation) == "<Reservation of 1, 500 in 5 s>"
    await bucket.hold_off(2)
    assert reservation.delay == pytest.approx(7)
    assert reservation.cancel()
    await anyio.sleep(2 + 1)
    assert (await bucket.state()).available["tokens"] == pytest.approx(100)


@both
async def test_a_correction_takes_more_or_gives_back(virtual_clock, make):
    bucket = make()
    async with bucket.spend(2) as spending:
        spending.correct(1)
        assert (await bucket.state()).available == 2
    assert (await bucket.state()).available == 3
    with pytest.raises(ZeroDivisionError):
        async with bucket.spend({"requests": 3}) as spending:
            spending.correct(5)
            raise ZeroDivisionError
    assert (await bucket.state()).available == 0
    assert (await bucket.state()).retry_after == pytest.approx(3)
    start = virtual_clock.now()
    await bucket.acquire()
    assert virtual_clock.now() - start == pytest.approx(3)


@both
async def test_another_task_than_the_one_that_took_may_correct(virtual_clock, make):
    bucket = make()

    async def correct():
        await anyio.sleep(1)
        spending.correct(1)

    async with bucket.spend(3) as spending, anyio.create_task_group() as group:
        group.start_soon(correct)
    assert bucket.statistics().tokens == 4


@both
async def test_a_block_is_for_one_use(virtual_clock, make):
    bucket = make()
    block = bucket.spend(2)
    with pytest.raises(RuntimeError, match="token bucket: this block was not entered"):
        await block.__aexit__(None, None, None)
    async with block:
        with pytest.raises(RuntimeError, match="token bucket: this block was entered before; make a new one"):
            await block.__aenter__()
    with pytest.raises(RuntimeError, match="entered before"):
        await block.__aenter__()
    assert bucket.statistics().tokens == 2


@both
async def test_corrections_add_up_to_no_more_than_the_longest_duration(virtual_clock, make):
    bucket = make()
    async with bucket.spend(1) as one, bucket.spend(1) as other:
        one.correct(1e12)
        other.correct(1e12)
    assert (await bucket.state()).retry_after == 1e9 - 3


@both
async def test_what_time_has_brought_back_is_not_given_back(virtual_clock, make):
    bucket = make()
    async with bucket.spend(4) as spending:
        spending.correct(1)
        await anyio.sleep(10)
        await bucket.acquire(4)
    assert (await bucket.state()).available == 0


@both
async def test_those_that_wait_go_sooner_when_something_is_given_back(virtual_clock, make):
    bucket, start = make(), virtual_clock.now()
    async with anyio.create_task_group() as group:
        async with bucket.spend(4) as spending:
            group.start_soon(bucket.acquire, 4)
            await anyio.sleep(1)
            spending.correct(2)
    assert virtual_clock.now() - start == pytest.approx(2)


@both
async def test_what_was_there_is_there_after_it_was_held_off(virtual_clock, make):
    bucket = make()
    await bucket.acquire(2)
    await bucket.hold_off(5)
    with pytest.raises(WouldBlock):
        bucket.acquire_nowait(1)
    assert bucket.statistics().tasks_waiting == 0
    start = virtual_clock.now()
    await bucket.acquire(2)
    assert virtual_clock.now() - start == pytest.approx(5)
    with pytest.raises(WouldBlock):
        bucket.acquire_nowait(1)
    await anyio.sleep(1)
    bucket.acquire_nowait(1)


@both
async def test_the_one_behind_the_keeper_waits_on(virtual_clock, make):
    bucket, start, ends = make(), virtual_clock.now(), []

    async def behind():
        await bucket.acquire()
        ends.append(virtual_clock.now() - start)

    await bucket.hold_off(5)
    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as keeper:
            keeper.start_soon(bucket.acquire)
            await virtual_clock.settle()
            group.start_soon(behind)
            await anyio.sleep(3)  # by now the bucket would have had enough
            keeper.cancel_scope.cancel()
    assert ends == near(5)


@both
@pytest.mark.parametrize("scoped", [False, True])
async def test_a_hold_ends_at_once(virtual_clock, make, scoped):
    bucket, went = make(), []
    await bucket.hold_off(0)
    await bucket.acquire(4)

    async def caller():
        with anyio.fail_after(60) if scoped else contextlib.nullcontext():
            await bucket.acquire(1)
        went.append(virtual_clock.now())

    await bucket.hold_off(36_000)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(caller)
        await anyio.sleep(5)
        assert went == []
        ended = virtual_clock.now()
        await bucket.hold_off(0)
    assert [at - ended for at in went] == near(1, 2, 3)
    assert (await bucket.state()).held_off == 0
    await bucket.hold_off(36_000)
    await bucket.hold_off(0)
    with pytest.raises(WouldBlock):
        bucket.acquire_nowait(1)
    await anyio.sleep(1)
    bucket.acquire_nowait(1)


async def test_a_changed_rate_while_it_is_held_off(virtual_clock):
    bucket, start = plain(), virtual_clock.now()
    await bucket.acquire(4)
    await bucket.hold_off(5)
    bucket.set_rate(2)
    await bucket.acquire(1)
    assert virtual_clock.now() - start == pytest.approx(5.5)


def test_how_it_looks():
    bucket = TokenBucket.of(*LLM)
    assert repr(bucket) == "<TokenBucket 1/s burst=60, 100 tokens/s burst=6000, 0 waiting>"
    assert (bucket.rate, bucket.burst) == (1, 60)
    with pytest.raises(TypeError, match="no single rate"):
        bucket.set_rate(3)
    with pytest.raises(TypeError, match=r"a limiter must have a limit: write Limit\(100\)"):
        TokenBucket.of()
    with pytest.raises(ValueError, match="'bytes'"):
        bucket.acquire_nowait({"bytes": 1})
    with pytest.raises(ValueError, match="seconds"):
        run(lambda: TokenBucket(1).hold_off(-1))


costs = st.tuples(st.integers(0, 4), st.integers(0, 40), st.sampled_from([0, 0, 0.1, 0.5, 3]))


@given(st.lists(costs, max_size=25), st.sampled_from(["asyncio", "trio"]))
def test_no_span_of_time_gets_more_than_the_burst_and_what_the_rate_gives(steps, backend):
    limits = [Limit(2, burst=4), Limit(10, burst=40, unit="tokens")]
    went = []

    async def scenario():
        bucket = TokenBucket.of(*limits)

        async def call(requests, tokens):
            await bucket.acquire({"requests": requests, "tokens": tokens})
            went.append((anyio.current_time(), (requests, tokens)))

        async with anyio.create_task_group() as group:
            for requests, tokens, pause in steps:
                group.start_soon(call, requests, tokens)
                await anyio.sleep(pause)

    run(scenario, backend=backend)
    for i, limit in enumerate(limits):
        for n in range(len(went)):
            total = 0
            for when, amounts in went[n:]:
                total += amounts[i]
                # the slack of a timer, and half a token
                assert total <= limit.burst + limit.rate * (when - went[n][0] + 0.06) + 0.5
