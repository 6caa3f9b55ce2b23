"""The rate limiter."""

from __future__ import annotations

import anyio
from explored.catalogue import on_every_engine, scenario
from explored.world import at_rest

from tenure import Limit, RateLimiter, WouldExceedDeadline
from tenure.testing import cancellable, newcomer

LATE = 0.9
"""Seconds, and below one spending: schedules let timers come late, and time pass while tasks are ready."""


class Spendings:
    """Never more than the burst and what the rate gave, in no span of time."""

    def __init__(self, rate, burst):
        self.rate = rate
        self.burst = burst
        self._noted = []

    def note(self, cost):
        now = anyio.current_time()
        self._noted.append((now, cost))
        spent = 0
        for when, one in reversed(self._noted):
            spent += one
            most = self.burst + self.rate * (now - when + LATE)
            assert spent <= most, f"{spent} within {now - when} s"


@on_every_engine("shared.RateLimiter.acquire")
async def spendings_keep_to_the_rate(world):
    async with world.open() as store, world.open() as elsewhere:
        limiter = RateLimiter(store, "x", Limit(1, burst=2))
        other = RateLimiter(elsewhere, "x", Limit(1, burst=2))
        spendings, served = Spendings(1, 2), []

        async def spender(limiter, cost):
            await limiter.acquire(cost)
            spendings.note(cost)
            served.append(cost)

        async def victim(cost):
            with cancellable():
                await spender(limiter, cost)

        async def late():
            await newcomer()
            await spender(limiter, 1)

        start = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(spender, limiter, 2)
            group.start_soon(victim, 2)
            group.start_soon(spender, limiter, 1)
            group.start_soon(spender, other, 1)
            group.start_soon(late)
        assert sum(served) >= 5
        # what the victim booked may be lost where others have booked after it
        assert anyio.current_time() - start <= 5 + LATE + world.patience
        await at_rest(store, elsewhere)


@on_every_engine("shared.RateLimiter.acquire", "shared.RateLimiter.try_acquire")
async def what_was_booked_is_given_back(world):
    async with world.open() as store:
        limiter = RateLimiter(store, "x", Limit(1, burst=100))
        await limiter.acquire(100)
        start, waits = anyio.current_time(), []

        async def victim():
            with cancellable() as scope:
                await limiter.acquire(100)
            waits.append(scope.cancelled_caught)

        async def prober():
            await newcomer()
            with cancellable():
                assert not await limiter.try_acquire(100)

        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            group.start_soon(prober)
        begin = anyio.current_time()
        await limiter.acquire()
        if waits == [True]:
            late = anyio.current_time() - max(begin, start + 1)
            assert late <= LATE + world.patience, f"{late} s late: the rate was spent on one who gave up"
        await at_rest(store)


@on_every_engine("shared.RateLimiter.try_acquire")
async def one_try_spends_all_or_nothing(world):
    async with world.open() as store:
        limiter, served, cancelled = RateLimiter(store, "x", Limit(1, per=1000, burst=2)), [], []
        with cancellable() as scope:
            await limiter.try_acquire()
        if scope.cancelled_caught:
            assert await limiter.try_acquire(2), "a try that was cancelled spends nothing"
            return

        async def caller():
            served.append(await limiter.try_acquire())

        async def victim():
            with cancellable() as scope:
                await caller()
            cancelled.append(scope.cancelled_caught)

        async def late():
            await newcomer()
            await caller()

        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            group.start_soon(caller)
            group.start_soon(late)
        # what the victim spent is given back, unless another has booked after it
        assert 1 - sum(cancelled) <= sum(served) <= 1
        await at_rest(store)


@on_every_engine("shared.RateLimiter.acquire")
async def who_has_no_time_to_wait_books_nothing(world):
    async with world.open() as store:
        limiter, gave_up = RateLimiter(store, "x", Limit(1, burst=100)), []
        await limiter.acquire(100)
        start = anyio.current_time()

        async def hasty():
            with anyio.move_on_after(20) as scope:
                await limiter.acquire(100)
            assert scope.cancelled_caught and anyio.current_time() >= start + 20 - 1e-9
            gave_up.append("late")

        async def proud():
            with anyio.move_on_after(20):
                try:
                    await limiter.acquire(100, fail_fast=True)
                except WouldExceedDeadline:
                    assert anyio.current_time() <= start + LATE + world.patience
                    gave_up.append("at once")

        async def victim():
            with cancellable(), anyio.move_on_after(20):
                await limiter.acquire(100)

        async with anyio.create_task_group() as group:
            group.start_soon(hasty)
            group.start_soon(victim)
            group.start_soon(proud)
        assert sorted(gave_up) == ["at once", "late"]
        begin = anyio.current_time()
        await limiter.acquire(5)
        assert anyio.current_time() - begin <= LATE + world.patience
        await at_rest(store)


