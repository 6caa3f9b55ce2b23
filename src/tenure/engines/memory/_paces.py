"""The paces of the groups of one queue in memory."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tenure.engines.rules import Pace

from ._order import Order, Rank
from ._state import State


class Paces:
    """Paces by group, and their two orders by time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._paces: dict[str, Pace] = {}
        self.find: Callable[[str], Pace | None] = self._paces.get
        self._orders = (Order(self._stands, "old"), Order(self._stands, "due"))

    @property
    def now(self) -> float:
        return self._state.now

    def save(self, pace: Pace, _former: Pace | None) -> None:
        self._paces[pace.group] = pace
        self._orders[pace.awaited].add((pace.starts_at, pace.group), len(self._paces))

    def remove(self, pace: Pace) -> None:
        del self._paces[pace.group]

    def until(self, awaited: bool, time: float, limit: int) -> tuple[list[Pace], float]:
        order = self._orders[awaited]
        found: dict[str, Pace] = {}  # a pace may be entered twice
        while (rank := order.first()) is not None and rank[0] <= time:
            if len(found) == limit:
                break
            order.pop()
            found[rank[1]] = self._paces[rank[1]]
        return list(found.values()), inf if rank is None else rank[0]

    def each(self) -> list[Pace]:
        return list(self._paces.values())

    def _stands(self, order: str, rank: Rank) -> bool:
        pace = self._paces.get(rank[1])
        return pace is not None and pace.starts_at == rank[0] and pace.awaited == (order == "due")
