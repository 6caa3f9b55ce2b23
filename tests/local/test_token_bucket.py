"""A rate with bursts: exact, first come first served whatever the weights, and nothing lost by who gives up."""

from __future__ import annotations

import math

import anyio
import depth
import pytest
from anyio import WouldBlock
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tenure import Limit, WouldExceedDeadline
from tenure.local import TokenBucket
from tenure.testing import assert_checkpoints


def near(*times):
    return [pytest.approx(time, abs=1e-6) for time in times]


# ------------------------------------------------------------------------------------------------------ what it does


async def test_a_burst_and_then_the_rate(virtual_clock):
    bucket = TokenBucket(10, burst=3)
    times = []
    begin = virtual_clock.now()
    for _ in range(6):
        await bucket.acquire()
        times.append(virtual_clock.now() - begin)
    assert times == near(0, 0, 0, 0.1, 0.2, 0.3)


async def test_a_block_takes_one_token_before_it_and_gives_none_back(virtual_clock):
    bucket = TokenBucket(10, burst=1)
    begin = virtual_clock.now()
    for n in range(3):
        with assert_checkpoints():
            await bucket.__aenter__()
        assert virtual_clock.now() - begin == pytest.approx(n / 10)
        await bucket.__aexit__(None, None, None)
    with pytest.raises(ZeroDivisionError):
        async with bucket:
            raise ZeroDivisionError
    with pytest.raises(WouldBlock):
        bucket.acquire_nowait()


async def test_first_come_first_served_whatever_the_weights(virtual_clock):
    """R8: aiolimiter serves the light ones first, and the heavy one never."""
    bucket = TokenBucket(10, burst=10)
    await bucket.acquire(10)
    begin, got = virtual_clock.now(), []

    async def acquire(n):
        await bucket.acquire(n)
        got.append((n, virtual_clock.now() - begin))

    async with anyio.create_task_group() as group:
        for n in (1, 10, 1, 2):
            group.start_soon(acquire, n)
            await virtual_clock.settle()
    assert got == [(n, pytest.approx(at)) for n, at in ((1, 0.1), (10, 1.1), (1, 1.2), (2, 1.4))]


async def test_nobody_passes_the_waiters(virtual_clock):
    bucket = TokenBucket(1, burst=5)
    await bucket.acquire(5)
    async with anyio.create_task_group() as group:
        group.start_soon(bucket.acquire, 4)
        await anyio.sleep(3)
        with pytest.raises(WouldBlock):
            bucket.acquire_nowait(1)


async def test_the_rate_may_change_while_they_wait(virtual_clock):
    bucket = TokenBucket(1, burst=1)
    await bucket.acquire()
    begin, times = virtual_clock.now(), []

    async def acquire():
        await bucket.acquire()
        times.append(virtual_clock.now() - begin)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(acquire)
        await anyio.sleep(0.5)
        bucket.set_rate(10)
        assert bucket.rate == 10
    assert times == near(0.55, 0.65, 0.75)
    bucket.set_rate(0.5)
    await bucket.acquire()
    assert virtual_clock.now() - begin == pytest.approx(2.75)


async def test_a_wait_that_the_deadline_forbids_books_nothing(virtual_clock):
    bucket = TokenBucket(1, burst=1)
    await bucket.acquire()
    with anyio.move_on_after(0.5) as scope:
        with pytest.raises(WouldExceedDeadline) as caught:
            await bucket.acquire(fail_fast=True)
        assert caught.value.delay == pytest.approx(1)
        async with anyio.create_task_group() as group:
            group.start_soon(bucket.acquire)
            await virtual_clock.settle()
            assert bucket.statistics().tasks_waiting == 0
    assert scope.cancelled_caught
    await anyio.sleep(0.5)
    bucket.acquire_nowait()
    with anyio.move_on_after(2):
        await bucket.acquire(fail_fast=True)


async def test_a_deadline_that_is_moved_lets_it_wait_on(virtual_clock):
    bucket = TokenBucket(1, burst=1)
    await bucket.acquire()
    with anyio.move_on_after(0.5) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(bucket.acquire)
            await anyio.sleep(0.2)
            scope.deadline = math.inf
    assert not scope.cancelled_caught


async def test_reservations_take_their_place_in_the_line(virtual_clock):
    bucket = TokenBucket(1, burst=2)
    assert bucket.reserve(2).delay == 0
    first, second = bucket.reserve(), bucket.reserve(2)
    assert [first.delay, second.delay] == near(1, 3)
    assert bucket.statistics().tokens == pytest.approx(-3)
    begin = virtual_clock.now()
    assert second.cancel()
    assert not second.cancel()
    await bucket.acquire()
    assert virtual_clock.now() - begin == pytest.approx(2)
    assert not first.cancel()


