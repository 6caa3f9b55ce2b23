"""Processors, from the reports of their processes in the engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import tenure.engine as e
from tenure.processor import Latencies, Report, Tally, times_of


@dataclass(frozen=True, slots=True)
class SeenProcessor:
    """The processes that run one processor: tasks per second, and quantiles of how long tasks took in all of them.

    `minutes` are the last ones, the oldest first: tasks per second, failed tries, and the longest p99 of any process.
    """

    name: str
    processes: int
    workers: int
    busy: int
    throughput: float
    latency: Latencies
    minutes: Sequence[Sequence[float]] = ()


def processor(name: str, members: Iterable[e.Holder]) -> SeenProcessor:
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
        times_of(Latencies, tally),
        _together([report.minutes for report in reports]),
    )


def _together(processes: Sequence[Sequence[Sequence[float]]]) -> list[tuple[float, float, float]]:
    aligned = zip_longest(*(reversed(minutes) for minutes in processes), fillvalue=(0.0, 0.0, 0.0))
    added = [
        (
            sum(figures[0] for figures in minute),
            sum(figures[1] for figures in minute),
            max(figures[2] for figures in minute),
        )
        for minute in aligned
    ]
    return added[::-1]
