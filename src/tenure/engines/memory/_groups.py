"""The groups of one queue in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set as AbstractSet
from heapq import nsmallest
from math import inf
from operator import itemgetter

import tenure.engine as e
from tenure.engines.rules import Group, Position, Turn

from ._order import Order, Rank, ReadyTasks
from ._state import MemoryState


class MemoryGroupRows:
    def __init__(self, is_ready: Callable[[str, Rank], bool], state: MemoryState) -> None:
        self._state = state
        self._is_ready = is_ready
        self.ready: dict[str, ReadyTasks] = {}
        self._groups: dict[str, Group] = {}
        self.find: Callable[[str], Group | None] = self._groups.get
        self._changed: set[str] = set()
        self._turns = Order(self._has_turn)
        self._closed = Order(self._is_closed)
        self._idle = Order(self._is_idle)

    @property
    def now(self) -> float:
        return self._state.now

    def read(self, names: AbstractSet[str]) -> AbstractSet[str]:
        return names & self._groups.keys()

    def change(self, name: str) -> Group:
        self._changed.add(name)
        return self._groups[name]

    def add(self, group: Group) -> None:
        self._groups[group.name] = group
        self._changed.add(group.name)

    def remove(self, name: str) -> None:
        del self._groups[name]
        self._changed.discard(name)
        if name:
            self.ready.pop(name, None)

    def order_of(self, name: str) -> ReadyTasks:
        ready = self.ready.get(name)
        if ready is None:
            ready = self.ready[name] = ReadyTasks(name, self._is_ready)
        return ready

    def next(self, count: int) -> list[Turn]:
        self._take_in()
        nexts: list[Turn] = []
        while len(nexts) < count and self._turns.first() is not None:
            tag, name = self._turns.pop()
            if not nexts or name != nexts[-1].group:  # it may have been entered twice
                nexts.append(Turn(tag, name, self._groups[name].waiting))
        self._changed = {group.group for group in nexts}
        return nexts

    def take_each(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            group = self._groups[turn.group]
            group.waiting = group.takeable = 0
            group.leased += bool(turn.group)

    def closed(self, time: float, limit: int) -> tuple[list[str], float]:
        self._take_in()
        names = self._until(self._closed, time, limit)
        first = self._closed.first()
        return names, inf if first is None else first[0]

    def idle(self, time: float, limit: int) -> list[str]:
        self._take_in()
        return self._until(self._idle, time, limit)

    def each(self) -> list[str]:
        return [name for name in self._groups if name]

    def end(self, _tasks: Sequence[int]) -> int:
        return 0

    def longest(self, after: Position, limit: int) -> list[tuple[Position, e.GroupCounts]]:
        there = [
            ((-group.unfinished, group.name), group)
            for group in self._groups.values()
            if group.name and group.unfinished
        ]
        return [
            (place, e.GroupCounts(g.name, g.waiting, g.unfinished - g.waiting - g.leased, g.leased))
            for place, g in nsmallest(
                limit, [entry for entry in there if entry[0] > after], key=itemgetter(0)
            )
        ]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def _take_in(self) -> None:
        count = len(self._groups)
        for name in self._changed:
            group = self._groups[name]
            if group.takeable:
                self._turns.add((group.tag, name), count)
            elif -inf < group.closed_until < inf:
                self._closed.add((group.closed_until, name), count)
            elif name and group.is_idle:
                self._idle.add((group.starts_at, name), count)
        self._changed.clear()

    def _until(self, order: Order, time: float, limit: int) -> list[str]:
        found: dict[str, None] = {}  # a group may have been entered twice
        while len(found) < limit and (rank := order.first()) is not None and rank[0] <= time:
            found[order.pop()[1]] = None
        return list(found)

    def _has_turn(self, _: str, rank: Rank) -> bool:
        group = self._groups.get(rank[-1])
        return group is not None and group.takeable > 0 and group.tag == rank[0]

    def _is_closed(self, _: str, rank: Rank) -> bool:
        group = self._groups.get(rank[-1])
        return group is not None and group.closed_until == rank[0]

    def _is_idle(self, _: str, rank: Rank) -> bool:
        group = self._groups.get(rank[-1])
        return group is not None and group.is_idle and group.starts_at == rank[0]
