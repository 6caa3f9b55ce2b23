"""The groups of one queue, which take turns: limits, weights and tags. `SetGroups` has the rules."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from typing import Protocol

from tenure.engine import GroupCounts, SetGroups

from ._order import Order, Rank


class GroupedTask(Protocol):
    """What a group needs of a task."""

    id: int
    priority: int
    ready_at: float
    delayed: bool
    group: str


_NOBODY: OrderedDict[str, int] = OrderedDict()


class Group:
    """Tasks that share their turns; a `tag` is there while one of them can be taken and there are other groups."""

    __slots__ = (
        "_by_age",
        "_by_priority",
        "bound",
        "leased",
        "name",
        "producers",
        "reserved",
        "tag",
        "takeable",
        "unfinished",
        "waiting",
    )

    def __init__(self, name: str, is_ready: Callable[[str, Rank], bool]) -> None:
        self.name = name
        self.unfinished = 0
        self.waiting = 0
        self.leased = 0
        self.takeable = 0
        self.tag: float | None = None
        self.bound = 0  # the task that goes before all others, because it has been tried
        self.reserved = 0
        self.producers: OrderedDict[str, int] = _NOBODY
        """The producers that wait for room in the group, and for how many tasks."""
        self._by_priority = Order(is_ready, name)
        self._by_age: Order | None = None  # once anybody asks for it

    def add(self, task: GroupedTask) -> None:
        self._by_priority.add((-task.priority, task.ready_at, task.id), self.waiting)
        if self._by_age is not None:
            self._by_age.add((task.ready_at, task.id), self.waiting)

    def pop(self, now: float, aging: float | None) -> int | None:
        """The id of the task that is next by priority or age; it leaves that order."""
        order = self._by_priority
        if aging is not None and (oldest := self._ages().first()) is not None and now - oldest[0] > aging:
            order = self._ages()
        return None if order.first() is None else int(order.pop()[-1])

    def _ages(self) -> Order:
        if self._by_age is None:
            self._by_age = Order(self._by_priority.stands, self.name)
            for rank in self._by_priority.alive():
                self._by_age.add(rank[1:], self.waiting)
        return self._by_age


class Groups:
    """All groups of a queue; those without a group are `_plain`, which is always there."""

    def __init__(self, is_ready: Callable[[str, Rank], bool], tasks: Mapping[int, GroupedTask]) -> None:
        self.take_turns = False
        """Whether there is any group but that of the tasks without one."""
        self._takeable_of_all = 0
        self._is_ready = is_ready
        self._tasks = tasks
        self._plain = Group("", is_ready)
        self._named: dict[str, Group] = {}
        self.unfinished = 0
        """How many groups have an unfinished task, that of the tasks without one not among them."""
        self._now = 0.0  # the virtual time
        self._tags = Order(self._stands)
        self._per_group = 0
        self._max_size = 0
        self._weights: dict[str, float] = {}
        self._hold = True

    @property
    def takeable(self) -> int:
        """How many tasks can be taken now."""
        return self._takeable_of_all if self._named else self._plain.waiting

    # settings

    @property
    def have_settings(self) -> bool:
        """Whether they differ from the defaults."""
        return bool(self._per_group or self._max_size or self._weights)

    def set(self, op: SetGroups) -> None:
        self._per_group, self._max_size, self._hold = op.per_group, op.max_size, op.hold
        self._weights = dict(op.weights)
        for group in self._named.values():
            self._refresh(group)

    def longest(self, limit: int) -> tuple[GroupCounts, ...]:
        there = (group for group in self._named.values() if group.unfinished)
        return tuple(
            GroupCounts(g.name, g.waiting, g.unfinished - g.waiting - g.leased, g.leased)
            for g in nsmallest(limit, there, key=lambda g: (-g.unfinished, g.name))
        )

    # tasks come and go

    def come(self, name: str) -> None:
        """There is one unfinished task more in a group."""
        group = self._group(name)
        self.unfinished += not group.unfinished
        group.unfinished += 1

    def go(self, task: GroupedTask) -> None:
        """A task that has a group, and is neither leased nor waiting, is unfinished no more."""
        group = self._named[task.group]
        group.unfinished -= 1
        self.unfinished -= not group.unfinished
        if group.bound == task.id:
            group.bound = 0
            self._refresh(group)
        self._tidy(group)

    def add(self, task: GroupedTask) -> None:
        """A task is ready."""
        group = self._group(task.group) if task.group else self._plain
        group.waiting += 1
        group.add(task)
        if self._named:
            self._refresh(group)

    def remove(self, task: GroupedTask) -> None:
        """A task is ready no more."""
        group = self._group(task.group) if task.group else self._plain
        group.waiting -= 1
        if self._named:
            self._refresh(group)

    def rest(self, task: GroupedTask) -> None:
        """A task that has a group is delayed now."""
        self._refresh(self._group(task.group))

    def lease(self, task: GroupedTask) -> None:
        """The next task is taken, and ready no more. Only while there are groups."""
        group = self._group(task.group)
        group.leased += 1
        group.waiting -= 1
        assert group.tag is not None
        self._now, tag = group.tag, group.tag + self._turn(group)
        self._refresh(group)
        if group.takeable:
            self._set_tag(group, tag)

    def unlease(self, task: GroupedTask) -> None:
        """A task that has a group is leased no more."""
        group = self._named[task.group]
        group.leased -= 1
        if group.waiting:
            self._refresh(group)

    def bind(self, task: GroupedTask) -> None:
        """A task that was tried goes back: it stays ahead of its group where order is kept."""
        if task.group and self._per_group == 1 and self._hold:
            group = self._group(task.group)
            group.bound = task.id
            self._refresh(group)

    def refund(self, task: GroupedTask) -> None:
        """The turn of a task that went back untried was none; the group may have gone with it."""
        group = self._named.get(task.group) if task.group else self._plain
        if group is not None and group.tag is not None:
            self._set_tag(group, max(self._now, group.tag - self._turn(group)))

    def pop(self, now: float, aging: float | None) -> int | None:
        """The id of the next task, which the caller takes."""
        if not self._named:
            return self._plain.pop(now, aging)
        if (rank := self._tags.first()) is None:
            return None
        group = self._group(rank[-1])
        return group.bound if self._is_bound(group) else group.pop(now, aging)

    # producers

    def have_room(self, tasks: Sequence[str]) -> bool:
        """Whether there is room for tasks of these groups, each named once for each task."""
        if not self._max_size:
            return True
        return all(self.room(name) >= count for name, count in Counter(tasks).items())

    def room(self, name: str) -> float:
        """How many tasks a group has room for, if no producer waits for it."""
        group = self._named.get(name)
        if not name or not self._max_size:
            return float("inf")
        if group is None:
            return self._max_size
        return 0 if group.producers else self._max_size - group.unfinished - group.reserved

    def line_of(self, groups: Sequence[str]) -> str | None:
        """The group in which tasks of these groups, one each, have to wait for room: "" in none, None for never."""
        if not self._max_size:
            return ""
        return (
            groups[0] if len(set(groups)) == 1 and (not groups[0] or len(groups) <= self._max_size) else None
        )

    def reserve(self, name: str, count: int) -> None:
        """Reserve slots, or free them; those without a group need none."""
        if name:
            group = self._group(name)
            group.reserved += count
            self._tidy(group)

    def join(self, name: str, producer: str, count: int) -> None:
        """Wait in the line of a group."""
        group = self._group(name)
        if group.producers is _NOBODY:
            group.producers = OrderedDict()
        group.producers[producer] = count

    def leave(self, name: str, producer: str) -> None:
        """Leave the line of a group."""
        group = self._named[name]
        del group.producers[producer]
        self._tidy(group)

    def first_producer(self, name: str) -> str:
        """The first in the line of a group."""
        return next(iter(self._named[name].producers))

    def admit(self, name: str) -> list[str]:
        """Reserve slots for the first in the line of a group, as many as fit; they leave it."""
        admitted: list[str] = []
        group = self._named.get(name)
        while group is not None and group.producers:
            producer, count = next(iter(group.producers.items()))
            taken = group.unfinished + group.reserved
            if self._max_size and taken and count > self._max_size - taken:
                break
            del group.producers[producer]
            group.reserved += count
            admitted.append(producer)
        return admitted

    def with_producers(self) -> list[str]:
        """The groups for which producers wait."""
        return sorted(name for name, group in self._named.items() if group.producers)

    # inside

    def _group(self, name: str) -> Group:
        if not name:
            return self._plain
        group = self._named.get(name)
        if group is None:
            group = Group(name, self._is_ready)
            self._named[name] = group
            if len(self._named) == 1:
                self.take_turns = True
                self._takeable_of_all = self._plain.takeable = 0
                self._refresh(self._plain)
        return group

    def _tidy(self, group: Group) -> None:
        """Forget a group of which nothing is left."""
        if group.name and not (group.unfinished or group.reserved or group.producers):
            del self._named[group.name]
            if not self._named:
                self.take_turns = False
                self._now, self._plain.tag = 0.0, None

    def _refresh(self, group: Group) -> None:
        takeable = self._takeable(group)
        self._takeable_of_all += takeable - group.takeable
        group.takeable = takeable
        if not takeable:
            group.tag = None
        elif group.tag is None:
            self._set_tag(group, self._now + self._turn(group))

    def _takeable(self, group: Group) -> int:
        """How many of its tasks can be taken now."""
        if not group.name or not self._per_group:
            return group.waiting
        free = self._per_group - group.leased
        if group.bound and self._per_group == 1 and self._hold and not self._is_bound(group):
            return 0
        return max(0, min(free, group.waiting))

    def _is_bound(self, group: Group) -> bool:
        """Whether the next task is the one that was tried before."""
        bound = group.bound and self._per_group == 1 and self._hold
        return bool(bound) and not self._tasks[group.bound].delayed

    def _turn(self, group: Group) -> float:
        return 1 / self._weights.get(group.name, 1.0)

    def _set_tag(self, group: Group, tag: float) -> None:
        group.tag = tag
        self._tags.add((tag, group.name), len(self._named) + 1)

    def _stands(self, _: str, rank: Rank) -> bool:
        group = self._named.get(rank[-1]) if rank[-1] else self._plain
        return group is not None and group.tag == rank[0]
