"""An order whose entries may leave anywhere: a heap that is swept when most of its entries are dead."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

Rank = tuple[Any, ...]
"""A sort key; its last part is the task's id, or the name of a group."""

_SLACK = 64


class Order:
    """The ranks of a `group`, from low to high. `stands` returns False for a dead rank."""

    __slots__ = ("_heap", "group", "stands")

    def __init__(self, stands: Callable[[str, Rank], bool], group: str = "") -> None:
        self.stands = stands
        self.group = group
        self._heap: list[Rank] = []

    def add(self, rank: Rank, count: int) -> None:
        if len(self._heap) > 2 * count + _SLACK:
            self._heap = self.alive()
            heapify(self._heap)
        heappush(self._heap, rank)

    def alive(self) -> list[Rank]:
        # a task that was changed and changed back is there twice
        return [*{rank for rank in self._heap if self.stands(self.group, rank)}]

    def until(self, last: Rank) -> set[Rank]:
        """The standing ranks up to `last`; the cost counts dead ranks, too."""
        found: set[Rank] = set()
        places = [0]
        while places:
            place = places.pop()
            if place < len(self._heap) and (rank := self._heap[place]) <= last:
                if self.stands(self.group, rank):
                    found.add(rank)
                places += (2 * place + 1, 2 * place + 2)
        return found

    def first(self) -> Rank | None:
        heap = self._heap
        while heap and not self.stands(self.group, heap[0]):
            heappop(heap)
        return heap[0] if heap else None

    def pop(self) -> Rank:
        return heappop(self._heap)


class ReadyTasks:
    __slots__ = ("by_age", "by_priority")

    def __init__(self, group: str, is_ready: Callable[[str, Rank], bool]) -> None:
        self.by_priority = Order(is_ready, group)
        self.by_age: Order | None = None

    def pop(self, now: float, aging: float | None) -> int | None:
        order = self.by_priority
        if aging is not None and (oldest := self._ages().first()) is not None and now - oldest[0] > aging:
            order = self._ages()
        return None if order.first() is None else int(order.pop()[-1])

    def _ages(self) -> Order:
        if self.by_age is None:
            by_priority = self.by_priority
            self.by_age = Order(by_priority.stands, by_priority.group)
            alive = by_priority.alive()
            for rank in alive:
                self.by_age.add(rank[1:], len(alive))
        return self.by_age
