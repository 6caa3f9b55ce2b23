"""The number of tasks to fetch ahead, from the times of a round trip and of a task."""

from __future__ import annotations

from math import inf
from time import perf_counter

import tenure.engine as e
from tenure.waiting import now, runs_in_real_time


class Pace:
    __slots__ = ("_busy", "_idle", "_left", "_since", "_task", "ended", "trip")

    def __init__(self) -> None:
        self.trip = inf  # seconds of a round trip
        self.ended = 0  # tasks since the last answer
        self._task = inf  # seconds from one end of a task to the next, while some are under way
        self._left = -inf  # the time at which the exchange left
        self._idle = False  # no task was under way then
        self._since = inf  # the time since which tasks are under way
        self._busy = 0.0  # seconds before that in which tasks were under way, since one ended

    def leaves(self) -> None:
        self._left = _time()
        self._idle = self._since == inf

    def rest(self) -> None:
        self._busy += max(0.0, _time() - self._since)
        self._since = inf

    def answered(self, *, working: bool) -> int:
        """The number of tasks that end in two round trips. `working`: tasks go on."""
        time = _time()
        trip = time - self._left
        if trip < self.trip:
            self.trip = trip
        elif self._idle and trip < inf:
            # not if the answer may have waited for handlers; and slowly, since a busy server is no reason to take more
            self.trip += (trip - self.trip) / 16
        self._busy += max(0.0, time - self._since)
        self._since = time if working else inf
        task = self._busy / max(1, self.ended)
        if self.ended:
            self._task = task if self._task == inf else (3 * self._task + task) / 4
            self._busy, self.ended = 0.0, 0
        elif task > self._task:
            self._task = task
        return int(min(2 * self.trip / self._task, e.CAP)) if self._task and self.trip < inf else 0


def _time() -> float:
    return perf_counter() if runs_in_real_time() else now()  # uvloop's clock shows milliseconds
