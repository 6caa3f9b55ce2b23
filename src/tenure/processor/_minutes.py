from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ._metrics import Latency
from ._window import Tally

_MINUTE = 60.0


class Minute(NamedTuple):
    """Tasks done per second, tries that failed, and the 99th percentile of tasks' times in all, in seconds."""

    throughput: float
    failures: float
    p99: float


class Minutes:
    """A sample a minute of the window of a minute, for an hour: at most 2 KiB as JSON."""

    def __init__(self) -> None:
        self._kept: deque[Minute] = deque(maxlen=60)
        self._next: float | None = None

    def taken(self, tally: Tally, now: float) -> Sequence[Minute]:
        self._next = self._next or now + _MINUTE
        while now >= self._next:
            self._next += _MINUTE
            figures = tally.rate("done"), tally.counts["failures"], Latency.of(tally.sketches["total"]).p99
            if now >= self._next:  # that minute was slept through
                figures = 0.0, 0.0, 0.0
            # three digits are what a chart shows
            self._kept.append(Minute(*(float(f"{figure:.3g}") for figure in figures)))
        return tuple(self._kept)
