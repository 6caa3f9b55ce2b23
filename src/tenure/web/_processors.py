"""Processors, from the reports of their processes in the engine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from tenure.engine import Holder
from tenure.processor import Latencies, Report, Tally, latencies


@dataclass(frozen=True, slots=True)
class SeenProcessor:
    """All processes that run one processor: tasks per second, and quantiles of how long tasks took in all of them."""

    name: str
    processes: int
    workers: int
    busy: int
    throughput: float
    latency: Latencies


def processor(name: str, members: Iterable[Holder]) -> SeenProcessor:
    """The reports of a fleet together; those of other releases, in another form, are left out."""
    tally = Tally()
    reports: list[Report] = []
    for member in members:
        try:
            report = Report.from_data(json.loads(member.value))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        reports.append(report)
        tally.add(report.tally)
    return SeenProcessor(
        name,
        len(reports),
        sum(report.workers for report in reports),
        sum(report.busy for report in reports),
        sum(report.throughput for report in reports),
        latencies(tally),
    )
