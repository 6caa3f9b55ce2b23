"""The groups of one queue, which take turns: limits, weights and tags. `SetGroups` has the rules.

What is needed of them is read once per transaction. It is written back at its end, and before a statement looks at
many groups. While no group is named, there are settings only: the tasks without a group are then all there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from heapq import heappop, heapreplace
from operator import attrgetter
from typing import Any

from tenure.engine import GroupCounts, SetGroups

from ._records import decoded_name, encoded_name
from ._sql import GROUPS
from ._state import State


@dataclass(slots=True)
class Group:
    """The row of a group, by the names of its columns; the tag counts while a task can be taken."""

    name: bytes
    unfinished: int = 0
    waiting: int = 0
    leased: int = 0
    takeable: int = 0
    bound: int = 0
    rests: int = 0
    reserved: int = 0
    producers: int = 0
    tag: float = 0.0


@dataclass(slots=True)
class Grouping:
    """What a queue has for all its groups together, by the names of the columns."""

    queue: int
    named: int = 0
    unfinished: int = 0
    takeable: int = 0
    producers: int = 0
    virtual_time: float = 0.0
    per_group: int = 0
    max_size: int = 0
    hold: bool = True
    weights: str = "{}"


@dataclass(slots=True)
class Turn:
    """A task is to be taken from a group: the one that is bound, or else `first` by priority, as the rows are now."""

    group: bytes
    bound: int
    first: int


class Groups(Grouping):
    """All groups of a queue. `count_waiting` returns how many tasks of the queue wait."""

    __slots__ = ("_changed", "_count_waiting", "_groups", "_state", "_stored")

    def __init__(self, state: State, count_waiting: Callable[[], int], queue: int) -> None:
        row = state.one(GROUPS.grouping, queue=queue) or ()
        super().__init__(queue, *row)
        self._stored: tuple[Any, ...] = row and (queue, *row)
        self._state = state
        self._count_waiting = count_waiting
        self._groups: dict[bytes, Group | None] = {}
        self._changed: set[bytes] = set()

    @property
    def are_kept(self) -> bool:
        """Whether one is named, or the settings differ from the defaults."""
        return bool(self.named or self.per_group or self.max_size or self.weights != "{}")

    # reading and writing

    def expect(self, names: Iterable[bytes]) -> None:
        """Read the groups with these names in one statement, since they will be needed."""
        unknown = {name for name in names if name not in self._groups}
        self._groups.update(dict.fromkeys(unknown))
        if self.named:
            for row in self._state.many(GROUPS.find, [self._key(name) for name in unknown]):
                self._groups[row[0]] = Group(*row)

    def of_tasks(self, tasks: Iterable[int]) -> dict[int, bytes]:
        """Read the groups of these tasks; their names by the task, of those that are there."""
        names: dict[int, bytes] = {}
        if self.named:
            for task, name, *row in self._state.all(GROUPS.of_tasks, ids=str(list(tasks))):
                if name not in self._groups and row[0] is not None:
                    self._groups[name] = Group(name, *row)
                if name in self._groups:
                    names[task] = name
        return names

    def end(self, tasks: list[int]) -> int:
        """These leased tasks end: forget the groups of which nothing else is left, and return how many these are."""
        self._write()
        self._groups.clear()
        gone = self._state.run(GROUPS.delete_ended, queue=self.queue, ids=str(tasks)).rowcount
        self.unfinished -= gone
        self._leave(gone)
        return gone

    def save(self) -> bool:
        """Write back what has changed; return whether there is a row of the queue."""
        self._write()
        row = _settings_of(self) if self.are_kept else ()
        if row and row != self._stored:
            self._state.run(GROUPS.save_grouping, **dict(zip(_COLUMNS, row, strict=True)))
        elif self._stored and not row:
            self._state.run(GROUPS.delete_grouping, queue=self.queue)
        self._stored = row
        return bool(row)

    def _write(self) -> None:
        gone: list[tuple[Any, ...]] = []
        kept: list[tuple[Any, ...]] = []
        for name in self._changed:
            group = self._groups[name]
            if group is None:
                gone.append(self._key(name))
            else:
                kept.append((*self._key(name), *_counts_of(group)))
        self._state.many(GROUPS.delete, gone)
        self._state.many(GROUPS.save, kept)
        self._changed.clear()

    # settings

    def set(self, op: SetGroups) -> None:
        """Have new settings."""
        weights = {encoded_name(name): weight for name, weight in op.weights}
        changed = (op.per_group, op.hold) != (self.per_group, bool(self.hold))
        self.per_group, self.max_size, self.hold = op.per_group, op.max_size, op.hold
        self.weights = json.dumps({name.hex(): weight for name, weight in weights.items()})
        if not changed or not self.named:
            return
        self.expect(weights)
        for name in weights:
            if name and self._find(name) is not None:
                self._refresh(self._group(name))
        self._write()
        self._groups.clear()
        tag = self.virtual_time + 1.0
        self._state.run(GROUPS.refresh, queue=self.queue, per_group=op.per_group, hold=op.hold, tag=tag)
        self.takeable = int(self._state.one(GROUPS.takeable, queue=self.queue)[0])

    def longest(self, limit: int) -> tuple[GroupCounts, ...]:
        self._write()
        rows = self._state.all(GROUPS.longest, queue=self.queue, limit=limit)
        return tuple(GroupCounts(decoded_name(name), *counts) for name, *counts in rows)

    # tasks come and go

    def come(self, name: bytes) -> None:
        """There is one unfinished task more."""
        if name:
            group = self._group(name)
            self.unfinished += not group.unfinished
            group.unfinished += 1

    def go(self, name: bytes, task: int) -> None:
        """A task that is neither leased nor waiting is unfinished no more."""
        if name:
            group = self._group(name)
            group.unfinished -= 1
            self.unfinished -= not group.unfinished
            if group.bound == task:
                group.bound = group.rests = 0
                self._refresh(group)
            self._tidy(group)

    def add(self, name: bytes, task: int) -> None:
        """A task is ready."""
        if self.named:
            group = self._group(name)
            group.waiting += 1
            if group.bound == task:
                group.rests = 0
            self._refresh(group)

    def remove(self, name: bytes) -> None:
        """A task is ready no more."""
        if self.named:
            group = self._group(name)
            group.waiting -= 1
            self._refresh(group)

    def rest(self, name: bytes, task: int) -> None:
        """A task is delayed now."""
        if name:
            group = self._group(name)
            if group.bound == task:
                group.rests = 1
            self._refresh(group)

    def unlease(self, name: bytes) -> None:
        if name:
            group = self._group(name)
            group.leased -= 1
            if group.waiting:
                self._refresh(group)

    def bind(self, name: bytes, task: int) -> None:
        """A task that was tried goes back: it stays ahead of its group where order is kept."""
        if name and self.per_group == 1 and self.hold:
            group = self._group(name)
            group.bound, group.rests = task, 0
            self._refresh(group)

    def refund(self, name: bytes) -> None:
        """The turn of a task that went back untried was none."""
        if self.named and (group := self._find(name)) is not None and group.takeable:
            self._changed.add(name)
            group.tag = max(self.virtual_time, group.tag - self._turn(group))

    def take(self, count: int) -> list[Turn]:
        """Take the next turns, at most so many.

        No more groups than turns can be chosen, so the first ones are all that is looked at.
        """
        self._write()
        rows = self._state.all(GROUPS.next, queue=self.queue, count=count)
        if all(row[2] == 1 for row in rows):
            return self._take_each(rows)
        line = [(tag, name) for tag, name, *_ in rows]
        firsts = {name: first for _, name, _, first in rows}
        self.expect(firsts)
        keeps_order, weights = self._keeps_order, _weights(self.weights)
        turns: list[Turn] = []
        while line and len(turns) < count:
            self.virtual_time, name = line[0]
            group = self._group(name)
            turns.append(Turn(name, group.bound if keeps_order else 0, firsts[name]))
            group.tag = self.virtual_time + 1 / weights.get(name, 1.0)
            group.leased += bool(name)
            group.waiting -= 1
            self._refresh(group)
            if group.takeable:
                heapreplace(line, (group.tag, name))
            else:
                heappop(line)
        return turns

    def _take_each(self, rows: list[tuple[float, bytes, int, int]]) -> list[Turn]:
        """Take the only task that is ready of each of these groups, the first in line: none of them has a next turn."""
        if rows:
            self.virtual_time, last, _, _ = rows[-1]
            self._state.run(GROUPS.take_each, queue=self.queue, tag=self.virtual_time, name=last)
            self.takeable -= len(rows)
            self._groups.clear()
        return [Turn(name, 0, first) for _, name, _, first in rows]

    # producers

    def room(self, name: bytes) -> float:
        """How many tasks a group has room for, if no producer waits for it."""
        if not name or not self.max_size:
            return float("inf")
        group = self._find(name)
        if group is None:
            return self.max_size
        return 0 if group.producers else self._free(group)

    def line_of(self, names: list[bytes]) -> bytes | None:
        """The group in which tasks of these groups, one each, have to wait for room: b"" in none, None for never."""
        if not self.max_size:
            return b""
        return names[0] if len(set(names)) == 1 and (not names[0] or len(names) <= self.max_size) else None

    def reserve(self, name: bytes, count: int) -> None:
        """Reserve slots, or free them; those without a group need none."""
        if name:
            group = self._group(name)
            group.reserved += count
            self._tidy(group)

    def join(self, name: bytes) -> None:
        """A producer waits in the line of a group."""
        self._group(name).producers += 1
        self.producers += 1

    def leave(self, name: bytes) -> None:
        """A producer leaves the line of a group."""
        group = self._group(name)
        group.producers -= 1
        self.producers -= 1
        self._tidy(group)

    def has_line(self, name: bytes) -> bool:
        """Whether producers wait for a group."""
        group = self._find(name) if self.producers else None
        return group is not None and group.producers > 0

    def admits(self, name: bytes, count: int) -> bool:
        """Whether there are slots for the first in the line of a group."""
        group = self._find(name)
        if group is None or not self.max_size:
            return True
        return count <= self._free(group) or not (group.unfinished or group.reserved)

    # inside

    def _key(self, name: bytes) -> tuple[int, bytearray]:
        """The key of a row; sqlite3 looks for an adapter for each parameter of bytes, which is slow."""
        return self.queue, bytearray(name)

    def _find(self, name: bytes) -> Group | None:
        if name not in self._groups:
            self.expect([name])
        return self._groups[name]

    def _group(self, name: bytes) -> Group:
        """A group that is about to change."""
        self._changed.add(name)
        return self._find(name) or self._begin(name)

    def _begin(self, name: bytes) -> Group:
        """There is a named group more; from the first on, the tasks without one are a group too."""
        self.named += 1
        if self.named == 1:
            plain = self._groups[b""] = Group(b"", waiting=self._count_waiting())
            self._changed.add(b"")
            self.takeable = 0
            self._refresh(plain)
        group = self._groups[name] = Group(name)
        return group

    def _tidy(self, group: Group) -> None:
        """Forget a group of which nothing is left."""
        if group.unfinished or group.reserved or group.producers:
            return
        self._groups[group.name] = None
        self._leave(1)

    def _leave(self, count: int) -> None:
        """There are fewer named groups; after the last one there are no turns."""
        self.named -= count
        if count and not self.named:
            self._groups[b""] = None
            self._changed.add(b"")
            self.virtual_time = 0.0

    def _refresh(self, group: Group) -> None:
        takeable = self._limited(group) if self.per_group and group.name else group.waiting
        if takeable and not group.takeable:
            group.tag = self.virtual_time + self._turn(group)
        self.takeable += takeable - group.takeable
        group.takeable = takeable

    def _limited(self, group: Group) -> int:
        """How many tasks of a named group can be taken now, where there is a limit."""
        if group.rests and self._keeps_order:
            return 0
        return max(0, min(self.per_group - group.leased, group.waiting))

    @property
    def _keeps_order(self) -> bool:
        return bool(self.per_group == 1 and self.hold)

    def _free(self, group: Group) -> int:
        return self.max_size - group.unfinished - group.reserved

    def _turn(self, group: Group) -> float:
        return 1.0 if self.weights == "{}" else 1 / _weights(self.weights).get(group.name, 1.0)


_COLUMNS = tuple(field.name for field in fields(Grouping))
_settings_of: attrgetter[tuple[Any, ...]] = attrgetter(*_COLUMNS)
_counts_of: attrgetter[tuple[Any, ...]] = attrgetter(*(field.name for field in fields(Group)[1:]))


@lru_cache(maxsize=64)
def _weights(text: str) -> Mapping[bytes, float]:
    return {bytes.fromhex(name): weight for name, weight in json.loads(text).items()}
