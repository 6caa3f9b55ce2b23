"""Groups of tasks, which take turns: limits, rates, weights and tags. `Settings` has the rules.

While no group is named, there are settings only: the tasks without a group are then all there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heapreplace
from math import inf
from typing import NamedTuple, Protocol

from tenure.engine import CAP, OF_CHILDREN, ROUNDING, GroupCounts, Settings

from ._paces import Pace, Paces, at_rate, held_off, is_held_off, possible_starts, start_after
from ._pages import Position


@dataclass(slots=True)
class Group:
    """Tasks that share their turns; the tag counts while a task can be taken.

    `pinned_task` goes before the others because it was tried; the group rests while that task is delayed. `reserved`
    are slots, and `producers` wait in the line of the group.
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
    tag: float = 0.0


@dataclass(slots=True)
class GroupSettings:
    """The settings and counts of all groups of a queue together.

    A rate is the seconds between two starts (0: none) and the burst. The next task of the queue may start from
    `starts_at`, by the rate alone from `paced_at` while the queue is held off; `open` is 1 if a task could start at the
    last check, else 0, and None without a pace. `paces` is the number of groups with a pace. The first awaited pace is
    due at `first_due` (None: the rows have to be read), and every other pace has an effect until `first_old` at least.
    A group with a rate counts for one task that can be taken.
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
    open: int | None = None
    paces: int = 0
    first_due: float | None = inf
    first_old: float = inf
    weights: Mapping[str, float] = field(default_factory=dict[str, float])


class Turn(NamedTuple):
    """A group whose turn is among the next ones.

    Its next task is the pinned one, or else the first by priority or age; `first` is the first by priority, if the rows
    know that.
    """

    tag: float
    group: str
    waiting: int
    first: int = 0
    pinned_task: int = 0


class GroupRows(Protocol):
    """The groups of one queue."""

    @property
    def paces(self) -> Paces:
        """The paces of the groups."""
        ...

    def expect(self, names: Iterable[str], /) -> None:
        """The groups of these names will be needed."""
        ...

    def find(self, name: str, /) -> Group | None:
        """The group of that name."""
        ...

    def change(self, name: str, /) -> Group:
        """The group of that name, which is there, to be changed by the caller."""
        ...

    def add(self, group: Group, /) -> None:
        """Keep a new group."""
        ...

    def remove(self, name: str, /) -> None:
        """Forget a group."""
        ...

    def next(self, count: int, /) -> Sequence[Turn]:
        """The groups that can be taken from, in the order of their tags and names."""
        ...

    def take_each(self, turns: Sequence[Turn], /) -> None:
        """The only waiting task of each of these groups, the first in the order of turns, is leased."""
        ...

    def refresh(self, groups: Groups, /) -> int:
        """Settings have changed: refresh all named groups, and return how many tasks can be taken."""
        ...

    def longest(self, after: Position, limit: int, /) -> Sequence[tuple[Position, GroupCounts]]:
        """The groups with the most unfinished tasks, behind a place."""
        ...

    def end(self, tasks: Sequence[int], /) -> int:
        """Remove the groups of which nothing is left when these leased tasks end; return how many. It may be none."""
        ...


class Groups(GroupSettings):
    """All groups of a queue; `waiting` counts the waiting tasks of the queue.

    `is_paced` is true if the queue or one of its groups has a rate or a pace; otherwise nothing is checked.
    """

    __slots__ = ("_again", "_is_limited", "_rows", "is_paced")

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
    open: int | None
    paces: int
    first_due: float | None
    first_old: float
    weights: Mapping[str, float]

    def __init__(self, rows: GroupRows, *row: object) -> None:
        super().__init__(*row)  # pyright: ignore[reportArgumentType] the columns of a row, or none
        self._rows = rows
        self._look()
        self._again = 0

    @property
    def are_kept(self) -> bool:
        """True if a group is named, or the settings of groups and rates differ from the defaults."""
        settings = self.per_group or self.max_size or self.weights or self.every or self.group_every
        return bool(self.named or settings or not self.hold)

    @property
    def keep_order(self) -> bool:
        """True if a task that was tried stays ahead of its group."""
        return bool(self.per_group == 1 and self.hold)

    def set(self, new: Settings) -> None:
        """Have other settings."""
        before = (self.per_group, bool(self.hold), self.group_every, self.group_burst)
        of_queue, of_groups = (self.every, self.burst), before[2:]
        self.per_group, self.max_size, self.hold = new.group_limit, new.group_size, new.hold
        self.weights = dict(new.weights)
        self.every, self.burst = (new.rate.every, new.rate.burst) if new.rate else (0.0, 1.0)
        self.group_every, self.group_burst = (
            (new.group_rate.every, new.group_rate.burst) if new.group_rate else (0.0, 1.0)
        )
        if of_queue != (self.every, self.burst):
            times = self._repaced(of_queue, (self.every, self.burst), self.starts_at, self.paced_at)
            self.starts_at, self.paced_at = times
        if of_groups != (self.group_every, self.group_burst) and self.paces:
            for pace in self._rows.paces.each():
                rate = (self.group_every, self.group_burst)
                times = self._repaced(of_groups, rate, pace.starts_at, pace.paced_at)
                self._keep(Pace(pace.group, times[0], pace.awaited, times[1]), pace)
        self.first_old = -inf
        self._open()
        changed = before != (self.per_group, bool(self.hold), self.group_every, self.group_burst)
        if changed and self.named:
            self._rows.expect(self.weights)
            for name in self.weights:
                if name and self._rows.find(name) is not None:
                    self.refresh(self._rows.change(name))
            self.takeable = self._rows.refresh(self)

    def unset(self) -> None:
        """Have the defaults, in a queue in which nothing has an effect."""
        self.per_group, self.max_size, self.hold, self.weights = 0, 0, True, {}
        self.every, self.burst, self.group_every, self.group_burst = 0.0, 1.0, 0.0, 1.0
        self._open()

    # paces

    @property
    def until(self) -> float:
        """The time until which the pace of the queue has an effect."""
        return self.starts_at + (self.burst - 1) * self.every

    def due(self, waiting: int) -> float | None:
        """Return the next time at which more of the waiting tasks can be taken, which wait only for this time."""
        if self.open == 0 and waiting:
            return self.starts_at
        if self.first_due is None:
            _, self.first_due = self._rows.paces.until(True, -inf, 1)
        return None if self.first_due == inf else self.first_due

    def pass_time(self) -> None:
        """Open the queue and the groups whose time has come, and forget paces without an effect."""
        now = self._rows.paces.now
        if self.first_due is None or self.first_due <= now + ROUNDING:
            due, self.first_due = self._rows.paces.until(True, now + ROUNDING, CAP)
            for pace in due:
                if pace.starts_at <= now - self._slack:
                    self._forget(pace)
                if self._rows.find(pace.group) is not None:
                    self.refresh(self._rows.change(pace.group))
                elif pace.starts_at > now - self._slack:
                    self._keep(Pace(pace.group, pace.starts_at), pace)
        if self.first_old <= now:
            old, then = self._rows.paces.until(False, now - self._slack, CAP)
            for pace in old:
                self._forget(pace)
            self.first_old = then + self._slack
        self._open()

    def possible(self, count: int) -> int:
        """Return how many of `count` tasks of the queue may start now."""
        return int(min(count, possible_starts(self.every, self.burst, self.starts_at, self._rows.paces.now)))

    def starts_in(self, name: str = "") -> tuple[float, float]:
        """Return the seconds until the next task of a group, or of the queue for "", may start.

        Then for how many of them it is held off: all or none.
        """
        paces, it = self._rows.paces, self if not name else None
        it = it or (paces.find(name) if self.paces else None)
        if it is None or it.starts_at <= paces.now + ROUNDING:
            return 0.0, 0.0
        seconds = it.starts_at - paces.now
        return seconds, seconds if it.paced_at is not None else 0.0

    def start(self, count: int) -> None:
        """Note that `count` tasks of the queue, which has a pace, have started."""
        if self.every:
            self.starts_at = start_after(self.every, self.burst, self.starts_at, self._rows.paces.now, count)
            self.paced_at = None
        self._open()

    def regained(self) -> int:
        """Return how often a group with a rate could be taken from again, after a task was taken from the group."""
        again, self._again = self._again, 0
        return again

    def hold_off(self, name: str, seconds: float) -> float:
        """Start no task of a group, or of the queue for "", for `seconds`; return until when this has an effect.

        With 0 seconds, a group or a queue that is held off may go on.
        """
        paces = self._rows.paces
        if not name:
            self.starts_at, self.paced_at = held_off(self.starts_at, self.paced_at, seconds, paces.now)
            self._open()
            return self.until
        pace = paces.find(name)
        starts_at, paced_at = held_off(
            *(-inf if pace is None else pace.starts_at, pace and pace.paced_at, seconds, paces.now)
        )
        self._keep(Pace(name, starts_at, pace is not None and bool(pace.awaited), paced_at), pace)
        if self._rows.find(name) is not None:
            self.refresh(self._rows.change(name))
        return starts_at + self._slack

    def _repaced(
        self,
        rate: tuple[float, float],
        new: tuple[float, float],
        starts_at: float,
        paced_at: float | None,
    ) -> tuple[float, float | None]:
        """The two times of a pace whose rate is another one now."""
        now = self._rows.paces.now
        if paced_at is None or not is_held_off(starts_at, paced_at, now):
            return at_rate(*rate, starts_at, now, *new), None
        alone = at_rate(*rate, paced_at, now, *new)
        return (starts_at, alone) if alone < starts_at else (alone, None)

    @property
    def _slack(self) -> float:
        """The seconds for which the pace of a group has an effect after the next start of a task."""
        return (self.group_burst - 1) * self.group_every

    def _look(self) -> None:
        """Check again which limits the groups have."""
        self.is_paced: bool = bool(self.group_every or self.paces or self.open is not None)
        self._is_limited = bool(self.per_group or self.group_every or self.paces)

    def _open(self) -> None:
        """Check again whether a task of the queue may start."""
        if self.until <= self._rows.paces.now:
            self.starts_at, self.paced_at = -inf, None
        self.open = self.possible(1) if self.every or self.starts_at > -inf else None
        self._look()

    def _keep(self, pace: Pace, former: Pace | None) -> None:
        """Keep the pace of a group in place of the former one, or forget it, if it never has an effect."""
        if pace.starts_at == -inf:
            if former is None:
                return
            self._forget(former)
            self._look()
        else:
            self._rows.paces.save(pace, former)
        if former is None:
            self.paces += 1
            self._look()
        elif former.awaited and former.starts_at == self.first_due:
            self.first_due = None
        if not pace.awaited:
            self.first_old = min(self.first_old, pace.starts_at + self._slack)
        elif self.first_due is not None:
            self.first_due = min(self.first_due, pace.starts_at)

    def _forget(self, pace: Pace) -> None:
        """Forget a pace without an effect."""
        self._rows.paces.remove(pace)
        self.paces -= 1

    def _paced(self, name: str, count: int, has_started: bool) -> int:
        """Return how many of `count` tasks of a group count as tasks to be taken now."""
        paces = self._rows.paces
        pace = paces.find(name)
        if pace is not None or has_started:
            every, burst, now = self.group_every, self.group_burst, paces.now
            starts_at, paced_at = (-inf, None) if pace is None else (pace.starts_at, pace.paced_at)
            if has_started:
                starts_at, paced_at = start_after(every, burst, starts_at, now), None
            awaited = count > 0 and not possible_starts(every, burst, starts_at, now)
            if pace is None or starts_at != pace.starts_at or awaited != bool(pace.awaited):
                self._keep(Pace(name, starts_at, awaited, paced_at), pace)
            if awaited:
                return 0
        return min(count, 1) if self.group_every else count

    # tasks come and go

    def begin(self, name: str, task: int, waiting: int) -> None:
        """A new task of a group is ready; of most groups it is the only one."""
        if not self.named or self.group_every or self.paces or self._rows.find(name) is not None:
            self.count_in(name, waiting)
            self.add(name, task)
            return
        self._rows.add(Group(name, 1, 1, 0, 1, tag=self._new_tag(name)))
        self.named += 1
        self.unfinished += 1
        self.takeable += 1

    def count_in(self, name: str, waiting: int) -> None:
        """A group has one unfinished task more."""
        group = self._group(name, waiting)
        self.unfinished += not group.unfinished
        group.unfinished += 1

    def count_out(self, name: str, task: int) -> None:
        """A task that has a group, and is neither leased nor waiting, is unfinished no more."""
        group = self._rows.change(name)
        group.unfinished -= 1
        self.unfinished -= not group.unfinished
        if group.pinned_task == task:
            group.pinned_task, group.rests = 0, False
            self.refresh(group)
        self._tidy(group)

    def add(self, name: str, task: int) -> None:
        """A task is ready."""
        group = self._rows.change(name)
        group.waiting += 1
        if group.pinned_task == task:
            group.rests = False
        self.refresh(group)

    def remove(self, name: str) -> None:
        """A task is ready no more."""
        group = self._rows.change(name)
        group.waiting -= 1
        self.refresh(group)

    def rest(self, name: str, task: int) -> None:
        """A task that has a group is delayed now."""
        group = self._rows.change(name)
        if group.pinned_task == task:
            group.rests = True
        self.refresh(group)

    def unlease(self, name: str) -> None:
        """A task that has a group is leased no more."""
        group = self._rows.change(name)
        group.leased -= 1
        if group.waiting:
            self.refresh(group)

    def pin(self, name: str, task: int) -> None:
        """A task that was tried goes back: it stays ahead of its group where order is kept, unless it is a child."""
        if name and self.keep_order and not name.startswith(OF_CHILDREN):
            group = self._rows.change(name)
            group.pinned_task, group.rests = task, False
            self.refresh(group)

    def refund(self, name: str) -> None:
        """The turn of a task that went back untried was none; the group may have gone with the task."""
        if self.named and (group := self._rows.find(name)) is not None and group.takeable:
            self._rows.change(name)
            group.tag = max(self.virtual_time, group.tag - self._turn(name))

    def take(self, count: int) -> Sequence[Turn]:
        """Take the next turns, at most so many.

        No more groups than turns can be chosen, so the first groups are all that have to be known.
        """
        nexts = self._rows.next(count)
        if not self.group_every and all(group.waiting == 1 for group in nexts):
            return self._take_each(nexts)
        line = [turn[:2] for turn in nexts]
        firsts = {turn.group: turn.first for turn in nexts}
        self._rows.expect(firsts)
        turns: list[Turn] = []
        while line and len(turns) < count:
            self.virtual_time, name = line[0]
            group = self._rows.change(name)
            pinned_task = group.pinned_task if self.keep_order else 0
            turns.append(Turn(self.virtual_time, name, group.waiting, firsts[name], pinned_task))
            group.tag = self.virtual_time + self._turn(name)
            group.leased += bool(name)
            group.waiting -= 1
            has_started = bool(name and self.group_every)
            self.refresh(group, has_started)
            if group.takeable:
                self._again += has_started
                heapreplace(line, (group.tag, name))
            else:
                heappop(line)
        return turns

    def _take_each(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Take the only task that is ready of each of these groups: none of the groups has a next turn."""
        if turns:
            self.virtual_time = turns[-1].tag
            self._rows.take_each(turns)
            self.takeable -= len(turns)
        return turns

    def end(self, tasks: Sequence[int]) -> int:
        """Forget the groups of which nothing is left when these leased tasks end; return how many. It may be none."""
        gone = self._rows.end(tasks)
        self.unfinished -= gone
        self._leave(gone)
        return gone

    def end_alone(self, name: str) -> str:
        """Forget a group of which nothing is left when its leased task ends, and return ""; else return its name."""
        group = self._rows.find(name)
        if group is None or group.unfinished > 1 or group.reserved or group.producers:
            return name
        self._rows.remove(name)
        self.unfinished -= 1
        self._leave(1)
        return ""

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
        """The group in which tasks of these groups, one each, have to wait for room: "" in none, None for never."""
        if not self.max_size:
            return ""
        return names[0] if len(set(names)) == 1 and (not names[0] or len(names) <= self.max_size) else None

    def reserve(self, name: str, count: int, waiting: int) -> None:
        """Reserve slots, or free them; tasks without a group need none."""
        if name:
            group = self._group(name, waiting)
            group.reserved += count
            self._tidy(group)

    def join(self, name: str, waiting: int) -> None:
        """A producer waits in the line of a group."""
        self._group(name, waiting).producers += 1
        self.producers += 1

    def leave(self, name: str) -> None:
        """A producer leaves the line of a group."""
        group = self._rows.change(name)
        group.producers -= 1
        self.producers -= 1
        self._tidy(group)

    def has_line(self, name: str) -> bool:
        """True if producers wait for a group."""
        group = self._rows.find(name) if self.producers else None
        return group is not None and group.producers > 0

    def admits(self, name: str, count: int) -> bool:
        """True if there are slots for the first in the line of a group."""
        group = self._rows.find(name)
        if group is None or not self.max_size:
            return True
        return count <= self._free(group) or not (group.unfinished or group.reserved)

    # inside

    def refresh(self, group: Group, has_started: bool = False) -> None:
        """Count the tasks that can be taken anew; a group that can be taken from anew has a new tag."""
        takeable = self._limited(group, has_started) if self._is_limited and group.name else group.waiting
        if takeable and not group.takeable:
            group.tag = self._new_tag(group.name)
        self.takeable += takeable - group.takeable
        group.takeable = takeable

    def _limited(self, group: Group, has_started: bool) -> int:
        """The number of tasks of a named group that can be taken now, where there is a limit; one may have started."""
        count = group.waiting
        if group.rests and self.keep_order:
            count = 0
        elif self.per_group:
            count = max(0, min(self.per_group - group.leased, group.waiting))
        is_paced = self.group_every or self.paces
        return self._paced(group.name, count, has_started) if is_paced else count

    def _group(self, name: str, waiting: int) -> Group:
        """The group of that name, made if need be, to be changed.

        From the first group on, the tasks without a group are a group too.
        """
        if self._rows.find(name) is not None:
            return self._rows.change(name)
        self.named += 1
        if self.named == 1:
            plain = Group("", waiting=waiting)
            self._rows.add(plain)
            self.takeable = 0
            self.refresh(plain)
        group = Group(name)
        self._rows.add(group)
        return group

    def _tidy(self, group: Group) -> None:
        """Forget a group of which nothing is left."""
        if not (group.unfinished or group.reserved or group.producers):
            self._rows.remove(group.name)
            self._leave(1)

    def _leave(self, count: int) -> None:
        """Count fewer named groups; after the last group there are no turns."""
        self.named -= count
        if count and not self.named:
            self._rows.remove("")
            self.virtual_time = 0.0

    def _free(self, group: Group) -> int:
        return self.max_size - group.unfinished - group.reserved

    def _new_tag(self, name: str) -> float:
        """The tag of a group that can be taken from anew."""
        return self.virtual_time + self._turn(name)

    def _turn(self, name: str) -> float:
        return 1 / self.weights.get(name, 1.0)
