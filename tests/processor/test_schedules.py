"""The processor under every schedule, cancelled at every moment: nothing lost, nothing twice, nothing held.

CI draws 8 schedules and cancels two scenarios. More, and all of them on both loops:
TENURE_EXPLORE_SEEDS=200 python -m pytest --timeout=0 -o faulthandler_timeout=0 tests/processor/test_schedules.py
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial

import anyio
import anyio.lowlevel
import depth
import pytest

import tenure
from tenure import Lock, ResourcePool, Retry, WorkQueue
from tenure.engines.memory import MemoryEngine
from tenure.local import CircuitBreaker, Pool
from tenure.processor import Adaptive, Context, Preset, Processor
from tenure.testing import FaultyEngine, cancel_everywhere, cancellable, explore

SEEDS = int(os.environ.get("TENURE_EXPLORE_SEEDS", depth.share(8)))
THREE = Preset(workers=3, connections=2, rate=float("inf"), queue_size=100)


class World:
    """A queue of tasks, two keys, connections, and what the handlers did."""

    def __init__(self, store):
        self.store = store
        self.queue = WorkQueue(store, "p")
        self.keys = ResourcePool(store, "keys")
        self.done = Counter()
        self.in_use = set()
        self.open = set()
        self.numbers = iter(range(1000))

    async def begin(self, tasks):
        for key in ("a", "b"):
            await self.keys.add(key)
        await self.queue.put_many(tasks)

    async def create(self):
        await anyio.lowlevel.checkpoint()
        self.open.add(number := next(self.numbers))
        return number

    async def close(self, connection):
        await anyio.lowlevel.checkpoint()
        self.open.remove(connection)

    def processor(self, handler=None, **options):
        options = {"preset": THREE, "claims": self.keys, "pool": self.pool, "rate": 1000, **options}
        return Processor(self.store, "p", handler or self.handle, **options)

    def pool(self, **options):
        return Pool(self.create, close=self.close, **options)

    async def handle(self, task: tenure.Task, context: Context):
        held = {("claim", context.claim.resource), ("connection", context.connection)}
        assert not held & self.in_use and context.connection in self.open
        self.in_use |= held
        try:
            async with context.lock("one"):
                assert "lock" not in self.in_use
                self.in_use.add("lock")
                try:
                    await anyio.sleep(0.1)
                finally:
                    self.in_use.remove("lock")
        finally:
            self.in_use -= held
        self.done[task.payload] += 1

    async def nothing_is_held(self):
        counts = await self.keys.statistics()
        assert (counts.claimed, counts.waiting) == (0, 0)
        assert self.in_use == set() == self.open
        lock = Lock(self.store, "one")
        assert not [party for listing in (lock.holders(), lock.waiters()) async for party in listing]
        assert await self.queue.verify()


async def processors_that_are_cancelled_leave_their_tasks_to_others(engine=MemoryEngine, tasks=6):
    async with tenure.open_store(engine()) as store:
        world = World(store)

        async def victim():
            with cancellable():
                async with world.processor() as processor:
                    await processor.join()

        async with anyio.create_task_group() as group:
            await world.begin(range(tasks))
            group.start_soon(victim)
            async with world.processor() as processor:
                await processor.join()
        assert world.done == dict.fromkeys(range(tasks), 1)
        await world.nothing_is_held()


async def a_drain_gives_back_or_finishes(engine=MemoryEngine):
    async with tenure.open_store(engine()) as store:
        world = World(store)

        async with world.processor() as processor:

            async def victim():
                with cancellable():
                    await processor.drain()

            await world.begin(range(8))
            await anyio.sleep(0.15)
            async with anyio.create_task_group() as group:
                group.start_soon(victim)
                await processor.drain()
                counts = await world.queue.statistics()
                assert counts.leased == 0 and counts.done == world.done.total()
        assert counts.done + counts.waiting == 8 and counts.dead == 0
        await world.queue.purge("waiting")
        await world.nothing_is_held()


async def tasks_wait_for_a_breaker(engine=MemoryEngine):
    async with tenure.open_store(engine()) as store:
        world = World(store)
        breakers = []
        until = anyio.current_time() + 3

        async def handle(task: tenure.Task, context: Context):
            await anyio.sleep(0.05)
            if anyio.current_time() < until:
                raise OSError
            await world.handle(task, context)

        def breaker(**options):
            breakers.append(CircuitBreaker(min_calls=1, window=2, open_seconds=1, probes=1, **options))
            return breakers[-1]

        retry = Retry(attempts=20, backoff=0.1, jitter=0)

        async def victim():
            with cancellable():
                async with world.processor(handle, breaker=breaker, retry=retry) as processor:
                    await processor.join()

        async with anyio.create_task_group() as group:
            await world.begin(range(4))
            group.start_soon(victim)
            async with world.processor(handle, breaker=breaker, retry=retry) as processor:
                await processor.join()
        assert world.done == dict.fromkeys(range(4), 1)
        assert all(each.statistics().probes == 0 for each in breakers)
        await world.nothing_is_held()


async def a_drain_waits_for_no_breaker(engine=MemoryEngine):
    async with tenure.open_store(engine()) as store:
        world = World(store)

        async def handle(task: tenure.Task, context: Context):
            await anyio.sleep(0.05)
            raise OSError

        breaker = partial(CircuitBreaker, min_calls=1, window=1, open_seconds=1e6, probe_seconds=1e6)
        retry = Retry(attempts=1000, backoff=0.01)
        async with world.processor(handle, breaker=breaker, retry=retry) as processor:

            async def victim():
                with cancellable():
                    await processor.drain()

            await world.begin(range(8))
            await anyio.sleep(0.1)
            begun = anyio.current_time()
            async with anyio.create_task_group() as group:
                group.start_soon(victim)
                await processor.drain()
            assert anyio.current_time() - begun < 10
        counts = await world.queue.statistics()
        assert (counts.leased, counts.dead, counts.waiting + counts.delayed) == (0, 0, 8)
        await world.queue.purge("waiting", "delayed")
        await world.nothing_is_held()


async def concurrency_falls_and_rises_under_a_drain(engine=MemoryEngine):
    async with tenure.open_store(engine()) as store:
        world = World(store)

        async def handle(task: tenure.Task, context: Context):
            await anyio.sleep(0.1 if task.payload % 7 else 3)
            world.done[task.payload] += 1

        adaptive = Adaptive(window=0.1, samples=1, memory=3)
        async with world.processor(handle, adaptive=adaptive, claims=None, pool=None, workers=6) as processor:
            await world.begin(range(1, 24))

            async def victim():
                with cancellable():
                    await processor.join()

            async with anyio.create_task_group() as group:
                group.start_soon(victim)
                await anyio.sleep(2)
                await processor.drain()
        counts = await world.queue.statistics()
        assert counts.leased == 0 and counts.done == world.done.total()
        await world.queue.purge("waiting")
        await world.nothing_is_held()


async def submitters_wait_for_room(engine=MemoryEngine):
    async with tenure.open_store(engine()) as store:
        world, accepted = World(store), []

        async def submitter(processor, number):
            with cancellable() as scope:
                accepted.append(await processor.submit(number))
            if not scope.cancelled_caught:
                assert accepted

        async with world.processor(preset=Preset(2, 2, 1000, 2)) as processor:
            await world.begin([])
            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(submitter, processor, number)
            await processor.join()
            counts = await world.queue.statistics()
        assert counts.done == world.done.total() >= len(accepted)
        assert (counts.reserved, counts.producers) == (0, 0) and set(world.done.values()) <= {1}
        await world.nothing_is_held()


async def kinds_lend_each_other_their_places(engine=MemoryEngine):
    async with tenure.open_store(engine()) as store:
        world = World(store)
        running = Counter()

        async def handle(task: tenure.Task, context: Context):
            running[context.kind] += 1
            assert running.total() <= 3
            try:
                await anyio.sleep(0.1 * (1 + task.payload % 3))
            finally:
                running[context.kind] -= 1
            world.done[task.payload] += 1

        parts = {"claims": None, "pool": None, "kinds": {"a": 2, "b": 1}, "lend": True}

        async def victim():
            with cancellable():
                async with world.processor(handle_elsewhere, **parts) as processor:
                    await processor.join()

        async def handle_elsewhere(task: tenure.Task, context: Context):
            await anyio.sleep(0.05)
            world.done[task.payload] += 1

        async with world.processor(handle, adaptive=Adaptive(window=0.1, samples=1), **parts) as processor:
            await world.begin([])
            await processor.submit_many(range(8), kind="a")
            async with anyio.create_task_group() as group:
                group.start_soon(victim)
                await anyio.sleep(0.15)
                await processor.submit_many(range(8, 12), kind="b")
                await processor.join()
            # none of the places was lost
            places = next(iter(processor._workers.values()))._parts.places
            assert places.statistics().in_use == 0
            for kind in "ab":
                ids = await processor.submit_many([3, 3, 3], kind=kind)
                with anyio.fail_after(5):
                    await processor.queue(kind).result(ids[-1])
                    await processor.join()
        assert world.done == {**dict.fromkeys(range(12), 1), 3: 7}
        await world.nothing_is_held()


async def a_limit_holds_over_two_processors(engine=MemoryEngine):
    async with tenure.open_store(engine()) as store:
        world = World(store)
        running = Counter()

        async def handle(task: tenure.Task, context: Context):
            running[None] += 1
            assert running[None] <= 2
            try:
                await anyio.sleep(0.1 if task.payload % 3 else 1.1)
            finally:
                running[None] -= 1
            world.done[task.payload] += 1

        def processor():
            limit = tenure.Semaphore(store, "api", 2)
            return world.processor(handle, claims=None, pool=None, limit=limit)

        async def victim():
            with cancellable():
                async with processor() as cancelled:
                    await cancelled.join()

        await world.begin(range(9))
        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            async with processor() as other:
                await other.join()
        assert world.done == dict.fromkeys(range(9), 1)
        permits = tenure.Semaphore(store, "api", 2)
        assert not [party for listing in (permits.holders(), permits.waiters()) async for party in listing]
        await world.nothing_is_held()


async def few_tasks_are_left_to_others():
    await processors_that_are_cancelled_leave_their_tasks_to_others(tasks=2)


SCENARIOS = [
    processors_that_are_cancelled_leave_their_tasks_to_others,
    a_drain_gives_back_or_finishes,
    tasks_wait_for_a_breaker,
    a_drain_waits_for_no_breaker,
    concurrency_falls_and_rises_under_a_drain,
    submitters_wait_for_room,
    kinds_lend_each_other_their_places,
    a_limit_holds_over_two_processors,
]


def over_a_wire():
    return FaultyEngine(MemoryEngine())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("engine", [MemoryEngine, over_a_wire], ids=["memory", "wire"])
def test_under_every_schedule(scenario, engine):
    explore(partial(scenario, engine), seeds=SEEDS)


THOROUGH = SEEDS >= 200


@pytest.mark.parametrize(
    "scenario",
    SCENARIOS if THOROUGH else [a_drain_gives_back_or_finishes, few_tasks_are_left_to_others],
    ids=lambda scenario: scenario.__name__,
)
def test_cancelled_at_every_moment(scenario):
    cancel_everywhere(
        scenario,
        backends=("asyncio", "trio") if THOROUGH else ("asyncio",),
        cancel=True if THOROUGH else "scope",
    )
