"""Paces: when the next task of a group, or of a queue, may start, as its rate and those who hold it off say.

The arithmetic is as in a limiter (`tenure.engine.Limiter`, GCRA) for a cost of 1, with one number instead of the end
of the bookings: the time from which the next task may start. `redis/lua/paces.lua` and `postgres/sql/paces.sql` have
it in their own languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from math import floor, inf

from tenure.engine import ROUNDING

from ._names import decoded_name, encoded_name
from ._state import State
from ._tables import Layout, Order, Table


@dataclass(slots=True)
class Pace:
    """The pace of a group: when its next task may start. It is `awaited` if the group could be taken from otherwise."""

    queue: str
    group_name: bytes
    starts_at: float
    awaited: bool = False

    @property
    def group(self) -> str:
        return decoded_name(self.group_name)


PACES = Layout(
    "pace",
    Pace,
    ("queue", "group_name"),
    due=Order(("queue",), ("starts_at", "group_name"), when=("awaited", True)),
    old=Order(("queue",), ("starts_at", "group_name")),
)


def possible_starts(every: float, burst: float, starts_at: float, now: float) -> float:
    """The number of tasks that may start now: one in `every` seconds (0: no rate), after a pause a burst."""
    first = _first(every, burst, starts_at, now)
    if first > now + ROUNDING:
        return 0
    return 1 + floor((now - first + ROUNDING) / every) if every else inf


def start_after(every: float, burst: float, starts_at: float, now: float, count: int = 1) -> float:
    """The time from which the next task may start, once so many have started now."""
    return _first(every, burst, starts_at, now) + count * every


def _first(every: float, burst: float, starts_at: float, now: float) -> float:
    return max(starts_at, now - (burst - 1) * every)


class Paces:
    """The paces of the groups of one queue."""

    def __init__(self, state: State, queue: str) -> None:
        self._state = state
        self._queue = queue
        self._table: Table[Pace] = state.table(PACES)

    @property
    def now(self) -> float:
        """The engine's time in seconds."""
        return self._state.now

    def find(self, group: str) -> Pace | None:
        """The pace of a group, if it says something."""
        return self._table.get(self._queue, encoded_name(group))

    def set(self, group: str, starts_at: float) -> bool:
        """The next task of a group may start then; return whether the group had no pace."""
        pace = self.find(group)
        if pace is None:
            self._table.save(Pace(self._queue, encoded_name(group), starts_at))
            return True
        self._table.move(pace, starts_at=starts_at)
        return False

    def await_it(self, pace: Pace, awaited: bool) -> None:
        """Tasks of the group wait for its time alone, or no longer."""
        if awaited != bool(pace.awaited):
            self._table.move(pace, awaited=awaited)

    def first_due(self) -> float | None:
        """The next time for which a group waits."""
        pace = self._table.first("due", self._queue)
        return pace and pace.starts_at

    def due(self, limit: int) -> Sequence[Pace]:
        """The first paces whose time has come, of groups that wait for it."""
        return self._first("due", self.now + ROUNDING, limit)

    def forget(self, before: float, limit: int) -> int:
        """Forget the first paces of groups that could have started before that time; return how many."""
        old = [pace for pace in self._first("old", before, limit) if not pace.awaited]
        for pace in old:
            self._table.remove(pace)
        return len(old)

    def _first(self, order: str, until: float, limit: int) -> Sequence[Pace]:
        paces = takewhile(lambda pace: pace.starts_at <= until, self._table.each(order, self._queue))
        return list(islice(paces, limit))
