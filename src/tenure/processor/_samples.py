from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields

from tenure.observe import Sample

from ._metrics import Errors, Metrics

_GAUGES = {
    "workers": ("workers", "Workers."),
    "limit": ("allowed", "How many tasks at once at present."),
    "busy": ("busy", "How many workers have a task."),
    "queue_depth": ("queue_depth", "How many tasks wait in the queue."),
    "queue_suspended": ("queue_suspended", "How many tasks are suspended."),
    "queue_ending": ("queue_ending", "How many tasks end after their children."),
    "oldest": ("oldest_seconds", "For how long the first of them has been ready."),
    "throughput": ("throughput", "Tasks done per second."),
}
_OUTCOMES = (
    *("done", "retried", "dead", "discarded", "cancelled", "expired"),
    *("postponed", "suspended", "given_back", "lost"),
)
_SHARE = "Share in use, on the mean of the last minute."


def samples_of(name: str, metrics: Metrics) -> tuple[Sample, ...]:
    return tuple(
        Sample(f"processor_{what}", how, text, {"processor": name, "kind": kind or "", **labels}, value)
        for kind, of_kind in metrics.kinds.items()
        for what, how, text, labels, value in _figures(of_kind)
    )


def _figures(metrics: Metrics) -> Iterator[tuple[str, str, str, dict[str, str], float]]:
    for field, (name, text) in _GAUGES.items():
        yield name, "gauge", text, {}, getattr(metrics, field)
    for of, share in asdict(metrics.utilisation).items():
        yield "utilisation", "gauge", _SHARE, {"of": of}, share
    locks = {f"lock_{of}": times for of, times in asdict(metrics.locks).items()}
    for of, times in (asdict(metrics.latency) | asdict(metrics.waits) | locks).items():
        for quantile, p in ("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99"):
            labels = {"of": of, "quantile": quantile}
            yield "latency_seconds", "gauge", "Times of the last minute.", labels, times[p]
    for outcome in _OUTCOMES:
        count = metrics.totals.get(outcome, 0)
        yield "tasks", "counter", "Tasks by what became of them.", {"outcome": outcome}, count
    for error in fields(Errors):
        count = metrics.totals.get(error.name, 0)
        yield "errors", "counter", "What went wrong.", {"error": error.name}, count
    late = metrics.totals.get("heartbeats_late", 0)
    yield "heartbeats_late", "counter", "Heartbeats that came late.", {}, late
