"""For the same seed, what can be seen of a pattern is the same on asyncio and on trio, at the same times."""

import random

import anyio
import depth
import pytest

from tenure.errors import BarrierBroken, BulkheadFull, CircuitOpen, PoolTimeout, WouldExceedDeadline
from tenure.local import (
    Barrier,
    Bulkhead,
    CircuitBreaker,
    Coalescer,
    KeyedPool,
    Pool,
    PriorityQueue,
    Queue,
    Router,
    RWLock,
    SingleFlight,
    TokenBucket,
)
from tenure.testing import run

REFUSALS = (BarrierBroken, BulkheadFull, CircuitOpen, PoolTimeout, TimeoutError, WouldExceedDeadline)


class Program:
    """Twenty callers who come, stay and give up at times that the seed draws; `say` writes down what they see."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.said = []

    def say(self, *words):
        self.said.append((round(anyio.current_time() - self.began, 6), *map(str, words)))

    async def work(self, longest):
        await anyio.sleep(self.dice.uniform(0.001, longest))

    async def run(self, caller, callers=20):
        self.began = anyio.current_time()
        # drawn beforehand: who runs first within a turn of the loop is the loop's affair
        plans = [
            (self.dice.uniform(0, 1), self.dice.uniform(0.01, 1), self.dice.random()) for _ in range(callers)
        ]

        async def one(n, comes, patience, chance):
            await anyio.sleep(comes)
            self.say(n, "comes")
            try:
                with anyio.move_on_after(patience) as scope:
                    await caller(n, random.Random(f"{n} {chance}"))
            except REFUSALS as error:
                self.say(n, type(error).__name__)
            self.say(n, "gave up" if scope.cancelled_caught else "is done")

        async with anyio.create_task_group() as group:
            for n, plan in enumerate(plans):
                group.start_soon(one, n, *plan)


async def barrier(program):
    meeting = Barrier(3, on_departure="drop")

    async def caller(n, dice):
        program.say(n, "is", await meeting.wait())

    await program.run(caller)


async def breaking_barrier(program):
    meeting = Barrier(3)

    async def caller(n, dice):
        if meeting.broken:
            meeting.reset()
        program.say(n, "is", await meeting.wait())

    await program.run(caller)


async def rwlock(program, policy):
    lock = RWLock(policy)

    async def caller(n, dice):
        reads = dice.random() < 0.7
        async with lock.read() if reads else lock.write():
            program.say(n, "reads" if reads else "writes")
            await anyio.sleep(dice.uniform(0.001, 0.2))

    await program.run(caller)


async def queue(program, make):
    items = make(2)

    async def caller(n, dice):
        if dice.random() < 0.5:
            await items.put(n)
            program.say(n, "has put")
        else:
            program.say(n, "got", await items.get())

    await program.run(caller)
    program.say("left", sorted(items.abort()))


async def bucket(program):
    tokens = TokenBucket(7, burst=2)

    async def caller(n, dice):
        await tokens.acquire(dice.randint(1, 2), fail_fast=dice.random() < 0.3)
        program.say(n, "goes")

    await program.run(caller)


async def bulkhead(program):
    ship = Bulkhead(3, max_waiting=3, shares={"a": 2, "b": 1})

    async def caller(n, dice):
        async with ship.enter(kind="ab"[n % 2]):
            program.say(n, "is in")
            await anyio.sleep(dice.uniform(0.001, 0.3))

    await program.run(caller)


async def breaker(program):
    guard = CircuitBreaker(window=5, min_calls=3, open_seconds=0.1, probes=2)
    guard.on_change(lambda change: program.say("now", change))

    async def caller(n, dice):
        async def call():
            await anyio.sleep(dice.uniform(0.001, 0.1))
            if dice.random() < 0.4:
                raise TimeoutError
            program.say(n, "is served")

        await guard.call(call)

    await program.run(caller)


async def pool(program):
    made = iter(range(1000))

    async def create():
        await anyio.sleep(0.0173)
        return next(made)

    async def close(resource):
        program.say("closed", resource)

    async with Pool(create, close=close, max_size=3, idle_timeout=0.05, max_lifetime=None) as lent:

        async def caller(n, dice):
            async with lent.acquire(timeout=dice.uniform(0.05, 0.5)) as resource:
                program.say(n, "has", resource)
                await anyio.sleep(dice.uniform(0.001, 0.3))

        await program.run(caller)


async def keyed_pool(program):
    made = iter(range(1000))

    async def create(key):
        await anyio.sleep(0.0173)
        return f"{key}{next(made)}"

    async def close(resource):
        program.say("closed", resource)

    async with KeyedPool(create, close=close, max_per_key=2, max_total=3) as lent:

        async def caller(n, dice):
            async with lent.acquire("abc"[n % 3], timeout=dice.uniform(0.05, 0.5)) as resource:
                program.say(n, "has", resource)
                await anyio.sleep(dice.uniform(0.001, 0.3))

        await program.run(caller)


async def single_flight(program):
    flight = SingleFlight()

    async def caller(n, dice):
        async def load():
            await anyio.sleep(0.0913)
            return n

        program.say(n, "got what was loaded by", await flight.run(n % 2, load))

    await program.run(caller)


async def coalescer(program):
    async def flush(items):
        program.say("flushes", items)
        await anyio.sleep(0.0173)

    async with Coalescer(flush, window=0.1, max_wait=0.25, max_items=4) as batches:

        async def caller(n, dice):
            await batches.put(n % 5, n)
            program.say(n, "is flushed")

        await program.run(caller)


async def router(program):
    async def handler(kind, item):
        program.say(kind, "begins", item)
        await anyio.sleep(0.0913)
        program.say(kind, "ends", item)

    async with Router({"a": 1, "b": 2}, handler, max_size=2) as routes:

        async def caller(n, dice):
            await routes.put("ab"[n % 2], n)
            program.say(n, "is put")

        await program.run(caller)


PATTERNS = {
    "Barrier": barrier,
    "Barrier that breaks": breaking_barrier,
    "RWLock fair": lambda program: rwlock(program, "fair"),
    "RWLock readers": lambda program: rwlock(program, "readers"),
    "RWLock writers": lambda program: rwlock(program, "writers"),
    "Queue": lambda program: queue(program, Queue),
    "PriorityQueue": lambda program: queue(program, PriorityQueue),
    "TokenBucket": bucket,
    "Bulkhead": bulkhead,
    "CircuitBreaker": breaker,
    "Pool": pool,
    "KeyedPool": keyed_pool,
    "SingleFlight": single_flight,
    "Coalescer": coalescer,
    "Router": router,
}


def trace(pattern, seed, backend):
    program = Program(seed)
    run(lambda: PATTERNS[pattern](program), backend=backend)
    # of what happens at one moment the order is the loop's affair
    return sorted(program.said)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_seed_has_one_trace(pattern):
    for seed in range(depth.share(20)):
        seen = trace(pattern, seed, "asyncio")
        assert len(seen) > 40
        assert seen == trace(pattern, seed, "trio"), seed
    assert trace(pattern, 0, "trio") != trace(pattern, 1, "trio")
