"""A view as one JSON document, which the page draws and programs read.

It has no payloads, metadata, results or names of resources, since these may be secrets; of the values of holders only
the nodes of elections.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from typing import Any

import tenure.engine as e
from tenure.processor import Latency
from tenure.shared import age_of, statistics_of

from ._flows import Flow
from ._history import totals
from ._processors import SeenProcessor
from ._view import SeenKey, SeenPool, View
from ._waits import Deadlock, task_of

_COUNTS = (
    *("put", "waiting", "delayed", "leased", "suspended", "ending"),
    *("done", "dead", "cancelled", "expired", "discarded", "purged"),
    *("groups", "producers", "paused", "oldest", "max_size", "starts_in", "rate", "group_rate"),
    "held_off",
)
_SHOWN_HOLDERS = 20
_SHOWN_RUNNING = 20
_SHOWN_LIMITERS = 20


def document(url: str, namespace: str, view: View, flows: Mapping[str, Flow]) -> dict[str, Any]:
    seen: dict[str, Any] = {
        "store": url,
        "namespace": namespace,
        "ping": view.ping,
        "more": sorted(view.more),
        "queues": [
            {
                "name": name,
                **counted(counts),
                "takers": view.takers(name),
                "put_per_second": flows[name].put,
                "ended_per_second": flows[name].ended,
                "mean_wait": flows[name].waits,
                "mean_run": flows[name].runs,
            }
            for name, counts in view.queues.items()
        ],
        "keys": [_key(key) for key in view.keys],
        "pools": [_pool(pool) for pool in view.pools],
        "processes": [
            {
                "process": process.process,
                "tasks": process.tasks,
                "idle": sorted(process.idle),
                "holds": process.holds,
                "claims": process.claims,
                "waits": process.waits,
            }
            for process in view.processes
        ],
        "running": _running(view),
        "processors": [_processor(process) for process in view.processors],
        "limiters": nlargest(
            _SHOWN_LIMITERS,
            (described_limiter(name, status) for name, status in view.limiters.items()),
            key=lambda limiter: max(limiter["held_off"], limiter["waits"]),
        ),
        "deadlocks": [described(deadlock) for deadlock in view.deadlocks],
    }
    return {**seen, "totals": totals(seen)}


def _running(view: View) -> list[dict[str, Any]]:
    leased = (
        {"queue": queue, "id": task_id, "process": seen.process, "seconds": age_of(token, counts.now)}
        for seen in view.processes
        for queue, task_id, token in seen.leases
        if (counts := view.queues.get(queue)) is not None
    )
    return nlargest(_SHOWN_RUNNING, leased, key=lambda task: task["seconds"])


def counted(counts: e.QueueCounts) -> dict[str, Any]:
    statistics = statistics_of(counts)
    return {field: getattr(statistics, field) for field in _COUNTS}


def described(deadlock: Deadlock) -> dict[str, Any]:
    return {
        "certain": deadlock.certain,
        "seconds": deadlock.seconds,
        "behind": deadlock.behind,
        "waits": [
            {"process": w.process, "task": w.task, "for": w.key, "seconds": w.seconds, "holds": list(w.holds)}
            for w in deadlock.waits
        ],
    }


def described_limiter(name: str, status: e.LimiterStatus) -> dict[str, Any]:
    # the name of a limit is its period and its unit
    booked = [(debt.amount, *debt.name.partition(" ")[::2]) for debt in status.debts]
    limits = [{"unit": unit, "per": float(per), "booked": amount} for amount, per, unit in booked]
    return {"name": name, "held_off": status.held_off, "waits": status.waits, "limits": limits}


def _key(key: SeenKey) -> dict[str, Any]:
    def some(holders: Any) -> list[dict[str, Any]]:
        return [
            {
                "process": holder.process,
                "task": task_of(holder),
                "seconds": holder.age,
                "weight": holder.weight,
                "token": holder.token,
                **({"node": holder.value.decode("utf-8", "replace")} if key.kind == "election" else {}),
            }
            for holder in holders[:_SHOWN_HOLDERS]
        ]

    return {
        "kind": key.kind,
        "name": key.name,
        "capacity": key.capacity,
        "used": key.used,
        "held": len(key.holders),
        "waits": len(key.waiting),
        "holders": some(key.holders),
        "waiting": some(key.waiting),
    }


def _processor(processor: SeenProcessor) -> dict[str, Any]:
    return {
        "name": processor.name,
        "processes": processor.processes,
        "workers": processor.workers,
        "busy": processor.busy,
        "ended_per_second": processor.throughput,
        **{name: _latency(getattr(processor.latency, name)) for name in ("queued", "running", "total")},
    }


def _latency(latency: Latency) -> dict[str, Any]:
    return {"count": latency.count, **{name: getattr(latency, name) for name in ("p50", "p95", "p99")}}


def _pool(pool: SeenPool) -> dict[str, Any]:
    states = ("free", "claimed", "resting", "retired")
    return {"name": pool.name, "waiting": pool.page.waiting, **{state: pool.count(state) for state in states}}
