"""Paces: the time from which the next task of a group, or of a queue, may start, by its rate and by hold-offs.

The arithmetic is as in a limiter (`tenure.engine.Limiter`, GCRA) for a cost of 1, with one number instead of the end
of the bookings: the time from which the next task may start. `redis/lua/paces.lua` and `postgres/sql/paces.sql` have
it in their own languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf
from typing import Protocol

from tenure.engine import ROUNDING


@dataclass(slots=True)
class Pace:
    """The time from which the next task of a group may start; `awaited` if a task could be taken otherwise.

    While the group is held off, `paced_at` is that time by the rate alone; else it means nothing.
    """

    group: str
    starts_at: float
    awaited: bool = False
    paced_at: float | None = None


class Paces(Protocol):
    """The paces of the groups of one queue, in two orders by time: of those that are awaited, and of the others."""

    @property
    def now(self) -> float:
        """The engine's time in seconds."""
        ...

    def find(self, group: str, /) -> Pace | None:
        """Return the pace of a group if there is one; the caller does not change the pace."""
        ...

    def save(self, pace: Pace, former: Pace | None, /) -> None:
        """Keep a pace in place of the former one of its group."""
        ...

    def remove(self, pace: Pace, /) -> None:
        """Forget a pace."""
        ...

    def until(self, awaited: bool, time: float, limit: int, /) -> tuple[Sequence[Pace], float]:
        """The first paces up to that time, and the time of the next one behind them, inf if there is none.

        The caller changes or removes each of them.
        """
        ...

    def each(self) -> Sequence[Pace]:
        """All paces; the caller changes or removes them."""
        ...


def possible_starts(every: float, burst: float, starts_at: float, now: float) -> float:
    """The number of tasks that may start now: one in `every` seconds (0: no rate), after a pause a burst."""
    first = _first(every, burst, starts_at, now)
    if first > now + ROUNDING:
        return 0
    return 1 + floor((now - first + ROUNDING) / every) if every else inf


def start_after(every: float, burst: float, starts_at: float, now: float, count: int = 1) -> float:
    """The time from which the next task may start, once so many have started now."""
    return _first(every, burst, starts_at, now) + count * every


def is_held_off(starts_at: float, paced_at: float | None, now: float) -> bool:
    """True while a queue or a group is held off."""
    return paced_at is not None and starts_at > now + ROUNDING


def held_off(
    starts_at: float, paced_at: float | None, seconds: float, now: float
) -> tuple[float, float | None]:
    """The two times of a pace that is held off for so many seconds from now on, or no longer, for less than a
    microsecond.
    """
    alone = starts_at if paced_at is None or not is_held_off(starts_at, paced_at, now) else paced_at
    if seconds < ROUNDING / 2:
        return alone, None
    return (now + seconds, alone) if now + seconds > starts_at else (starts_at, paced_at)


def at_rate(
    every: float, burst: float, starts_at: float, now: float, new_every: float, new_burst: float
) -> float:
    """The time of the next start at another rate: the tasks that have started count for as many as before."""
    if not (every and new_every):
        return -inf
    return now + min((starts_at - now) / every + burst - new_burst, 1.0) * new_every


def _first(every: float, burst: float, starts_at: float, now: float) -> float:
    return max(starts_at, now - (burst - 1) * every)
