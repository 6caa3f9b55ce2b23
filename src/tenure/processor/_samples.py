"""A processor's metrics as figures for collectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from tenure.observe import Sample

from ._metrics import Errors, Metrics, Utilisation

_GAUGES = {
    "workers": ("workers", "Workers."),
    "allowed": ("limit", "How many tasks at once at present."),
    "busy": ("busy", "How many workers have a task."),
    "queue_depth": ("queue_depth", "How many tasks wait in the queue."),
    "queue_suspended": ("queue_suspended", "How many tasks are suspended."),
    "queue_ending": ("queue_ending", "How many tasks end after their children."),
    "oldest_seconds": ("oldest", "For how long the first of them has been ready."),
    "throughput": ("throughput", "Tasks done per second."),
}
_OUTCOMES = (
    *("done", "retried", "dead", "discarded", "cancelled", "expired"),
    *("postponed", "suspended", "given_back", "lost"),
)


def samples_of(name: str, metrics: Metrics) -> tuple[Sample, ...]:
    """The figures of each kind; `kind` is empty for tasks of no kind."""
    return tuple(
        Sample(f"processor_{what}", how, text, {"processor": name, "kind": kind or "", **labels}, value)
        for kind, of_kind in metrics.kinds.items()
        for what, how, text, labels, value in _figures(of_kind)
    )


def _figures(metrics: Metrics) -> Iterator[tuple[str, str, str, dict[str, str], float]]:
    for name, (field, text) in _GAUGES.items():
        yield name, "gauge", text, {}, getattr(metrics, field)
    for field in fields(Utilisation):
        share = getattr(metrics.utilisation, field.name)
        yield (
            "utilisation",
            "gauge",
            "Share in use, on the mean of the last minute.",
            {"of": field.name},
            share,
        )
    for prefix, times in (("", metrics.latency), ("", metrics.waits), ("lock_", metrics.locks)):
        for field in fields(times):
            latency = getattr(times, field.name)
            for quantile, value in (("0.5", latency.p50), ("0.95", latency.p95), ("0.99", latency.p99)):
                labels = {"of": prefix + field.name, "quantile": quantile}
                yield "latency_seconds", "gauge", "Times of the last minute.", labels, value
    for outcome in _OUTCOMES:
        labels = {"outcome": outcome}
        yield "tasks", "counter", "Tasks by what became of them.", labels, metrics.totals.get(outcome, 0)
    for field in fields(Errors):
        count = metrics.totals.get(field.name, 0)
        yield "errors", "counter", "What went wrong.", {"error": field.name}, count
    late = metrics.totals.get("heartbeats_late", 0)
    yield "heartbeats_late", "counter", "Heartbeats that came late.", {}, late
