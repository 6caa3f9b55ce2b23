from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tenure.lazy import extra

from ._samples import TIMES, Source


class OpenTelemetryObserver:
    """Counts events, measures their times, and offers the figures of what it watches, with the OpenTelemetry API.

    The counter `tenure.events` by event; the histogram `tenure.event.duration` in seconds by event and field
    (`waited`, `held`, `seconds`). `watch(processor)` adds the processor's figures, with dots for the first underscores.
    `meter` is from the global provider by default. Raises `ModuleNotFoundError` if the extra `otel` is not installed.

    Thread safety: any; readers collect in threads of their own.
    """

    def __init__(self, meter: Any = None) -> None:
        self._api = extra("opentelemetry.metrics", "otel")
        self._meter: Any = self._api.get_meter("tenure") if meter is None else meter
        self._sources: tuple[Source, ...] = ()
        self._offered: set[str] = set()
        self._events: Any = self._meter.create_counter("tenure.events", "{event}", "Events.")
        self._times: Any = self._meter.create_histogram(
            "tenure.event.duration", "s", "Durations reported by events."
        )

    def notice(self, event: str, /, **fields: object) -> None:
        """Count the event and take in its times."""
        self._events.add(1, {"event": event})
        for field in TIMES:
            if field in fields:
                self._times.record(fields[field], {"event": event, "field": field})

    def watch(self, source: Source) -> None:
        """Offer the figures of a source, such as an entered processor."""
        self._sources += (source,)
        # a source may have no sample of a name yet
        for sample in getattr(source, "_templates", source.samples)():
            if sample.name not in self._offered:
                self._offered.add(sample.name)
                meter = self._meter
                make = (
                    meter.create_observable_counter
                    if sample.kind == "counter"
                    else meter.create_observable_gauge
                )
                name, unit = _in_units(sample.name)
                make(f"tenure.{name}", [self._observe(sample.name)], unit, sample.help)

    def unwatch(self, source: Source) -> None:
        """Offer the source's figures no more."""
        self._sources = tuple(each for each in self._sources if each is not source)

    def _observe(self, name: str) -> Callable[[object], Iterator[Any]]:
        def observe(_: object) -> Iterator[Any]:
            for source in self._sources:
                for sample in source.samples():
                    if sample.name == name:
                        yield self._api.Observation(sample.value, dict(sample.labels))

        return observe


def _in_units(name: str) -> tuple[str, str]:
    bare = name.removesuffix("_seconds")
    return bare.replace("_", ".", 1), "s" if bare != name else "1"