async def test_a_reservation_behind_the_waiters(virtual_clock):
    bucket = TokenBucket(1, burst=1)
    await bucket.acquire()
    begin, times = virtual_clock.now(), []

    async def acquire():
        await bucket.acquire()
        times.append(virtual_clock.now() - begin)

    async with anyio.create_task_group() as group:
        group.start_soon(acquire)
        await virtual_clock.settle()
        kept, given_back = bucket.reserve(), bucket.reserve()
        assert [kept.delay, given_back.delay] == near(2, 3)
        group.start_soon(acquire)
        await virtual_clock.settle()
        assert given_back.cancel()
    assert times == near(1, 3)


def stop_the_loop(virtual_clock, seconds):
    """Let time pass in which no task can run."""
    clock = virtual_clock._time
    if virtual_clock.backend == "trio":
        clock._mock.jump(seconds)
    else:
        clock.seconds += seconds


async def times_around_a_stop(virtual_clock, bucket, seconds, tasks):
    """Who gets a token when, in seconds, of many who wait while the loop stands still for so long, 50 ms later."""
    got, begin = [], virtual_clock.now()
    bucket.acquire_nowait(bucket.burst)

    async def acquire():
        await bucket.acquire()
        got.append(virtual_clock.now() - begin)

    async with anyio.create_task_group() as group:
        for _ in range(tasks):
            group.start_soon(acquire)
        await anyio.sleep(0.05)
        stop_the_loop(virtual_clock, seconds)
    return got


async def test_what_fell_due_in_a_stop_of_the_loop_is_there_at_once(virtual_clock):
    """aiolimiter and Guava: a bucket has room for it."""
    got = await times_around_a_stop(virtual_clock, TokenBucket(5, burst=5), 0.7, 5)
    assert got == near(0.75, 0.75, 0.75, 0.8, 1.0)


@pytest.mark.parametrize(("rate", "burst"), [(5, 5), (100, 5), (20, 1), (1, 1), (3, 2.5)])
async def test_after_a_stop_no_more_than_the_burst_goes_at_once(virtual_clock, rate, burst):
    got = await times_around_a_stop(virtual_clock, TokenBucket(rate, burst=burst), 10, 20)
    got = [at for at in got if at > 0.06]
    assert sum(at <= 10.06 for at in got) <= burst + rate * 0.01
    later = int(burst)
    assert got[:later] == near(*[10.05] * later)
    ahead = 1 + later - burst - min(0.5, 0.05 * rate)  # a part of a token was kept too
    assert got[later : later + 3] == near(*[10.05 + (ahead + n) / rate for n in range(3)])


async def test_at_a_high_rate_what_falls_due_in_50_ms_goes_at_once(virtual_clock):
    got = await times_around_a_stop(virtual_clock, TokenBucket(1000), 10, 200)
    assert sum(10.05 <= at <= 10.0505 for at in got) == 1 + 50


async def test_a_small_delay_of_the_loop_costs_nothing_whatever_the_burst(virtual_clock):
    for rate, burst in ((10, 1), (10, 3), (1000, 1), (1000, 30)):
        bucket, begin = TokenBucket(rate, burst), virtual_clock.now()
        bucket.acquire_nowait(burst)

        async def acquire(bucket=bucket):
            for _ in range(10):
                await bucket.acquire()

        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(acquire)
            for _ in range(5):
                await anyio.sleep(100 / rate / 20)
                stop_the_loop(virtual_clock, 0.012)
        assert 100 / rate <= virtual_clock.now() - begin + 1e-9 <= 100 / rate + 0.013


async def test_every_call_is_a_checkpoint():
    bucket = TokenBucket(1000, burst=1000)
    with assert_checkpoints():
        await bucket.acquire()


async def test_what_is_no_number_is_refused_by_its_name():
    bucket = TokenBucket(1, burst=5)
    for wrong in ("1", None, [1]):
        for take in (bucket.acquire_nowait, bucket.reserve):
            with pytest.raises(TypeError, match="^n must be a number"):
                take(wrong)
        with pytest.raises(TypeError, match="^n must be a number"):
            await bucket.acquire(wrong)
    with pytest.raises(ValueError, match="the unit 'tokens'"):
        await bucket.acquire({"tokens": 1})
    await bucket.acquire({"requests": 3})
    bucket.acquire_nowait({"requests": 2})
    with pytest.raises(anyio.WouldBlock):
        bucket.acquire_nowait({"requests": 1})


