"""What a task enters, and what becomes of it when that cannot be had."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

import tenure
from tenure import OutcomeUnknown, RateLimiter, ResourcePool, Retry, Semaphore, WorkQueue
from tenure.engines.memory import MemoryEngine
from tenure.local import CircuitBreaker
from tenure.processor import Claims, Context, Processor

ONCE = Retry(attempts=1)
# whoever waits until the time of a probe is over waits for ever
BREAKER = partial(CircuitBreaker, min_calls=1, window=1, open_seconds=1, probes=1, probe_seconds=1e6)


class Probe:
    """A handler whose first task opens the breaker, and whose second is a probe until it is cancelled."""

    def __init__(self):
        self.calls = []

    async def __call__(self, task: tenure.Task, context: Context):
        self.calls.append(task.id)
        if len(self.calls) == 1:
            raise OSError
        if len(self.calls) == 2:
            await anyio.sleep_forever()

    async def begin(self, processor):
        """Give the probe and two tasks that wait for the breaker."""
        with pytest.raises(tenure.TaskFailed):
            await processor.queue().result(await processor.submit("opens it"))
        waiting = await processor.submit_many(range(3))
        await anyio.sleep(10)
        assert len(self.calls) == 2
        waiting.remove(self.calls[1])
        return self.calls[1], *waiting


async def test_the_chance_to_probe_goes_to_the_next_if_the_woken_task_is_cancelled_on_the_way(memory):
    keys = ResourcePool(memory, "keys")
    for name in "abc":
        await keys.add(name)

    async def hold_a_key():
        async with keys.claim():
            await anyio.sleep_forever()

    handler = Probe()
    asked = []

    def where(task):
        asked.append(task.id)
        return {}

    parts = {"breaker": BREAKER, "claims": Claims(keys, where), "retry": ONCE, "workers": 3}
    async with Processor(memory, "p", handler, **parts) as processor:
        probe, *others = await handler.begin(processor)
        queue = processor.queue()
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(hold_a_key)
            await anyio.sleep(1)
            await queue.cancel(probe)
            await anyio.sleep(1)
            assert (await keys.statistics()).waiting == 1, "one of them was woken, and waits for a key"
            others.remove(asked[-1])
            await queue.cancel(asked[-1])
            await anyio.sleep(1)
            group.cancel_scope.cancel()
        with anyio.fail_after(10):
            await queue.result(others[0])
    assert handler.calls[2:] == others


async def test_a_task_that_cannot_know_whether_it_has_its_permit_is_given_back(memory, monkeypatch):
    acquire, problems, attempts = RateLimiter.acquire, [OutcomeUnknown("rate", "spending")], []

    async def acquire_or_not(limiter, *args):
        await acquire(limiter, *args)
        if problems:
            raise problems.pop()

    async def handler(task: tenure.Task, context: Context):
        attempts.append(task.attempt)

    monkeypatch.setattr(RateLimiter, "acquire", acquire_or_not)
    async with Processor(memory, "p", handler, retry=ONCE, workers=3, rate=1) as processor:
        await processor.submit(1)
        await processor.join()
        metrics = processor.metrics()
    assert attempts == [1]
    assert (metrics.totals["done"], metrics.totals["given_back"], metrics.totals["failures"]) == (1, 1, 0)


async def test_nothing_begins_with_a_lease_that_has_passed(memory, freeze):
    attempts, stale = [], []

    async def handler(task: tenure.Task, context: Context):
        attempts.append(task.attempt)
        try:
            task.check()
            context.claim.check()
        except tenure.LeaseLost as lost:
            stale.append(lost)
        if len(attempts) == 1:
            freeze(100)
        await anyio.sleep(0)

    claims, breaker = ResourcePool(memory, "keys"), partial(CircuitBreaker, min_calls=1, window=1)
    for n in range(4):
        await claims.add(f"key-{n}")
    parts = {"claims": claims, "breaker": breaker, "workers": 4, "retry": ONCE}
    async with Processor(memory, "p", handler, **parts) as processor:
        await processor.submit_many(range(4))
        await processor.join()
        totals = processor.metrics().totals
    assert set(attempts) == {1}
    assert (stale, totals["done"], totals["failures"], totals["refused"]) == ([], 4, 0, 0)


async def test_nothing_begins_with_a_permit_that_has_passed(memory, freeze):
    permits, begun = [], []

    class Noting(Semaphore):
        def hold(self, *args, **options):
            hold = super().hold(*args, **options)
            permits.append(hold)
            return hold

    async def handler(task: tenure.Task, context: Context):
        begun.append(sum(hold.is_held and hold._held.remaining() > 0 for hold in permits))
        if len(begun) in {3, 9}:
            freeze(1.2)
        await anyio.sleep(0.01)

    limit = Noting(memory, "limit", 4, ttl=1)
    async with Processor(memory, "p", handler, workers=4, retry=ONCE, limit=limit) as processor:
        for _ in range(5):
            await processor.submit_many(range(4))
            await anyio.sleep(0.005)
        await processor.join()
    assert min(begun) > 0


async def test_tasks_that_wait_for_a_claim_when_the_store_closes_are_given_back(virtual_clock):
    engine = MemoryEngine()

    async def handler(task: tenure.Task, context: Context):
        raise AssertionError

    async def work(store):
        parts = {"claims": ResourcePool(store, "none"), "retry": ONCE, "workers": 3}
        with pytest.raises(tenure.StoreClosed):
            async with Processor(store, "p", handler, **parts) as processor:
                await processor.submit_many(range(4))
                await anyio.sleep_forever()

    async with tenure.open_store(engine) as other, anyio.create_task_group() as group:
        async with tenure.open_store(engine) as store:
            group.start_soon(work, store)
            await anyio.sleep(10)
        counts = await WorkQueue(other, "p").statistics()
        assert (counts.dead, counts.waiting) == (0, 4)
