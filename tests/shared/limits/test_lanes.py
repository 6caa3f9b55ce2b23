"""Callers that give up, and what is booked for them: the rate goes to those that are left."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from math import inf
from random import Random
from types import SimpleNamespace

import anyio
import pytest

import tenure
from tenure import Limit, RateLimiter, WouldExceedDeadline
from tenure.engine import Limiter, RateLimit, Refund, Spend, SpendRequest
from tenure.shared.limits._lane import LanePlace, Slot
from tenure.shared.limits._spenders import RESTING
from tenure.testing import Fault, FaultyEngine

LIMITS = [Limit(20, burst=5), Limit(1200, per=60, burst=8)]
KINDS = {
    "one": {"costs": (1,), "burst": 1},
    "three": {"costs": (3,), "burst": 5},
    "mixed": {"costs": (1, 2, 3, 4, 5), "burst": 5},
    "two limits": {"costs": (1, 2), "burst": 5, "limits": LIMITS},
}


class Load:
    """Callers that give up after 0.4 s each, and what an independent referee says of those that went."""

    def __init__(self, limiters, clock, *, costs, burst, rate=20.0, spend=False):
        self.limiters, self.clock, self.costs = limiters, clock, costs
        self.rate, self.burst, self.spend = rate, burst, spend
        self.went = []
        self.random = Random(1)

    async def call(self, n):
        cost = self.random.choice(self.costs)
        limiter = self.limiters[n % len(self.limiters)]
        if self.spend:
            async with limiter.spend(cost) as spending:
                self.went.append((self.clock.now(), cost))
                spending.correct(cost)
        else:
            await limiter.acquire(cost)
            self.went.append((self.clock.now(), cost))

    async def give_up(self, n, how):
        if how == "deadline":
            with anyio.move_on_after(0.4):
                await self.call(n)
        elif how == "wait_for":
            with suppress(TimeoutError):
                await asyncio.wait_for(self.call(n), 0.4)
        else:  # a scope, or the task, is cancelled without a word
            async with anyio.create_task_group() as group:
                group.start_soon(self.until_it_has_gone, n, group.cancel_scope)
                await anyio.sleep(0.4)
                group.cancel_scope.cancel()

    async def until_it_has_gone(self, n, scope):
        await self.call(n)
        scope.cancel()

    async def run(self, how, seconds=3, callers=100):
        start = self.clock.now()
        async with anyio.create_task_group() as group:
            for n in range(callers * seconds):
                group.start_soon(self.give_up, n, how)
                await anyio.sleep(1 / callers)
        self.judge()
        spent = [0.0] * seconds
        for time, cost in self.went:
            if time < start + seconds:
                spent[int(time - start)] += cost
        return spent

    def judge(self):
        """Nobody went before a bucket of tokens held as many; in order of time."""
        tokens, last = self.burst, 0.0
        for time, cost in self.went:
            tokens = min(self.burst, tokens + (time - last) * self.rate)
            assert tokens >= cost - 1e-3, self.went
            tokens, last = tokens - cost, time


@pytest.mark.parametrize("spend", [False, True], ids=["acquire", "spend"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["deadline", "cancel"])
async def test_callers_that_give_up_cost_the_others_nothing(open_store_on, virtual_clock, how, kind, spend):
    options = dict(KINDS[kind])
    limits = options.pop("limits", None) or [Limit(20, burst=options["burst"])]
    # real time counts for a session too: a busy machine must not end it
    async with open_store_on(ttl=60.0) as store:
        limiter = RateLimiter(store, "api", *limits)
        spent = await Load([limiter], virtual_clock, **options, spend=spend).run(how)
        # a large cost may be on its way at the end of a second
        room = max(options["costs"]) - 1
        assert min(spent) >= 19 - room, spent
        assert sum(spent) >= 57 - room
        await virtual_clock.settle()
        await anyio.sleep(0.05)
        assert (await limiter.state()).retry_after == pytest.approx(0, abs=0.002)


@pytest.mark.backends("asyncio")
async def test_callers_that_wait_for_give_up_too(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(20, burst=1))
    spent = await Load([limiter], virtual_clock, costs=(1,), burst=1).run("wait_for")
    assert min(spent) >= 19


@pytest.mark.parametrize("stores", [4, 20])
async def test_callers_of_many_processes_that_give_up(open_store_on, virtual_clock, stores):
    """The stores are what so many processes would be; most have no caller that another could stand in for."""
    async with AsyncExitStack() as stack:
        limiters = []
        for _ in range(stores):
            store = await stack.enter_async_context(open_store_on(ttl=3))
            limiters.append(RateLimiter(store, "api", Limit(20, burst=1)))
        spent = await Load(limiters, virtual_clock, costs=(1,), burst=1).run("cancel")
    assert all(amount >= 18 for amount in spent)


@pytest.mark.parametrize("latency", [0, 0.001])
@pytest.mark.parametrize("stores", [2, 4, 20])
@pytest.mark.parametrize("kind", ["mixed", "two limits"])
async def test_callers_of_several_processes_that_want_different_amounts(
    engine, virtual_clock, kind, stores, latency
):
    if latency:
        engine = FaultyEngine(engine, rates={Fault.DELAY: 1}, delay=latency)
    options = dict(KINDS[kind])
    limits = options.pop("limits", None) or [Limit(20, burst=5)]
    async with AsyncExitStack() as stack:
        limiters = []
        for _ in range(stores):
            store = await stack.enter_async_context(tenure.open_store(engine, ttl=60))
            limiters.append(RateLimiter(store, "api", *limits))
        spent = await Load(limiters, virtual_clock, **options).run("cancel", seconds=5)
        assert sum(spent) >= 0.95 * 100, spent
        await virtual_clock.settle()
        await anyio.sleep(0.05)
        assert (await limiters[0].state()).retry_after == pytest.approx(0, abs=0.002)


async def test_who_wants_less_goes_at_once_when_a_large_cost_leaves(store, virtual_clock):
    limiter, went = RateLimiter(store, "api", Limit(10, burst=10)), []
    await limiter.acquire(10)
    start = virtual_clock.now()

    async def call(cost):
        await limiter.acquire(cost)
        went.append((cost, virtual_clock.now() - start))

    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as large:
            large.start_soon(call, 9)
            await anyio.sleep(0.1)
            for cost in (4, 6, 5):
                group.start_soon(call, cost)
                await virtual_clock.settle()
            await anyio.sleep(0.7)
            large.cancel_scope.cancel()
    assert went == [(cost, pytest.approx(time, abs=0.01)) for cost, time in ((4, 0.8), (6, 1.0), (5, 1.5))]


async def test_what_costs_nothing_waits_for_a_hold_alone(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(1), Limit(1, unit="tokens"))
    nothing = {"requests": 0}
    await limiter.acquire({"tokens": 1})
    with anyio.fail_after(0.1):
        await limiter.acquire(nothing)
    await limiter.hold_off(5)
    start = virtual_clock.now()
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(limiter.acquire, nothing)
    assert virtual_clock.now() - start == pytest.approx(5, abs=0.01)


async def test_only_a_few_names_that_are_not_in_use_are_kept(store, virtual_clock):
    for n in range(1000):
        limiter = RateLimiter(store, f"user {n}", Limit(5))
        await limiter.acquire()
    assert len(limiter._spenders._by_key) <= 2 * RESTING


async def test_the_next_in_line_goes_when_the_first_gives_up(store, virtual_clock):
    limiter, went = RateLimiter(store, "api", Limit(2, burst=1)), []
    await limiter.acquire()
    start = virtual_clock.now()

    async def call(name):
        await limiter.acquire()
        went.append((name, virtual_clock.now() - start))

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as first:
                first.start_soon(call, "a")
                await virtual_clock.settle()
                group.start_soon(call, "b")
                await anyio.sleep(0.25)
                scope.cancel()
    assert went == [("b", pytest.approx(0.5, abs=0.002))]


async def test_slots_are_given_back_whose_callers_go_in_the_slot_of_another(open_store_on, virtual_clock):
    async with open_store_on(ttl=60.0) as store, open_store_on(ttl=60.0) as elsewhere:
        limiter, other = (RateLimiter(one, "api", Limit(100, burst=2)) for one in (store, elsewhere))
        await anyio.sleep(1)
        await other.acquire(2)  # while others book, the slot of whoever leaves is kept for those behind
        start = virtual_clock.now()
        async with anyio.create_task_group() as group, anyio.create_task_group() as large:
            large.start_soon(limiter.acquire, 2)
            await virtual_clock.settle()
            for _ in range(2):
                group.start_soon(limiter.acquire)
            await virtual_clock.settle()
            large.cancel_scope.cancel()
        assert virtual_clock.now() - start == pytest.approx(0.02, abs=0.002)
        await virtual_clock.settle()
        assert (await other.state()).retry_after == pytest.approx(0.01, abs=0.002)


async def test_a_slot_that_is_due_before_the_next_answer_is_not_late(engine, virtual_clock):
    async with tenure.open_store(FaultyEngine(engine, rates={Fault.DELAY: 1}, delay=0.1), ttl=60) as store:
        limiter, went = RateLimiter(store, "api", Limit(20, burst=1)), []
        await limiter.acquire()

        async def call():
            await limiter.acquire()
            went.append(virtual_clock.now())

        async with anyio.create_task_group() as group, anyio.create_task_group() as last:
            for where in *[group] * 5, last:
                where.start_soon(call)
            await anyio.sleep(0.05)
            last.cancel_scope.cancel()  # what is booked for it meanwhile goes back first
    assert [when - went[0] for when in went] == [pytest.approx(n / 20, abs=0.001) for n in range(5)]


@pytest.mark.parametrize("call", ["acquire", "try_acquire"])
async def test_what_is_booked_for_a_caller_that_has_left_goes_back(engine, virtual_clock, call):
    async with tenure.open_store(FaultyEngine(engine, rates={Fault.DELAY: 1}, delay=0.1), ttl=60) as store:
        limiter = RateLimiter(store, "api", Limit(1, per=1000, burst=2))
        assert await limiter.try_acquire()
        with anyio.move_on_after(0.05):
            await getattr(limiter, call)()
        await anyio.sleep(1)
        assert (await limiter.state()).available == pytest.approx(1, abs=0.01)


def test_two_parts_of_a_slot_go_back_one_behind_the_other():
    """Of callers that were cancelled as they went in it."""
    limiter, limits = Limiter(), (RateLimit("", 2.0, 1.0),)
    (spending,) = limiter.spend(limits, (SpendRequest((5.0,)),), 0.0, "s")
    slot = Slot(LanePlace(limits, (5.0,), inf), SimpleNamespace(id="s"), spending, 2.0)
    for part, left in (3.0, 2.0), (2.0, 0.0):
        limiter.refund(limits, slot.refund((part,)), 0.0, "s")
        assert sum(debt.amount for debt in limiter.status(0.0).debts) == pytest.approx(left)


@pytest.mark.parametrize("count", [20, 60, 200, 500])
async def test_callers_that_are_cancelled_together_leave_nothing_booked(store, virtual_clock, count):
    for limiter in (
        RateLimiter(store, "api", Limit(20, burst=1)),
        RateLimiter(store, "two", Limit(20, burst=1), Limit(900, per=60, burst=9)),
        RateLimiter(store, "fast", Limit(5000, burst=1)),
    ):
        await limiter.acquire()
        await anyio.sleep(1)
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(limiter.acquire)
            await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        await virtual_clock.settle()
        await anyio.sleep(0.05)
        assert (await limiter.state()).retry_after == pytest.approx(0, abs=0.002)


async def test_what_is_booked_ends_with_its_session(open_store_on, virtual_clock):
    """A large cost far ahead, of a process that dies."""
    async with open_store_on(ttl=3) as store:
        limiter = RateLimiter(store, "api", Limit(1, burst=60))
        await limiter.acquire(60)
        async with open_store_on(ttl=3) as other:
            async with anyio.create_task_group() as group:

                async def dies():
                    with pytest.raises(tenure.StoreClosed):
                        await RateLimiter(other, "api", Limit(1, burst=60)).acquire(50)

                group.start_soon(dies)
                await anyio.sleep(0.5)
                other._handle._refuse()
        start = virtual_clock.now()
        await limiter.acquire()
        assert virtual_clock.now() - start <= 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_process_that_stops_with_200_waiters_costs_the_others_one_call(engine, virtual_clock, kind):
    options, dying = dict(KINDS[kind]), FaultyEngine(engine)
    limits = options.pop("limits", None) or [Limit(20, burst=options["burst"])]
    async with tenure.open_store(engine, ttl=3) as store, tenure.open_store(dying, ttl=3) as other:
        load = Load([RateLimiter(store, "api", *limits)], virtual_clock, **options)
        its = Load([RateLimiter(other, "api", *limits)], virtual_clock, **options)
        async with anyio.create_task_group() as waiters:
            for n in range(200):
                waiters.start_soon(its.call, n)
            await anyio.sleep(0.5)
            dying.pause()
            waiters.cancel_scope.cancel()
        spent = await load.run("cancel")
        dying.resume()
    assert sum(spent) >= 0.95 * 60 - 2 * max(options["costs"]), spent
    load.went = its.went + load.went
    load.judge()


async def test_callers_of_a_lost_session_stand_in_line_again(faulty, virtual_clock):
    async with tenure.open_store(faulty, ttl=3) as store:
        limiter = RateLimiter(store, "api", Limit(0.1, burst=1))
        await limiter.acquire()
        start = virtual_clock.now()
        async with anyio.create_task_group() as group:
            group.start_soon(limiter.acquire)
            await anyio.sleep(1)
            faulty.plan(Fault.LOST_REQUEST, times=30)
        # the first booking was void when it was due
        assert 10 <= virtual_clock.now() - start <= 25


async def test_processes_get_equal_parts_of_a_high_rate(open_store_on, virtual_clock):
    served = [0] * 4
    async with AsyncExitStack() as stack:

        async def serve(n, limiter):
            while True:
                await limiter.acquire()
                served[n] += 1

        stores = [await stack.enter_async_context(open_store_on(ttl=3)) for _ in served]
        with anyio.move_on_after(3):
            async with anyio.create_task_group() as group:
                for n, store in enumerate(stores):
                    for _ in range(20 * (n + 1)):
                        group.start_soon(serve, n, RateLimiter(store, "api", Limit(200, burst=1)))
    assert sum(served) == pytest.approx(600, rel=0.05)
    assert min(served) >= 130


@pytest.mark.parametrize("stall", [1, 5, 20])
async def test_a_process_whose_engine_was_away_takes_turns_with_the_others(engine, virtual_clock, stall):
    faulty, served = FaultyEngine(engine), [0, 0]
    async with tenure.open_store(faulty, ttl=100) as one, tenure.open_store(engine, ttl=100) as other:

        async def serve(n, store):
            limiter = RateLimiter(store, "api", Limit(20, burst=1))
            while True:
                await limiter.acquire()
                served[n] += 1

        async with anyio.create_task_group() as group:
            for _ in range(400):
                group.start_soon(serve, 0, one)
            await anyio.sleep(2)
            faulty.pause(before_effect=False)
            await anyio.sleep(stall)
            faulty.resume()
            await anyio.sleep(0.3)
            served[:] = 0, 0
            group.start_soon(serve, 1, other)
            await anyio.sleep(2)
            group.cancel_scope.cancel()
    assert sum(served) == pytest.approx(40, abs=2)
    assert served[1] >= 16


async def test_a_process_serves_a_high_rate(recording, virtual_clock):
    async with tenure.open_store(recording, ttl=300) as store:
        limiter, start = RateLimiter(store, "api", Limit(10_000, burst=1)), virtual_clock.now()
        async with anyio.create_task_group() as group:
            for _ in range(3000):
                group.start_soon(limiter.acquire)
        assert virtual_clock.now() - start == pytest.approx(0.3, abs=0.01)
        assert len(recording.take(Spend, Refund)) <= 20


async def test_a_look_counts_the_callers_that_wait_here(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(2, burst=4))
    await limiter.acquire(4)
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(limiter.acquire)
        await anyio.sleep(0.01)
        assert (await limiter.state()).retry_after == pytest.approx(5.5, abs=0.02)
        with anyio.fail_after(5), pytest.raises(WouldExceedDeadline) as refused:
            await limiter.acquire(fail_fast=True)
        assert refused.value.delay == pytest.approx(5.5, abs=0.02)
        assert not await limiter.try_acquire()
        group.cancel_scope.cancel()


SLOW = Limit(1000, per=3600)
"""A limit in which one call takes 3.6 s, but which is never reached."""


async def test_a_slow_limit_does_not_delay_a_look_at_the_turn(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(10, burst=1), SLOW)
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(limiter.acquire)
        await anyio.sleep(0.01)
        start = virtual_clock.now()
        with anyio.fail_after(1):
            await limiter.acquire(fail_fast=True)
    assert virtual_clock.now() - start == pytest.approx(0.39, abs=0.01)


async def test_what_was_given_back_does_not_delay_a_look_at_the_turn(store, virtual_clock):
    limiter = RateLimiter(store, "api", Limit(1, burst=100))
    await limiter.acquire(100)
    start = virtual_clock.now()
    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as large:
            large.start_soon(limiter.acquire, 100)
            await anyio.sleep(0.1)
            group.start_soon(limiter.acquire, 2)
            await anyio.sleep(0.1)
            large.cancel_scope.cancel()
        await virtual_clock.settle()
        with anyio.fail_after(5):
            await limiter.acquire(fail_fast=True)
    assert virtual_clock.now() - start == pytest.approx(3, abs=0.01)


async def test_a_process_asks_as_rarely_with_a_slow_limit_beside_a_fast_one(
    open_store_on, recording, virtual_clock
):
    asked = []
    async with open_store_on(ttl=60) as one, tenure.open_store(recording, ttl=60) as other:
        for limits in (Limit(10, burst=1),), (Limit(10, burst=1), SLOW):
            recording.take()
            async with anyio.create_task_group() as group:
                for store in one, other:
                    for _ in range(40):
                        group.start_soon(RateLimiter(store, f"{len(limits)} limits", *limits).acquire)
                await anyio.sleep(3)
                asked.append(len(recording.take(Spend)))
                group.cancel_scope.cancel()
    assert asked[1] <= 1.5 * asked[0]


async def test_a_large_cost_is_not_overtaken_for_ever(open_store_on, virtual_clock):
    async with open_store_on(ttl=3) as one, open_store_on(ttl=3) as two:
        small, large = (RateLimiter(store, "api", Limit(20, burst=20)) for store in (one, two))
        await small.acquire(20)
        async with anyio.create_task_group() as group:

            async def small_calls():
                while True:
                    await small.acquire()

            for _ in range(50):
                group.start_soon(small_calls)
            await anyio.sleep(0.5)
            with anyio.fail_after(3):
                await large.acquire(20)
            group.cancel_scope.cancel()
