"""What a processor tells of itself is what happened."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.lowlevel
import pytest
from family import bear

import tenure
from tenure import ResourcePool, Retry, TaskCancelled, WorkQueue
from tenure.engines.memory import MemoryEngine
from tenure.processor import Context, Preset, Processor
from tenure.testing import FaultyEngine

QUIET = {"workers": 10}


async def naps(task: tenure.Task, context: Context):
    await anyio.sleep(task.payload)


async def test_quantiles_of_running_are_within_one_percent(memory):
    async with Processor(memory, "p", naps, workers=100) as processor:
        await processor.submit_many([i / 100 for i in range(1, 101)])
        await processor.join()
        running = processor.metrics().latency.running
    assert running.count == 100 and running.mean == pytest.approx(0.505)
    assert running.p50 == pytest.approx(0.5, rel=0.01)
    assert running.p95 == pytest.approx(0.95, rel=0.01)
    assert running.p99 == pytest.approx(0.99, rel=0.01)
    assert running.greatest == pytest.approx(1.0)


async def test_queued_and_running_make_the_total(memory):
    async with Processor(memory, "p", naps, preset=Preset(1, 1, 1e9, 100)) as processor:
        await processor.submit_many([2, 2, 2])
        await processor.join()
        latency = processor.metrics().latency
    assert latency.queued.mean == pytest.approx(2, abs=0.01)  # 0, 2 and 4
    assert latency.running.mean == pytest.approx(2, abs=0.01)
    assert latency.total.greatest == pytest.approx(6, abs=0.01)


async def test_utilisation_is_littles_law(memory, connections):
    pool = ResourcePool(memory, "keys")
    for i in range(20):
        await pool.add(f"k{i}")
    parts = {"claims": pool, "pool": partial(connections.pool, max_size=8)}
    async with Processor(memory, "p", naps, **parts, **QUIET) as processor:
        # one every half second that stays for two: four at a time
        for _ in range(200):
            await processor.submit(2)
            await anyio.sleep(0.5)
        metrics = processor.metrics()
        arrivals, stay = metrics.throughput, metrics.latency.running.mean
        assert arrivals == pytest.approx(2, rel=0.03) and stay == pytest.approx(2, abs=0.01)
        utilisation = metrics.utilisation
        assert utilisation.workers == pytest.approx(arrivals * stay / 10, rel=0.03)
        assert utilisation.claims == pytest.approx(arrivals * stay / 20, rel=0.03)
        assert utilisation.connections == pytest.approx(arrivals * stay / 8, rel=0.03)


async def test_utilisation_counts_tasks_that_are_not_done_yet(memory):
    async with Processor(memory, "p", naps, **QUIET) as processor:
        await processor.submit_many([1000] * 5)
        await anyio.sleep(300)
        metrics = processor.metrics()
        assert metrics.utilisation.workers == pytest.approx(0.5) and metrics.busy == 5
        assert metrics.throughput == 0 and metrics.utilisation.claims == 0


async def test_depth_and_age_of_the_oldest(store, virtual_clock):
    async with Processor(store, "p", naps, preset=Preset(2, 1, 1e9, 100)) as processor:
        assert processor.metrics().queue_depth == 0
        await processor.submit_many([30] * 5)
        await processor.submit(0, delay=1000)
        assert 4 <= processor.metrics().queue_depth <= 6  # two may have been taken
        await anyio.sleep(20)
        metrics = processor.metrics()
        assert metrics.queue_depth == 4  # three, and one delayed
        assert metrics.oldest == pytest.approx(20, abs=5.1) and metrics.figures_age <= 5
        await processor.queue().purge("waiting", "delayed")
        await anyio.sleep(6)
        assert (processor.metrics().queue_depth, processor.metrics().oldest) == (0, 0)


async def test_suspended_and_ending_tasks_are_counted_apart(store, virtual_clock):
    pages = WorkQueue(store, "pages")

    async def crawls(task: tenure.Task, context: Context):
        await bear(processor.queue(), task, pages, "a")

    def counted():
        metrics = processor.metrics()
        return metrics.queue_depth, metrics.queue_suspended, metrics.queue_ending

    async with Processor(store, "p", crawls, **QUIET) as processor:
        await processor.submit_many([0, 0])
        await anyio.sleep(6)
        assert counted() == (0, 2, 0)
        with pytest.raises(TaskCancelled):
            async with pages.take() as child:
                root = (await pages.get(child.id)).parent
                assert await processor.queue().cancel(root)
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(6)
                assert counted() == (0, 1, 1)
                await anyio.sleep_forever()
        async with pages.take():
            pass
        await processor.join()
        await anyio.sleep(6)
        assert counted() == (0, 0, 0)


async def test_what_others_submit_is_seen_at_the_next_look(open_store_on, virtual_clock):
    async with open_store_on() as store, open_store_on() as other:
        async with Processor(store, "p", naps, **QUIET) as processor:
            await processor.queue().pause()
            await tenure.WorkQueue(other, "p").put_many([0] * 7)
            await anyio.sleep(5.1)
            assert processor.metrics().queue_depth == 7
            await processor.queue().resume()
            await processor.join()


async def test_errors_are_per_minute_and_forgotten(memory):
    async def handler(task: tenure.Task, context: Context):
        raise OSError

    async with Processor(memory, "p", handler, retry=Retry(attempts=1), **QUIET) as processor:
        await anyio.sleep(55)
        await processor.submit_many(range(6))
        await processor.join()
        await anyio.sleep(5)
        assert processor.metrics().errors.failures == pytest.approx(6, rel=0.1)
        await anyio.sleep(70)
        metrics = processor.metrics()
        assert metrics.errors.failures == 0 and metrics.totals["failures"] == 6


async def test_waits_are_distinguished(memory, connections):
    pool = ResourcePool(memory, "keys")
    await pool.add("k0")
    await pool.add("k1")
    parts = {"claims": pool, "pool": connections.pool, "preset": "small", "rate": 1000}
    async with Processor(memory, "p", naps, **parts) as processor:
        await processor.submit_many([2] * 4)
        await processor.join()
        waits = processor.metrics().waits
    assert waits.claim.greatest == pytest.approx(2, abs=0.01)
    assert waits.connection.greatest < 0.1 and waits.rate.count == 4


async def test_a_monitor_yields_metrics_again_and_again_until_the_end(memory):
    seen = []

    async def watch(processor, *, task_status):
        monitor = processor.monitor(every=10)
        task_status.started()
        async for metrics in monitor:
            seen.append((anyio.current_time(), metrics.totals.get("done", 0)))
            if len(seen) == 2:
                await anyio.sleep(25)  # of what it misses meanwhile it gets the last, late

    async with anyio.create_task_group() as group:
        async with Processor(memory, "p", naps, **QUIET) as processor:
            begun = anyio.current_time()
            await group.start(watch, processor)
            await processor.submit_many([1] * 3)
            await anyio.sleep(68)
    assert [round(at - begun) for at, _ in seen] == [10, 20, 45, 55, 65]
    assert {done for _, done in seen} == {3}


async def test_a_monitor_that_was_cancelled_goes_on(memory):
    async with Processor(memory, "p", naps, **QUIET) as processor:
        monitor = processor.monitor(every=10)
        begun = anyio.current_time()
        with anyio.move_on_after(7):
            await anext(monitor)
        await anext(monitor)
        assert anyio.current_time() - begun == pytest.approx(10)
        with pytest.raises(ValueError, match="every must be above 0"):
            processor.monitor(every=0)


async def test_late_heartbeats_are_counted_while_the_engine_is_away(virtual_clock, told):
    engine = FaultyEngine(MemoryEngine())
    async with tenure.open_store(engine, ttl=30.0, observer=told) as store:
        async with Processor(store, "p", naps, **QUIET) as processor:
            await processor.submit(100)
            await anyio.sleep(50)
            assert processor.metrics().heartbeats_late == 0
            engine.pause()
            await anyio.sleep(17)
            engine.resume()
            await anyio.sleep(1)
            assert processor.metrics().heartbeats_late == 1
            await processor.join()
            assert processor.metrics().totals["heartbeats_late"] == 1
            assert processor.metrics().totals["done"] == 1
    (late,) = told.of("processor.heartbeats_late")
    assert 0 < late["seconds"] < 20


async def test_metrics_are_reported_also_while_the_engine_refuses(virtual_clock):
    class Refusing(FaultyEngine):
        refuses = False

        async def execute(self, operations):
            if self.refuses:
                await anyio.lowlevel.checkpoint()
                return [tenure.EngineError("no") for _ in operations]
            return await super().execute(operations)

    engine = Refusing(MemoryEngine())
    async with tenure.open_store(engine, ttl=30.0) as store:
        async with Processor(store, "p", naps, **QUIET) as processor:
            await processor.submit(1)
            await processor.join()
            engine.refuses = True
            await processor.queue()._takers.until_idle()
            with anyio.CancelScope():
                await anyio.sleep(3)
            assert processor.metrics().totals["done"] == 1
            engine.refuses = False


async def test_kinds_add_up(memory):
    async def handler(task: tenure.Task, context: Context):
        await anyio.sleep(1 if context.kind == "a" else 2)

    async with Processor(memory, "p", handler, kinds={"a": 3, "b": 3}, **QUIET) as processor:
        for kind in ("a", "b", None):
            await processor.submit_many(range(10), kind)
        await processor.join()
        metrics = processor.metrics()
    assert [metrics.kinds[kind].totals["done"] for kind in ("a", "b", None)] == [10, 10, 10]
    assert metrics.totals["done"] == 30 == metrics.latency.running.count
    assert metrics.throughput == pytest.approx(sum(each.throughput for each in metrics.kinds.values()))
    assert metrics.latency.running.greatest == pytest.approx(2, abs=0.01)
    assert metrics.workers == sum(each.workers for each in metrics.kinds.values()) == 10
