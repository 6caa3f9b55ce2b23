"""The token bucket of one process."""

from __future__ import annotations

import anyio
from explored.catalogue import scenario
from explored.scenarios.rates import LATE, Spendings

from tenure import Limit
from tenure.local import TokenBucket
from tenure.testing import Machine, at_rest, cancellable, newcomer, rule


@scenario("local.TokenBucket.acquire", "local.TokenBucket.__aenter__", "local.TokenBucket.__aexit__")
class SpentBucket(Machine):
    """Tokens keep to the rate, and nobody waits for one who gave up."""

    def __init__(self):
        self.bucket, self.spendings, self.spent = TokenBucket(1, burst=3), Spendings(1, 3), 0

    def spend(self, n):
        self.spendings.note(n)
        self.spent += n

    @rule(n=(3, 1, 2))
    async def acquire(self, n):
        await self.bucket.acquire(n)
        self.spend(n)

    @rule()
    async def enter(self):
        async with self.bucket:
            self.spend(1)

    @at_rest
    def the_rest_is_there(self):
        state = self.bucket.statistics()
        assert state.tokens <= 3 + anyio.current_time() - self.spent + 1e-6
        assert state.tasks_waiting == 0


@scenario("local.TokenBucket.acquire")
async def who_was_let_in_and_cancelled_has_spent_nothing():
    """A heavy one gives up, and a light one behind it, perhaps when it has just been let in."""
    bucket, cancelled, ends = TokenBucket(1, burst=3), [], []
    bucket.acquire_nowait(3)

    async def victim():
        with cancellable() as scope:
            await bucket.acquire()
        cancelled.append(scope.cancelled_caught)

    async def last():
        await bucket.acquire()
        ends.append(anyio.current_time())

    start = anyio.current_time()
    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as heavy:
            heavy.start_soon(bucket.acquire, 3)
            await anyio.sleep(0.3)
            group.start_soon(victim)
            await anyio.sleep(0.3)
            group.start_soon(last)
            await anyio.sleep(1.9)
            heavy.cancel_scope.cancel()
    if cancelled == [True]:
        assert ends[0] - start <= 3
        assert bucket.statistics().tokens >= min(3, anyio.current_time() - start - 1) - 1e-6


@scenario("local.TokenBucket.acquire")
async def those_behind_one_who_gives_up_go_sooner():
    bucket, waits = TokenBucket(1, burst=100), []
    bucket.acquire_nowait(100)

    async def victim():
        with cancellable() as scope:
            await bucket.acquire(100)
        waits.append((scope.cancelled_caught, anyio.current_time()))

    async def behind():
        await anyio.sleep(0)
        await bucket.acquire(1)
        waits.append((None, anyio.current_time()))

    start = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(victim)
        group.start_soon(behind)
    ends = dict(waits)
    if True in ends:
        assert ends[None] <= max(start + 1, ends[True]) + LATE


@scenario("local.TokenBucket.spend")
async def what_was_taken_and_not_needed_is_given_back():
    """From both limits or from none; a correction is not lost with its block."""
    bucket = TokenBucket.of(Limit(100, per=100), Limit(1000, per=100, unit="tokens"))
    served = []

    async def caller(tokens, really):
        async with bucket.spend({"tokens": tokens}) as spending:
            spending.correct({"tokens": really})
            served.append(really)
            await anyio.sleep(1)

    async def victim():
        with cancellable():
            await caller(300, 100)

    async def watcher():
        await newcomer()
        with cancellable():
            assert 0 <= (await bucket.state()).available["tokens"] <= 1000

    start = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(victim)
        group.start_soon(caller, 500, 600)
        group.start_soon(watcher)
    state, passed = await bucket.state(), anyio.current_time() - start
    assert 100 - len(served) - 1e-6 <= state.available <= 100 - len(served) + passed + 1e-6
    tokens = 1000 - sum(served)
    assert tokens - 1e-6 <= state.available["tokens"] <= tokens + 10 * passed + 1e-6


@scenario("local.TokenBucket.hold_off", "local.TokenBucket.state")
async def nobody_goes_while_a_bucket_is_held_off():
    bucket, went, held = TokenBucket(1, burst=1), [], []
    await bucket.acquire()
    start = anyio.current_time()

    async def spender():
        async with bucket.spend():
            went.append(anyio.current_time())

    async def victim():
        with cancellable():
            await spender()

    async def holder():
        await anyio.sleep(0.2)
        with cancellable():
            await bucket.hold_off(20)
            held.append(anyio.current_time())
            assert (await bucket.state()).available == 0

    async with anyio.create_task_group() as group:
        group.start_soon(spender)
        group.start_soon(victim)
        group.start_soon(spender)
        group.start_soon(holder)
    if held:
        assert all(when >= start + 20 or when <= held[0] for when in went), (held, went)
    assert bucket.statistics().tasks_waiting == 0


@scenario("local.TokenBucket.hold_off")
async def one_who_gives_up_lets_nobody_in_while_a_bucket_is_held_off():
    """All the tokens are there."""
    bucket, start, ends = TokenBucket(1, burst=100), anyio.current_time(), []
    await bucket.hold_off(20)

    async def victim():
        with cancellable():
            await bucket.acquire()

    async def behind():
        await anyio.sleep(0.1)
        await bucket.acquire()
        ends.append(anyio.current_time())

    async with anyio.create_task_group() as group:
        group.start_soon(victim)
        group.start_soon(behind)
    assert ends[0] >= start + 20
