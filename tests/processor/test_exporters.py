"""Prometheus and OpenTelemetry get what happens, through their real libraries; without them the extra is named."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

import tenure
from tenure import Lock, Retry
from tenure.observe import (
    LoggingObserver,
    Observers,
    OpenTelemetryObserver,
    PrometheusObserver,
    TracingObserver,
)
from tenure.processor import Context, Processor

DOCS = Path(__file__).parents[2] / "docs"
QUIET = {"workers": 10}


async def handler(task: tenure.Task, context: Context):
    async with context.lock("one"):
        await anyio.sleep(task.payload)


async def fails(task: tenure.Task, context: Context):
    raise OSError


@pytest.fixture
def registry():
    return pytest.importorskip("prometheus_client").CollectorRegistry()


async def some_work(observer, between=None):
    """Three tasks of two kinds, watched by the observer."""
    async with tenure.open_store("memory:", observer=observer, ttl=3.0) as store:
        async with Processor(store, "p", handler, kinds={"a": 4}, **QUIET) as processor:
            observer.watch(processor)
            await processor.submit_many([1, 1, 2], kind="a")
            await processor.submit(1)
            await processor.join()
            await anyio.sleep(5.1)
            if between is not None:
                between()
            observer.unwatch(processor)


async def test_prometheus_has_the_figures_and_the_events(registry, virtual_clock):
    observer = PrometheusObserver(registry)
    seen = {}

    def look():
        of_a = {"processor": "p", "kind": "a"}
        value = registry.get_sample_value
        seen.update(
            done=value("tenure_processor_tasks_total", {**of_a, "outcome": "done"}),
            of_none=value("tenure_processor_tasks_total", {"processor": "p", "kind": "", "outcome": "done"}),
            workers=value("tenure_processor_workers", of_a),
            p50=value("tenure_processor_latency_seconds", {**of_a, "of": "lock_hold", "quantile": "0.5"}),
            depth=value("tenure_processor_queue_depth", of_a),
            suspended=value("tenure_processor_queue_suspended", of_a),
            ending=value("tenure_processor_queue_ending", of_a),
            failures=value("tenure_processor_errors_total", {**of_a, "error": "failures"}),
            acquired=value("tenure_events_total", {"event": "lease.acquired"}),
            held=value("tenure_event_seconds_sum", {"event": "lease.released", "field": "held"}),
            tasks=value("tenure_event_seconds_count", {"event": "task.done", "field": "seconds"}),
        )

    await some_work(observer, look)
    assert seen.pop("p50") == pytest.approx(1, rel=0.01)
    assert seen.pop("held") == pytest.approx(5, abs=0.1)
    assert seen.pop("acquired") >= 4
    assert [seen.pop(name) for name in ("depth", "suspended", "ending")] == [0, 0, 0]
    assert seen == {"done": 3, "of_none": 1, "workers": 4, "failures": 0, "tasks": 4}
    # unwatched, and so unregistered
    assert registry.get_sample_value("tenure_processor_workers", {"processor": "p", "kind": "a"}) is None
    observer.unwatch(object())  # what is not watched


async def test_the_dashboard_draws_what_is_exported(registry, virtual_clock):
    observer, exported = PrometheusObserver(registry), {}

    def look():
        for family in registry.collect():
            for sample in family.samples:
                exported.setdefault(sample.name, set()).update(sample.labels)

    await some_work(observer, look)
    dashboard = json.loads((DOCS / "how-to" / "grafana-dashboard.json").read_text("utf-8"))
    drawn = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(drawn) >= 10
    for expression in drawn:
        (name,) = re.findall(r"tenure_\w+", expression)
        labels = set(re.findall(r"(\w+)=~?\"", expression)) | set(re.findall(r"by \((\w+)\)", expression))
        assert labels <= exported[name], expression


async def test_prometheus_collects_two_processors_in_a_thread_and_over_http(registry):
    client = pytest.importorskip("prometheus_client")
    observer = PrometheusObserver(registry)
    server, thread = client.start_http_server(0, addr="127.0.0.1", registry=registry)
    url = f"http://127.0.0.1:{server.server_port}/metrics"

    def scrape():
        with urllib.request.urlopen(url) as page:
            return page.read().decode()

    try:
        async with tenure.open_store("memory:") as store:
            async with (
                Processor(store, "p", handler, **QUIET) as one,
                Processor(store, "q", handler, **QUIET) as two,
            ):
                observer.watch(one)
                observer.watch(two)
                await one.submit_many([0] * 50)
                text = await anyio.to_thread.run_sync(scrape)
                await one.join()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert 'tenure_processor_workers{kind="",processor="q"} 10.0' in text
    assert text.count("# TYPE tenure_processor_workers gauge") == 1


async def test_opentelemetry_has_the_figures_and_the_events(virtual_clock):
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    observer = OpenTelemetryObserver(provider.get_meter("test"))
    seen = {}

    def look():
        for resource in reader.get_metrics_data().resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        key = (metric.name, metric.unit, *sorted(point.attributes.items()))
                        seen[key] = getattr(point, "value", None) or getattr(point, "count", 0)

    await some_work(observer, look)
    of_a = (("kind", "a"), ("processor", "p"))
    tasks = ("tenure.processor.tasks", "1", ("kind", "a"), ("outcome", "done"), ("processor", "p"))
    assert seen[tasks] == 3
    assert seen["tenure.processor.workers", "1", *of_a] == 4
    lock = (("kind", "a"), ("of", "lock_hold"), ("processor", "p"), ("quantile", "0.5"))
    assert seen["tenure.processor.latency", "s", *lock] == pytest.approx(1, rel=0.01)
    assert seen["tenure.events", "{event}", ("event", "task.done")] == 4
    assert seen["tenure.event.duration", "s", ("event", "task.done"), ("field", "seconds")] == 4
    provider.shutdown()


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [
        (PrometheusObserver, "prometheus_client", "prometheus"),
        (OpenTelemetryObserver, "opentelemetry", "otel"),
        (TracingObserver, "opentelemetry", "otel"),
    ],
)
def test_a_missing_library_is_one_error_that_names_the_extra(monkeypatch, make, module, extra):
    for name in [each for each in sys.modules if each.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=rf"{module} is missing: pip install 'tenure\[{extra}\]'"):
        make()


async def test_several_observers_get_each_event(virtual_clock, told):
    from logging import getLogger

    both = Observers(told, LoggingObserver(getLogger("tenure.test")))
    async with (
        tenure.open_store("memory:", observer=both) as store,
        Processor(store, "p", fails, retry=Retry(attempts=1), **QUIET) as processor,
    ):
        await processor.submit(1)
        await processor.join()
    assert "processor.failures" in told.names()


async def test_events_of_other_patterns_are_counted_too(registry):
    observer = PrometheusObserver(registry)
    async with tenure.open_store("memory:", observer=observer) as store:
        for _ in range(3):
            async with Lock(store, "l"):
                pass
    count = partial(registry.get_sample_value, "tenure_events_total")
    assert (count({"event": "lease.acquired"}), count({"event": "lease.released"})) == (3, 3)
