"""The groups of one queue in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import itemgetter

from tenure.engine import GroupCounts
from tenure.engines.rules import Group, Groups, Position, Turn

from ._order import Order, Rank, ReadyTasks
from ._paces import Paces


class GroupRows:
    """Groups by name. Their order of turns takes in what has changed before it is read."""

    def __init__(self, is_ready: Callable[[str, Rank], bool], paces: Paces) -> None:
        self.paces = paces
        self._is_ready = is_ready
        self.ready: dict[str, ReadyTasks] = {}
        """The waiting tasks of groups, in order."""
        self._only: dict[str, Rank] = {}
        """The rank of the only waiting task, for groups without an order."""
        self._groups: dict[str, Group] = {}
        self.find: Callable[[str], Group | None] = self._groups.get
        self._changed: set[str] = set()
        self._turns = Order(self._stands)

    def expect(self, names: Iterable[str]) -> None:
        """There is nothing to be read."""

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
            self._only.pop(name, None)

    def begin(self, name: str, rank: Rank) -> ReadyTasks | None:
        """A task waits in a group without an order; return the order, which a named group has from its second task."""
        only = self._only.pop(name, None)
        if name and only is None:
            self._only[name] = rank
            return None
        ready = self.ready[name] = ReadyTasks(name, self._is_ready)
        if only is not None:
            ready.by_priority.add(only, 1)
        return ready

    def pop_only(self, name: str) -> int | None:
        """The id of the only waiting task of a group without an order; the task leaves it."""
        only = self._only.pop(name, None)
        return only[-1] if only is not None and self._is_ready(name, only) else None

    def next(self, count: int) -> list[Turn]:
        for name in self._changed:
            group = self._groups.get(name)
            if group is not None and group.takeable:
                self._turns.add((group.tag, name), len(self._groups))
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

    def refresh(self, groups: Groups) -> int:
        self._changed.update(self._groups)
        for name, group in self._groups.items():
            if name:
                groups.refresh(group)
        return groups.takeable

    def end(self, _tasks: Sequence[int]) -> int:
        """None: groups are removed one by one."""
        return 0

    def longest(self, after: Position, limit: int) -> list[tuple[Position, GroupCounts]]:
        there = [
            ((-group.unfinished, group.name), group)
            for group in self._groups.values()
            if group.name and group.unfinished
        ]
        return [
            (place, GroupCounts(g.name, g.waiting, g.unfinished - g.waiting - g.leased, g.leased))
            for place, g in nsmallest(limit, [one for one in there if one[0] > after], key=itemgetter(0))
        ]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def _stands(self, _: str, rank: Rank) -> bool:
        group = self._groups.get(rank[-1])
        return group is not None and group.takeable > 0 and group.tag == rank[0]