@scenario("shared.RateLimiter.acquire", engines=("memory",))  # on a wire their order is left to chance
async def what_several_booked_is_all_given_back(world):
    """They give up together: if the earlier went first, the later would bury it."""
    async with world.open() as store:
        limiter, cancelled = RateLimiter(store, "x", Limit(1, burst=100)), []
        await limiter.acquire(100)

        async def victim():
            try:
                with cancellable() as scope:
                    await limiter.acquire(100)
            finally:
                cancelled.append(scope.cancel_called)

        async with anyio.create_task_group() as impatient:
            for cost in (40, 50, 60):
                impatient.start_soon(limiter.acquire, cost)
            impatient.start_soon(victim)
            await anyio.sleep(10)
            impatient.cancel_scope.cancel()  # by a deadline they would not book at all
        begin = anyio.current_time()
        await limiter.acquire(5)
        if cancelled == [False]:  # else its booking may have been overtaken before it was given back
            assert anyio.current_time() - begin <= LATE + world.patience
        await at_rest(store)


@on_every_engine("shared.RateLimiter.__aenter__", "shared.RateLimiter.__aexit__")
async def a_block_spends_one(world):
    async with world.open() as store:
        limiter, spendings, served = RateLimiter(store, "x", Limit(1, burst=2)), Spendings(1, 2), []

        async def spender():
            async with limiter:
                spendings.note(1)
            served.append(1)

        async def victim():
            with cancellable():
                await spender()

        async with anyio.create_task_group() as group:
            group.start_soon(spender)
            group.start_soon(victim)
            group.start_soon(spender)
            group.start_soon(victim)
        assert len(served) >= 2


@on_every_engine("shared.RateLimiter.spend", "shared.RateLimiter.state")
async def what_was_booked_and_not_needed_is_given_back(world):
    """In all limits or in none, wherever a block is cancelled; a correction is not lost with it."""
    limits = [Limit(100, per=100), Limit(1000, per=100, unit="tokens")]
    async with world.open() as store:
        limiter, served, booked = RateLimiter(store, "x", *limits), [], []

        async def caller(tokens, really):
            async with limiter.spend({"tokens": tokens}) as spending:
                spending.correct({"tokens": really})
                booked.append(really)
                await anyio.sleep(1)
            served.append(really)

        async def victim():
            with cancellable():
                await caller(300, 100)

        async def watcher():
            await newcomer()
            with cancellable():
                state = await limiter.state()
                assert 0 <= state.available["tokens"] <= 1000

        start = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            group.start_soon(caller, 500, 600)
            group.start_soon(watcher)
        await limiter.acquire({"tokens": 0})
        state, passed = await limiter.state(), anyio.current_time() - start + LATE
        calls, tokens = len(booked) + 1, sum(booked)
        assert 600 in served
        # what the victim booked may be lost if the other has booked after it
        lost = 100 not in booked
        assert 100 - calls - lost - 1e-3 <= state.available <= 100 - calls + passed
        assert 1000 - tokens - 300 * lost - 1e-3 <= state.available["tokens"] <= 1000 - tokens + 10 * passed
        await at_rest(store)


@on_every_engine("shared.RateLimiter.hold_off", "shared.RateLimiter.spend")
async def nobody_goes_while_it_is_held_off(world):
    """Neither those that came before and wait, nor those that come then, nor those of another process."""
    async with world.open() as store, world.open() as elsewhere:
        limiter, other = (RateLimiter(one, "x", Limit(1, burst=1)) for one in (store, elsewhere))
        went, held = [], []
        await limiter.acquire()
        start = anyio.current_time()

        async def spender(limiter):
            async with limiter.spend():
                went.append(anyio.current_time())

        async def victim():
            with cancellable():
                await spender(other)

        async def holder():
            await anyio.sleep(0.2)
            with cancellable():
                await limiter.hold_off(20)
                held.append(anyio.current_time())

        async with anyio.create_task_group() as group:
            group.start_soon(spender, limiter)
            group.start_soon(victim)
            group.start_soon(spender, other)
            group.start_soon(holder)
        if held:
            late = LATE + world.patience
            assert all(when >= start + 20 - 1e-3 or when <= held[0] + late for when in went), (held, went)
        await at_rest(store, elsewhere)
