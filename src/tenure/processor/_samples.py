"""A processor's metrics as figures for collectors."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.observe import Sample

from ._metrics import Errors, Latency, Metrics

_OUTCOMES = (
    "done",
    "retried",
    "dead",
    "discarded",
    "cancelled",
    "expired",
    "postponed",
    "suspended",
    "given_back",
    "lost",
)


def samples_of(name: str, metrics: Metrics) -> tuple[Sample, ...]:
    """The figures of each kind; `kind` is empty for tasks of no kind."""
    return tuple(
        Sample(f"processor_{what}", how, text, {"processor": name, "kind": kind or "", **labels}, value)
        for kind, of_kind in metrics.kinds.items()
        for what, how, text, labels, value in _figures(of_kind)
    )


def _figures(metrics: Metrics) -> Iterator[tuple[str, str, str, dict[str, str], float]]:
    yield "workers", "gauge", "Workers.", {}, metrics.workers
    yield "allowed", "gauge", "How many tasks at once at present.", {}, metrics.limit
    yield "busy", "gauge", "How many workers have a task.", {}, metrics.busy
    yield "queue_depth", "gauge", "How many tasks wait in the queue.", {}, metrics.queue_depth
    yield "queue_suspended", "gauge", "How many tasks are suspended.", {}, metrics.queue_suspended
    yield "queue_ending", "gauge", "How many tasks end after their children.", {}, metrics.queue_ending
    yield "oldest_seconds", "gauge", "For how long the first of them has been ready.", {}, metrics.oldest
    yield "throughput", "gauge", "Tasks done per second.", {}, metrics.throughput
    for of in ("workers", "claims", "connections", "limit"):
        share = getattr(metrics.utilisation, of)
        yield "utilisation", "gauge", "Share in use, on the mean of the last minute.", {"of": of}, share
    for of, latency in _latencies(metrics):
        for quantile, value in (("0.5", latency.p50), ("0.95", latency.p95), ("0.99", latency.p99)):
            labels = {"of": of, "quantile": quantile}
            yield "latency_seconds", "gauge", "Times of the last minute.", labels, value
    for outcome in _OUTCOMES:
        count = metrics.totals.get(outcome, 0)
        yield "tasks", "counter", "Tasks by what became of them.", {"outcome": outcome}, count
    for error in Errors.__dataclass_fields__:
        count = metrics.totals.get(error, 0)
        yield "errors", "counter", "What went wrong.", {"error": error}, count
    late = metrics.totals.get("heartbeats_late", 0)
    yield "heartbeats_late", "counter", "Heartbeats that came late.", {}, late


def _latencies(metrics: Metrics) -> Iterator[tuple[str, Latency]]:
    yield "queued", metrics.latency.queued
    yield "running", metrics.latency.running
    yield "total", metrics.latency.total
    yield "claim", metrics.waits.claim
    yield "connection", metrics.waits.connection
    yield "rate", metrics.waits.rate
    yield "place", metrics.waits.place
    yield "limit", metrics.waits.limit
    yield "lock_wait", metrics.locks.wait
    yield "lock_hold", metrics.locks.hold
    yield "lock_handover", metrics.locks.handover
