"""Paces: the time from which the next task of a group, or of a queue, may start.

GCRA as in `tenure.engine.Limiter`, for a cost of 1: one number, the time of the next start, replaces the bookings.
"""

from __future__ import annotations

from math import floor, inf
from typing import NamedTuple

import tenure.engine as e


class Pace(NamedTuple):
    every: float = 0.0
    burst: float = 1.0

    @property
    def slack(self) -> float:
        return (self.burst - 1) * self.every

    def at(self, starts_at: float, now: float, new: Pace) -> float:
        """The time of the next start at a new rate: tasks that have started count for as many starts as before."""
        if not (self.every and new.every):
            return -inf
        return now + min((starts_at - now) / self.every + self.burst - new.burst, 1.0) * new.every


def pace_of(rate: e.Rate | None) -> Pace:
    return Pace(rate.every, rate.burst) if rate else Pace()


class Paced:
    """A group or a queue: its next task may start from `starts_at`.

    During a hold-off, `paced_at` is that time by the rate alone.
    """

    __slots__ = ()

    starts_at: float
    paced_at: float | None

    def possible_starts(self, pace: Pace, now: float) -> float:
        first = max(self.starts_at, now - pace.slack)
        if first > now + e.ROUNDING:
            return 0
        return 1 + floor((now - first + e.ROUNDING) / pace.every) if pace.every else inf

    def start_some(self, pace: Pace, now: float, count: int = 1) -> None:
        if pace.every:
            self.starts_at = max(self.starts_at, now - pace.slack) + count * pace.every
            self.paced_at = None

    def time_left(self, now: float) -> tuple[float, float]:
        """The seconds until the next task may start, and the part of them that is a hold-off: all or none."""
        if self.starts_at <= now + e.ROUNDING:
            return 0.0, 0.0
        seconds = self.starts_at - now
        return seconds, seconds if self.paced_at is not None else 0.0

    def delay(self, seconds: float, now: float) -> None:
        by_rate = self._by_rate(now)
        if seconds < e.ROUNDING / 2:
            self.starts_at, self.paced_at = by_rate, None
        elif now + seconds > self.starts_at:
            self.starts_at, self.paced_at = now + seconds, by_rate

    def set_pace(self, pace: Pace, new: Pace, now: float) -> None:
        by_rate = pace.at(self._by_rate(now), now, new)
        if self.paced_at is not None and by_rate < self.starts_at and self.starts_at > now + e.ROUNDING:
            self.paced_at = by_rate
        else:
            self.starts_at, self.paced_at = by_rate, None

    def _by_rate(self, now: float) -> float:
        is_held_off = self.paced_at is not None and self.starts_at > now + e.ROUNDING
        return self.paced_at if is_held_off and self.paced_at is not None else self.starts_at
