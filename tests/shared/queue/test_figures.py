"""The figures of all queues without a processor, and the processes that work on one."""

from __future__ import annotations

import anyio
import pytest
from workers import working

import tenure
from tenure import QueueFigures, Retry, StoreClosed, Task, Worker, WorkQueue, serve
from tenure.engine import Count, Scan
from tenure.observe import OpenTelemetryObserver, PrometheusObserver, exposition


async def test_the_figures_of_all_queues_are_text_for_prometheus(store, virtual_clock):
    parser = pytest.importorskip("prometheus_client.parser")
    odd = WorkQueue(store, 'a "b"\\\n', retry=Retry(attempts=1))
    await WorkQueue(store, "mail").put_many(range(3))
    await odd.put(1)

    async def fail(payload):
        raise ValueError

    worker = Worker(odd, fail)
    async with working(odd, worker):
        await odd.join()
    await anyio.sleep(2)
    figures = QueueFigures(store)
    assert figures.problem == "not read yet"
    assert (await figures.statistics())["mail"].waiting == 3 and figures.problem is None
    text = exposition([*figures.samples(), *worker.samples()])
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["tenure_queues",] == 2
    assert found["tenure_queue_tasks", "mail", "waiting"] == 3
    assert found["tenure_queue_oldest_seconds", "mail"] >= 2
    assert found["tenure_queue_tasks", odd.name, "dead"] == found["tenure_queue_put_total", odd.name] == 1
    assert found["tenure_worker_tasks_total", odd.name, "dead"] == 1


async def test_observers_watch_them_also_before_there_is_a_queue(store, virtual_clock):
    registry = pytest.importorskip("prometheus_client").CollectorRegistry()
    pytest.importorskip("opentelemetry.sdk.metrics")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    figures = QueueFigures(store, every=1)
    observers = PrometheusObserver(registry), OpenTelemetryObserver(provider.get_meter("x"))
    for observer in observers:
        observer.watch(figures)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: serve(figures, signals=False))
        await WorkQueue(store, "mail").put(1)
        await anyio.sleep(1.5)
        await figures.drain()
    labels = {"queue": "mail", "state": "waiting"}
    assert registry.get_sample_value("tenure_queue_tasks", labels) == 1
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    points = next(metric for metric in scope.metrics if metric.name == "tenure.queue.tasks").data.data_points
    assert {(point.attributes["state"], point.value) for point in points} >= {("waiting", 1), ("dead", 0)}
    provider.shutdown()


async def test_reading_costs_one_count_for_each_queue(recording, virtual_clock):
    async with tenure.open_store(recording) as store:
        for n in range(5):
            await WorkQueue(store, f"q{n}").put_many(range(300))
        recording.take()
        await QueueFigures(store).statistics()
        assert [type(operation) for operation in recording.take(Scan, Count)] == [Scan] + [Count] * 5


async def test_an_engine_that_is_away_is_said(faulty, faulty_store, virtual_clock):
    figures = QueueFigures(faulty_store, every=1)
    async with anyio.create_task_group() as group:
        group.start_soon(figures.run)
        await anyio.sleep(0.1)
        assert figures.problem is None
        faulty.down = True
        await anyio.sleep(15)
        assert "the store memory: has been away for" in figures.problem
        faulty.down = False
        await anyio.sleep(15)
        assert figures.problem is None
        group.cancel_scope.cancel()


async def test_the_workers_of_a_queue(store, open_store_on, virtual_clock):
    queue = WorkQueue(store, "mail")
    assert (await queue.workers().page()).records == []

    async def handler(task: Task):
        await anyio.sleep(100)

    async with open_store_on(ttl=3.0) as elsewhere:
        busy = Worker(queue, handler, concurrency=2)
        idle = Worker(WorkQueue(elsewhere, "mail"), handler, concurrency=1)
        async with anyio.create_task_group() as group:
            group.start_soon(busy.run)
            await anyio.sleep(0.5)
            first = await queue.put(1)
            await anyio.sleep(30)
            second = await queue.put(2)
            await anyio.sleep(10)
            group.start_soon(idle.run)
            await anyio.sleep(1)
            by_name = {worker.process: worker async for worker in queue.workers()}
            assert len(by_name) == 2
            other = by_name.pop(elsewhere.process)
            (worker,) = by_name.values()
            assert (worker.process, worker.waits, other.waits, other.tasks) == (
                store.process,
                False,
                True,
                (),
            )
            assert [(task.id, round(task.seconds)) for task in worker.tasks] == [(first, 41), (second, 11)]
            assert (await WorkQueue(store, "other").workers().page()).records == []
            group.cancel_scope.cancel()


async def test_bad_input(open_store_on, virtual_clock):
    async with open_store_on() as store:
        with pytest.raises(ValueError, match="every must be"):
            QueueFigures(store, every=0)
        figures = QueueFigures(store)
    with pytest.raises(StoreClosed):
        await figures.statistics()
