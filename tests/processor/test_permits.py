"""A limit over the fleet: never more tasks at once than permits, and hardly ever fewer while there is work."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import pytest

import tenure
from tenure import Retry, Semaphore
from tenure.engines.memory import MemoryEngine
from tenure.processor import Context, Preset, Processor
from tenure.testing import FaultyEngine

SIX = Preset(workers=6, connections=1, rate=float("inf"), queue_size=10_000)


class Distant(FaultyEngine):
    """An engine two milliseconds away."""

    async def execute(self, operations):
        await anyio.sleep(0.002)
        return await super().execute(operations)


class Crowd:
    """Runs tasks of as many seconds as their payload says, and measures how many run at once, over all processors."""

    def __init__(self):
        self.running = self.most = self.done = 0
        self.area = 0.0
        self._until = 0.0

    def _change(self, by):
        time = anyio.current_time()
        self.area += self.running * (time - self._until)
        self._until = time
        self.running += by
        self.most = max(self.most, self.running)

    def begin(self):
        self.area, self.most = 0.0, self.running
        self._until = anyio.current_time()

    def area_now(self):
        self._change(0)
        return self.area

    async def __call__(self, task: tenure.Task, context: Context):
        self._change(1)
        try:
            await anyio.sleep(task.payload)
        finally:
            self._change(-1)
        self.done += 1

    def processor(self, store, permits=4, name="p", **options):
        limit = Semaphore(store, "api", permits)
        return Processor(store, name, self, **{"preset": SIX, "limit": limit, **options})


async def test_no_more_run_at_once_than_there_are_permits(open_store_on, virtual_clock):
    crowd = Crowd()
    async with open_store_on(ttl=3.0) as one, open_store_on(ttl=3.0) as two:
        async with crowd.processor(one) as first, crowd.processor(two) as second:
            await first.submit_many([1.0] * 40)
            await first.join()
            counts = first.metrics(), second.metrics()
        assert crowd.done == 40 and crowd.most == 4
        assert all(each.totals["done"] > 5 for each in counts)
        assert all(each.totals["given_back"] == 0 for each in counts)
        assert (await Semaphore(one, "api", 4).holders().page()).records == []


@pytest.mark.parametrize("seconds", [pytest.param(0.7, marks=pytest.mark.full), 5.0])
async def test_permits_are_used_and_never_exceeded_over_many_processors(virtual_clock, seconds):
    engine, crowd = MemoryEngine(), Crowd()
    async with AsyncExitStack() as stack:
        for _ in range(4):
            store = await stack.enter_async_context(tenure.open_store(Distant(engine), ttl=3.0))
            processor = crowd.processor(store, 20, workers=10)
            await stack.enter_async_context(processor)
        await processor.submit_many([seconds] * int(20 * 25 / seconds + 40))
        await anyio.sleep(5)
        crowd.begin()
        await anyio.sleep(15)
        share = crowd.area_now() / (15 * 20)
        assert share >= 0.95 and crowd.most == 20
        await processor.join()


async def test_processors_of_different_names_get_equal_parts(virtual_clock):
    engine, first, second = MemoryEngine(), Crowd(), Crowd()
    async with tenure.open_store(engine) as one, tenure.open_store(engine) as two:
        async with first.processor(one, 10, "one", workers=30) as many:
            # tasks that all end at once would keep the parts that they begin with
            seconds = [0.4 + 0.03 * (number % 7) for number in range(1200)]
            await many.submit_many(seconds)
            await anyio.sleep(10.25)
            assert first.running >= 9  # a task may have ended at this moment
            async with second.processor(two, 10, "two", workers=10) as few:
                await few.submit_many(seconds[:600])
                await anyio.sleep(10)
                first.begin()
                second.begin()
                await anyio.sleep(30)
                shares = [crowd.area_now() / 30 for crowd in (first, second)]
                assert sum(shares) > 9.5 and min(shares) > 4, shares
                await few.drain()
            await many.drain()


async def test_a_kind_without_tasks_keeps_hardly_anything_from_one_that_has_some(memory):
    crowd = Crowd()
    kinds = {str(number): 10 for number in range(10)}
    async with crowd.processor(memory, 10, kinds=kinds, workers=100) as processor:
        await anyio.sleep(10)
        await processor.submit_many([0.5] * 1000, kind="0")
        await anyio.sleep(10)
        crowd.begin()
        await anyio.sleep(30)
        share = crowd.area_now() / (10 * 30)
        since = anyio.current_time()
        await processor.queue("5").result(await processor.submit(0.5, kind="5"))
        assert anyio.current_time() - since < 4
        await processor.drain()
    assert share > 0.88, share


async def test_a_lone_task_begins_at_once_and_an_idle_worker_leaves_the_permits_to_others(memory):
    crowd = Crowd()
    async with crowd.processor(memory, 1) as processor:
        for _ in range(5):
            await anyio.sleep(7.77)
            since = anyio.current_time()
            await processor.queue().result(await processor.submit(1.0))
            assert anyio.current_time() - since < 1.1
        await anyio.sleep(3)
        since = anyio.current_time()
        async with Semaphore(memory, "api", 1):
            assert anyio.current_time() - since <= 1
            await processor.submit(1.0)
            await anyio.sleep(5)
            assert crowd.done == 5
        await processor.join()


async def test_permits_stay_within_their_number_while_stores_are_killed(virtual_clock):
    engine, crowd = MemoryEngine(), Crowd()
    links = [FaultyEngine(engine) for _ in range(4)]
    async with AsyncExitStack() as stack:
        for link in links:
            store = await stack.enter_async_context(tenure.open_store(link, ttl=2.0))
            processor = crowd.processor(store, 8, workers=6, retry=Retry(attempts=100))
            await stack.enter_async_context(processor)
        ids = await processor.submit_many([0.5] * 350)
        for trial in range(8):
            link = links[trial % 4]
            link.pause()
            await anyio.sleep(3.3)
            link.resume()
            await anyio.sleep(0.4)
        await processor.join()
        counts = await processor.queue().statistics()
        assert counts.done == len(ids) and counts.dead == 0
    assert crowd.most == 8


async def test_a_lost_permit_cancels_its_task_which_is_given_back(memory, told):
    tries = []

    async def handler(task: tenure.Task, context: Context):
        tries.append(task.attempt)
        if len(tries) == 1:
            await anyio.sleep_forever()

    limit = Semaphore(memory, "api", 1)
    async with Processor(memory, "p", handler, preset=SIX, limit=limit) as processor:
        await processor.submit(1)
        await anyio.sleep(5)
        (holder,) = (await limit.holders().page()).records
        assert await limit.break_holder(holder.token)
        with anyio.fail_after(5):
            await processor.join()
        metrics = processor.metrics()
    assert tries == [1, 1]
    assert (metrics.totals["given_back"], metrics.totals["failures"]) == (1, 0)
    (lost,) = told.of("processor.leases_lost")
    assert "api" in lost["key"]


async def test_its_waits_and_holds_are_measured(memory):
    crowd = Crowd()
    async with crowd.processor(memory, 4, workers=4) as processor:
        async with Semaphore(memory, "api", 4).hold(2):
            await processor.submit_many([7.0] * 40)
            await anyio.sleep(30)
        await anyio.sleep(30.3)
        metrics = processor.metrics()
        assert 0.7 < metrics.utilisation.limit < 0.8
        assert metrics.waits.limit.greatest > 5
        assert crowd.running == 4
        await anyio.sleep(10)
        figures = {(each.name, each.labels.get("of")): each.value for each in processor.samples()}
        assert figures["processor_utilisation", "limit"] > 0.7
        assert ("processor_latency_seconds", "limit") in figures
        await processor.drain()


async def test_another_number_of_permits_is_refused_at_entering(memory):
    async with Semaphore(memory, "api", 7):
        with pytest.raises(tenure.CapacityMismatch):
            async with Crowd().processor(memory, 8):
                raise AssertionError
    with pytest.raises(TypeError, match="limit must be a Semaphore, not 100"):
        Processor(memory, "p", Crowd(), limit=100)


async def test_the_number_of_permits_may_be_changed_meanwhile(memory):
    crowd, limit = Crowd(), Semaphore(memory, "api", 2)
    async with Processor(memory, "p", crowd, preset=SIX, limit=limit) as processor:
        await processor.submit_many([1.0] * 60)
        await anyio.sleep(5.5)
        assert crowd.most == 2
        await limit.resize(5)
        await anyio.sleep(5.25)
        assert crowd.running == 5
        await limit.resize(1)
        await anyio.sleep(5.25)
        assert crowd.running == 1
        await processor.drain()


@pytest.mark.one_loop
async def test_a_worker_may_ask_with_the_old_number_while_it_is_being_changed(virtual_clock):
    async with tenure.open_store(Distant(MemoryEngine()), ttl=3.0) as store:
        crowd, limit = Crowd(), Semaphore(store, "api", 30)
        async with Processor(store, "p", crowd, preset=SIX, workers=40, limit=limit) as processor:
            await processor.submit_many([0.05] * 3000)
            for number in range(20):
                await anyio.sleep(0.137)
                await limit.resize(30 + number % 2)
            await processor.drain()
        assert crowd.done > 1000


async def test_a_change_that_the_processor_does_not_know_of_ends_it(memory):
    with pytest.raises(tenure.CapacityMismatch):
        async with Crowd().processor(memory, 2) as processor:
            await processor.submit_many([1.0] * 60)
            await anyio.sleep(5)
            await Semaphore(memory, "api", 2).resize(5)
            await anyio.sleep_forever()
    assert (await processor.queue().statistics()).leased == 0


async def test_a_drain_waits_for_no_permit(memory):
    crowd = Crowd()
    async with crowd.processor(memory) as processor:
        async with Semaphore(memory, "api", 4).hold(4):
            await processor.submit_many([1.0] * 10)
            await anyio.sleep(5)
            assert crowd.running == 0
            with anyio.fail_after(1):
                await processor.drain()
        permits = Semaphore(memory, "api", 4)
        assert not [party for listing in (permits.holders(), permits.waiters()) async for party in listing]
        assert (await processor.queue().statistics()).waiting == 10