@pytest.mark.parametrize("n", [0, -1, 3, math.inf, math.nan])
async def test_a_wrong_weight_is_refused(n):
    bucket = TokenBucket(10, burst=2)
    with pytest.raises(ValueError, match="n must be above 0 and at most the burst of 2"):
        await bucket.acquire(n)
    with pytest.raises(ValueError, match="n must be"):
        bucket.acquire_nowait(n)
    with pytest.raises(ValueError, match="n must be"):
        bucket.reserve(n)


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, "3", None, True])
def test_a_wrong_rate_is_refused(value):
    with pytest.raises((ValueError, TypeError), match="rate must be a number"):
        TokenBucket(value)
    with pytest.raises((ValueError, TypeError), match="burst must be a number"):
        TokenBucket(1, value)
    with pytest.raises((ValueError, TypeError), match="rate must be a number"):
        TokenBucket(1).set_rate(value)


async def test_what_it_shows(virtual_clock):
    bucket = TokenBucket(2, burst=3)
    await bucket.acquire()
    assert bucket.statistics().tokens == pytest.approx(2)
    assert repr(bucket) == "<TokenBucket 2/s, burst 3, 0 waiting>"
    assert repr(bucket.reserve(3)) == "<Reservation of 3 in 0.5 s>"
    assert (bucket.rate, bucket.burst) == (2, 3)


@pytest.mark.parametrize("rate", [0.3, 7, 1e5, 1e9])
async def test_a_full_bucket_is_never_refused_for_a_rounding_error(virtual_clock, rate):
    bucket = TokenBucket(rate, burst=3)
    for n in range(50):
        bucket.acquire_nowait(3)
        await anyio.sleep(n / 7 + 3 / rate + 1e-9)


@pytest.mark.parametrize("several", [False, True], ids=["one limit", "several"])
@pytest.mark.parametrize("burst", [50, 100, 1_000, 4_999])
async def test_while_the_clock_stands_still_the_burst_is_all_there(virtual_clock, burst, several):
    others = [Limit(7 * burst, unit="tokens")] if several else []
    bucket = TokenBucket.of(Limit(burst), *others)
    for _ in range(burst):
        bucket.acquire_nowait()
    with pytest.raises(WouldBlock):
        bucket.acquire_nowait()


# ---------------------------------------------------------------------------------------- cancellation and schedules


@pytest.mark.parametrize("rate", [100, 1_000, 10_000, 100_000])
async def test_the_rate_is_exact_with_a_burst_of_one(virtual_clock, rate):
    """R9: aiolimiter gave 934 a second of 10,000."""
    bucket = TokenBucket(rate)
    begin = virtual_clock.now()
    async with anyio.create_task_group() as group:
        for _ in range(500):
            group.start_soon(bucket.acquire)
    assert 499 / rate <= virtual_clock.now() - begin + 1e-9 <= 499 / rate + 0.001


# ----------------------------------------------------------------------------------------------------- a plain model


class PlainBucket(RuleBasedStateMachine):
    """Tokens in a bucket, counted with a clock in the hand."""

    def __init__(self):
        super().__init__()
        self.time = 1000.0
        self.tokens = 8.0
        self.rate = 4.0
        self.bucket = TokenBucket(4, burst=8)
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("tenure.local._token_bucket.steady", lambda: self.time)

    def teardown(self):
        self.patch.undo()

    @rule(seconds=st.integers(0, 16).map(lambda n: n / 8))
    def sleep(self, seconds):
        self.time += seconds
        self.tokens = min(8.0, self.tokens + seconds * self.rate)

    @rule(n=st.integers(1, 8))
    def acquire(self, n):
        try:
            self.bucket.acquire_nowait(n)
        except WouldBlock:
            assert self.tokens < n + 1e-6
        else:
            assert self.tokens > n - 1e-6
            self.tokens -= n

    @rule(n=st.integers(1, 8), back=st.booleans())
    def reserve(self, n, back):
        reservation = self.bucket.reserve(n)
        assert reservation.delay == pytest.approx(max(0.0, (n - self.tokens) / self.rate), abs=1e-6)
        if not (back and reservation.cancel()):
            self.tokens -= n

    @rule(rate=st.sampled_from((1, 4, 16)))
    def set_rate(self, rate):
        self.bucket.set_rate(rate)
        self.rate = rate

    @rule()
    def look(self):
        assert self.bucket.statistics().tokens == pytest.approx(self.tokens, abs=1e-6)


TestPlainBucket = PlainBucket.TestCase
TestPlainBucket.settings = settings(max_examples=depth.share(150), stateful_step_count=30)
