from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tenure.lazy import extra

from ._samples import TIMES, Sample, Source


class PrometheusObserver:
    """Counts events, measures their times, and offers the figures of what it watches, with `prometheus_client`.

    `tenure_events_total` by event; `tenure_event_seconds`, a histogram by event and field (`waited`, `held`,
    `seconds`). `watch(processor)` adds the processor's figures. `registry` is prometheus_client's own by default.
    Serve them with `prometheus_client.start_http_server`. Raises `ModuleNotFoundError` if the extra `prometheus` is not
    installed.

    Thread safety: any; `prometheus_client` collects in threads of its own.
    """

    def __init__(self, registry: Any = None) -> None:
        client = extra("prometheus_client", "prometheus")
        self._core = import_module("prometheus_client.core")
        self._registry: Any = client.REGISTRY if registry is None else registry
        self._sources: tuple[Source, ...] = ()
        events = client.Counter("tenure_events", "Events.", ["event"], registry=self._registry)
        self._count: Any = events.labels
        times = client.Histogram(
            "tenure_event_seconds",
            "Durations reported by events.",
            ["event", "field"],
            registry=self._registry,
        )
        self._time: Any = times.labels

    def notice(self, event: str, /, **fields: object) -> None:
        """Count the event and take in its times."""
        self._count(event).inc()
        for field in TIMES:
            if field in fields:
                self._time(event, field).observe(fields[field])

    def watch(self, source: Source) -> None:
        """Offer the figures of a source, such as an entered processor."""
        self._sources += (source,)
        if len(self._sources) == 1:
            self._registry.register(self)

    def unwatch(self, source: Source) -> None:
        """Offer the source's figures no more."""
        watched, self._sources = self._sources, tuple(each for each in self._sources if each is not source)
        if watched and not self._sources:
            self._registry.unregister(self)

    def collect(self) -> Iterator[Any]:
        """The figures of all that it watches, as families."""
        families: dict[str, list[Sample]] = {}
        for source in self._sources:
            for sample in source.samples():
                families.setdefault(sample.name, []).append(sample)
        for name, samples in families.items():
            first = samples[0]
            make = self._core.CounterMetricFamily if first.kind == "counter" else self._core.GaugeMetricFamily
            family: Any = make(f"tenure_{name}", first.help, labels=list(first.labels))
            for sample in samples:
                family.add_metric(list(sample.labels.values()), sample.value)
            yield family
