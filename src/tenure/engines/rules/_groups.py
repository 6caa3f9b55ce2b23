"""Groups of tasks, which take turns: limits, rates, weights and tags. `Settings` has the rules.

While no group is named, only the settings are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from heapq import heappop, heapreplace
from math import inf
from typing import NamedTuple, Protocol

import tenure.engine as e

from ._paces import Pace, Paced, pace_of
from ._pages import Position


@dataclass(slots=True)
class Group(Paced):
    """Tasks that share their turns; the tag counts while a task can be taken.

    `pinned_task` goes first because it was tried; `rests` is true while that task is delayed. `reserved` counts slots,
    `producers` the producers in the line of the group. No task can be taken before `closed_until`: -inf if one can be,
    or none waits; inf until something else happens. An idle group is kept only for the time of its next start.
    """

    name: str
    unfinished: int = 0
    waiting: int = 0
    leased: int = 0
    takeable: int = 0
    pinned_task: int = 0
    rests: bool = False
    reserved: int = 0
    producers: int = 0
    starts_at: float = -inf
    paced_at: float | None = None
    closed_until: float = -inf
    tag: float = 0.0

    @property
    def is_idle(self) -> bool:
        return not (self.unfinished or self.reserved or self.producers)


@dataclass(slots=True)
class GroupSettings(Paced):
    """The settings and counts of all groups of a queue.

    A rate or a hold-off closes the queue itself until a time, too. A group with a rate counts as one task that can be
    taken.
    """

    named: int = 0
    unfinished: int = 0
    takeable: int = 0
    producers: int = 0
    virtual_time: float = 0.0
    per_group: int = 0
    max_size: int = 0
    hold: bool = True
    every: float = 0.0
    burst: float = 1.0
    group_every: float = 0.0
    group_burst: float = 1.0
    starts_at: float = -inf
    paced_at: float | None = None
    closed_until: float = -inf
    closed: int = 0
    idle: int = 0
    weights: Mapping[str, float] = field(default_factory=dict[str, float])


class Turn(NamedTuple):
    """A group with one of the next turns.

    Its next task is the pinned task, or else the first by priority or age; `first` is the first by priority, if the
    rows know it.
    """

    tag: float
    group: str
    waiting: int
    first: int = 0
    pinned_task: int = 0


class GroupRows(Protocol):
    @property
    def now(self) -> float: ...

    def read(self, names: AbstractSet[str], /) -> AbstractSet[str]: ...

    def find(self, name: str, /) -> Group | None: ...

    def change(self, name: str, /) -> Group: ...

    def add(self, group: Group, /) -> None: ...

    def remove(self, name: str, /) -> None: ...

    def next(self, count: int, /) -> Sequence[Turn]: ...

    def take_each(self, turns: Sequence[Turn], /) -> None: ...

    def closed(self, time: float, limit: int, /) -> tuple[Sequence[str], float]:
        """The first groups that are closed until `time` or before, for the caller to refresh; the time of the next, or
        inf.
        """
        ...

    def idle(self, time: float, limit: int, /) -> Sequence[str]: ...

    def each(self) -> Sequence[str]: ...

    def longest(self, after: Position, limit: int, /) -> Sequence[tuple[Position, e.GroupCounts]]: ...

    def end(self, tasks: Sequence[int], /) -> int:
        """Remove the groups that end with these leased tasks; return how many. An implementation may remove none."""
        ...


class Groups(GroupSettings):
    __slots__ = ("_again", "_opens_at", "_rows", "group_pace", "pace")

    # declared again, because the methods assign them and not every type checker takes the types of the base
    named: int
    unfinished: int
    takeable: int
    producers: int
    virtual_time: float
    per_group: int
    max_size: int
    hold: bool
    every: float
    burst: float
    group_every: float
    group_burst: float
    starts_at: float
    paced_at: float | None
    closed_until: float
    closed: int
    idle: int
    weights: Mapping[str, float]

    def __init__(self, rows: GroupRows, *row: object) -> None:
        super().__init__(*row)  # pyright: ignore[reportArgumentType] the columns of a row, or none
        self._rows = rows
        self.pace: Pace = Pace(self.every, self.burst)
        self.group_pace: Pace = Pace(self.group_every, self.group_burst)
        self._opens_at: float | None = None
        self._again = 0

    @property
    def are_kept(self) -> bool:
        settings = self.per_group or self.max_size or self.weights or self.every or self.group_every
        return bool(self.named or self.idle or settings or not self.hold or self.starts_at > -inf)

    @property
    def keep_order(self) -> bool:
        return bool(self.per_group == 1 and self.hold)

    @property
    def is_paced(self) -> bool:
        return bool(self.group_every or self.closed or self.idle or self.every or self.starts_at > -inf)

    @property
    def has_pace(self) -> bool:
        return bool(self.every or self.starts_at > -inf)

    def set(self, new: e.Settings) -> None:
        before = (self.per_group, bool(self.hold))
        pace, group_pace, now = self.pace, self.group_pace, self._rows.now
        self.per_group, self.max_size, self.hold = new.group_limit, new.group_size, new.hold
        self.weights = dict(new.weights)
        self.every, self.burst = self.pace = pace_of(new.rate)
        self.group_every, self.group_burst = self.group_pace = pace_of(new.group_rate)
        if pace != self.pace:
            self.set_pace(pace, self.pace, now)
        self._check()
        if before != (self.per_group, bool(self.hold)) or group_pace != self.group_pace:
            for name in self._rows.each():
                group = self._rows.change(name)
                if group_pace != self.group_pace:
                    group.set_pace(group_pace, self.group_pace, now)
                self.refresh(group)

    def unset(self) -> None:
        self.per_group, self.max_size, self.hold, self.weights = 0, 0, True, {}
        self.every, self.burst = self.pace = pace_of(None)
        self.group_every, self.group_burst = self.group_pace = pace_of(None)
        self._check()

    # time

    @property
    def until(self) -> float:
        return self.starts_at + self.pace.slack

    def due(self, waiting: int) -> float | None:
        if self.closed_until > -inf and waiting:
            return self.closed_until
        if self._opens_at is None:
            _, self._opens_at = self._rows.closed(-inf, 1) if self.closed else ((), inf)
        return None if self._opens_at == inf else self._opens_at

    def pass_time(self) -> None:
        now = self._rows.now
        if self.closed and (self._opens_at is None or self._opens_at <= now + e.ROUNDING):
            names, then = self._rows.closed(now + e.ROUNDING, e.CAP)
            for name in names:
                self.refresh(self._rows.change(name))
            self._opens_at = then
        if self.idle:
            for name in self._rows.idle(now - self.group_pace.slack, e.CAP):
                self._forget(name)
        self._check()

    def possible(self, count: int) -> int:
        return int(min(count, self.possible_starts(self.pace, self._rows.now))) if self.has_pace else count

    def starts_in(self, name: str = "") -> tuple[float, float]:
        """The seconds until the next task of a group, or of the queue for "", may start, and the part that is a
        hold-off.
        """
        its = self._rows.find(name) if name else self
        return its.time_left(self._rows.now) if its else (0.0, 0.0)

    def start(self, count: int) -> None:
        if self.has_pace:
            self.start_some(self.pace, self._rows.now, count)
            self._check()

    def regained(self) -> int:
        again, self._again = self._again, 0
        return again

    def hold_off(self, name: str, seconds: float) -> float:
        """Start no task of a group, or of the queue for "", for `seconds` (0: hold off no longer); return until when
        this matters.
        """
        now = self._rows.now
        if not name:
            self.delay(seconds, now)
            self._check()
            return self.until
        if self._rows.find(name) is None:
            self._rows.add(Group(name))
            self.idle += 1
        group = self._rows.change(name)
        group.delay(seconds, now)
        self.refresh(group)
        if group.is_idle and group.starts_at == -inf:
            self._forget(name)
        return group.starts_at + self.group_pace.slack

    def _forget(self, name: str) -> None:
        self._rows.remove(name)
        self.idle -= 1

    def _check(self) -> None:
        if self.until <= self._rows.now:
            self.starts_at, self.paced_at = -inf, None
        self.closed_until = -inf if self.possible(1) else self.starts_at

    # tasks come and go

    def read(self, names: AbstractSet[str]) -> AbstractSet[str]:
        return self._rows.read(names) if names else names

    def begin(self, name: str, task: int, waiting: int) -> None:
        if not self.named or self._rows.find(name) is not None:
            self.count_in(name, waiting)
            self.add(name, task)
            return
        self._rows.add(Group(name, 1, 1, 0, 1, tag=self._new_tag(name)))
        self.named += 1
        self.unfinished += 1
        self.takeable += 1

    def count_in(self, name: str, waiting: int) -> None:
        group = self._group(name, waiting)
        self.unfinished += not group.unfinished
        group.unfinished += 1

    def count_out(self, name: str, task: int) -> None:
        group = self._rows.change(name)
        group.unfinished -= 1
        self.unfinished -= not group.unfinished
        if group.pinned_task == task:
            group.pinned_task, group.rests = 0, False
            self.refresh(group)
        self._tidy(group)

    def add(self, name: str, task: int) -> None:
        group = self._rows.change(name)
        group.waiting += 1
        if group.pinned_task == task:
            group.rests = False
        self.refresh(group)

    def remove(self, name: str) -> None:
        group = self._rows.change(name)
        group.waiting -= 1
        self.refresh(group)

    def rest(self, name: str, task: int) -> None:
        group = self._rows.change(name)
        if group.pinned_task == task:
            group.rests = True
        self.refresh(group)

    def unlease(self, name: str) -> None:
        group = self._rows.change(name)
        group.leased -= 1
        if group.waiting:
            self.refresh(group)

    def pin(self, name: str, task: int) -> None:
        """Put a tried task ahead of its group where order is kept, unless it is a child."""
        if name and self.keep_order and not name.startswith(e.OF_CHILDREN):
            group = self._rows.change(name)
            group.pinned_task, group.rests = task, False
            self.refresh(group)

    def refund(self, name: str) -> None:
        if self.named and (group := self._rows.find(name)) is not None and group.takeable:
            self._rows.change(name)
            group.tag = max(self.virtual_time, group.tag - self._turn(name))

    def take(self, count: int) -> Sequence[Turn]:
        """Take at most `count` turns.

        Only the first `count` groups are read, since no turn can come from another group.
        """
        nexts = self._rows.next(count)
        if not self.group_every and all(group.waiting == 1 for group in nexts):
            return self._take_each(nexts)
        line = [turn[:2] for turn in nexts]
        firsts = {turn.group: turn.first for turn in nexts}
        self._rows.read(firsts.keys())
        turns: list[Turn] = []
        while line and len(turns) < count:
            self.virtual_time, name = line[0]
            group = self._rows.change(name)
            pinned_task = group.pinned_task if self.keep_order else 0
            turns.append(Turn(self.virtual_time, name, group.waiting, firsts[name], pinned_task))
            group.tag = self.virtual_time + self._turn(name)
            group.leased += bool(name)
            group.waiting -= 1
            has_pace = bool(name and self.group_every)
            if has_pace:
                group.start_some(self.group_pace, self._rows.now)
            self.refresh(group)
            if group.takeable:
                self._again += has_pace
                heapreplace(line, (group.tag, name))
            else:
                heappop(line)
        return turns

    def _take_each(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        if turns:
            self.virtual_time = turns[-1].tag
            self._rows.take_each(turns)
            self.takeable -= len(turns)
        return turns

    def end(self, tasks: Sequence[int]) -> int:
        gone = self._rows.end(tasks)
        self.unfinished -= gone
        self._leave(gone)
        return gone

    # producers

    def room(self, name: str) -> float:
        """The number of tasks for which a group has room; 0 if a producer waits for it."""
        if not name or not self.max_size:
            return float("inf")
        group = self._rows.find(name)
        if group is None:
            return self.max_size
        return 0 if group.producers else self._free(group)

    def line_of(self, names: Sequence[str]) -> str | None:
        """The group in whose line the tasks of these groups wait for room: "" for no wait, None for never."""
        if not self.max_size:
            return ""
        return names[0] if len(set(names)) == 1 and (not names[0] or len(names) <= self.max_size) else None

    def reserve(self, name: str, count: int, waiting: int) -> None:
        if name:
            group = self._group(name, waiting)
            group.reserved += count
            self._tidy(group)

    def join(self, name: str, waiting: int) -> None:
        self._group(name, waiting).producers += 1
        self.producers += 1

    def leave(self, name: str) -> None:
        group = self._rows.change(name)
        group.producers -= 1
        self.producers -= 1
        self._tidy(group)

    def has_line(self, name: str) -> bool:
        group = self._rows.find(name) if self.producers else None
        return group is not None and group.producers > 0

    def admits(self, name: str, count: int) -> bool:
        group = self._rows.find(name)
        if group is None or not self.max_size:
            return True
        return count <= self._free(group) or not (group.unfinished or group.reserved)

    # inside

    def refresh(self, group: Group) -> None:
        """Find anew when a group opens and how many tasks can be taken; a group that opens gets a new tag."""
        closed_until, takeable = -inf, group.waiting
        if takeable and group.name:
            if self.per_group:
                takeable = min(self.per_group - group.leased, takeable)
            if takeable <= 0 or (group.rests and self.keep_order):
                closed_until = inf
            elif group.starts_at > -inf and not group.possible_starts(self.group_pace, self._rows.now):
                closed_until = group.starts_at
            elif self.group_every:
                takeable = 1
            if closed_until > -inf:
                takeable = 0
        if closed_until != group.closed_until:
            self.closed += (-inf < closed_until < inf) - (-inf < group.closed_until < inf)
            group.closed_until, self._opens_at = closed_until, None
        if takeable and not group.takeable:
            group.tag = self._new_tag(group.name)
        self.takeable += takeable - group.takeable
        group.takeable = takeable

    def _group(self, name: str, waiting: int) -> Group:
        """The group of that name, made if need be; with the first, the tasks without a group become a group, too."""
        group = self._rows.find(name)
        if group is None or group.is_idle:
            self.named += 1
            if self.named == 1:
                plain = Group("", waiting=waiting)
                self._rows.add(plain)
                self.takeable = 0
                self.refresh(plain)
            if group is None:
                self._rows.add(Group(name))
            else:
                self.idle -= 1
        return self._rows.change(name)

    def _tidy(self, group: Group) -> None:
        if group.is_idle:
            if group.starts_at + self.group_pace.slack > self._rows.now:
                self.idle += 1
            else:
                self._rows.remove(group.name)
            self._leave(1)

    def _leave(self, count: int) -> None:
        self.named -= count
        if count and not self.named:
            self._rows.remove("")
            self.virtual_time = 0.0

    def _free(self, group: Group) -> int:
        return self.max_size - group.unfinished - group.reserved

    def _new_tag(self, name: str) -> float:
        return self.virtual_time + self._turn(name)

    def _turn(self, name: str) -> float:
        return 1 / self.weights.get(name, 1.0)
