"""The flow of tasks, and their time in each state, of the whole fleet: from the counters of queues at several times.

Times are by Little's law (Little 1961): the mean stay is the number of tasks, divided by how many come out per second.
It is right while a queue neither fills nor drains quickly; quantiles need measuring where the tasks run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import tenure.engine as e

from ._view import View

_WINDOW = 10.0
"""The length of the counting window in seconds."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Tasks put and ended per second, and the mean seconds for which a task waits and runs (None: unknown)."""

    put: float = 0.0
    ended: float = 0.0
    waits: float | None = None
    runs: float | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    put: int
    ended: int
    waiting: int
    leased: int


class Flows:
    def __init__(self) -> None:
        self._samples: dict[str, deque[_Sample]] = {}

    def add(self, view: View) -> dict[str, Flow]:
        for gone in self._samples.keys() - view.queues.keys():
            del self._samples[gone]
        return {name: self._add(name, view.at, counts) for name, counts in view.queues.items()}

    def _add(self, name: str, at: float, c: e.QueueCounts) -> Flow:
        samples = self._samples.setdefault(name, deque())
        ended = c.done + c.dead + c.cancelled + c.expired + c.discarded + c.purged
        samples.append(_Sample(at, c.put, ended, c.waiting, c.leased))
        while samples[-1].at - samples[0].at > _WINDOW and len(samples) > 2:
            samples.popleft()
        first, last = samples[0], samples[-1]
        seconds = last.at - first.at
        if seconds <= 0:
            return Flow()
        # what was dead may become ready again
        rate = max(0, last.ended - first.ended) / seconds
        return Flow(
            put=(last.put - first.put) / seconds,
            ended=rate,
            waits=sum(s.waiting for s in samples) / len(samples) / rate if rate else None,
            runs=sum(s.leased for s in samples) / len(samples) / rate if rate else None,
        )
