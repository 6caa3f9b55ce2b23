"""Queues: the settings and counts of a queue, and how a task enters and leaves its orders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import tenure.engine as e

from ._groups import Groups
from ._state import Moment, State
from ._tables import Layout, Order, Table

WAITING, DELAYED, LEASED, SUSPENDED, ENDING, HELD = range(6)
"""The places of a task: in the order of the waiting tasks, in the order of the delayed tasks, in none."""


@dataclass(slots=True)
class StoredSetting:
    queue: str
    name: str
    value: str
    since: float
    by: str


SETTINGS = Layout("setting", StoredSetting, ("queue", "name"), name=Order(("queue",), ("name",)))


@dataclass(slots=True)
class Queue:
    """The settings and counts of a queue.

    `settings` are of the record with this `revision`. `live` counts unfinished tasks, `waiting` and `delayed` the tasks
    in these orders; `stops` the leased tasks that are to stop; `lasting` the records that are kept for good.
    `known_due` is when the next delayed task is due, while `due_is_known`.
    """

    name: str
    paused: bool = False
    revision: int = 0
    live: int = 0
    waiting: int = 0
    delayed: int = 0
    put: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    discarded: int = 0
    purged: int = 0
    reserved: int = 0
    producers: int = 0
    takers: int = 0
    stops: int = 0
    ordinal: int = 0
    lasting: int = 0
    suspended: int = 0
    ending: int = 0
    held: int = 0
    cursors: int = 0
    keep_until: Moment = 0
    groups: Groups = field(init=False)
    settings: e.Settings = field(init=False, default=e.DEFAULTS)
    known_due: Moment | None = field(init=False, default=None)
    due_is_known: bool = field(init=False, default=False)

    @property
    def takeable(self) -> int:
        return self.groups.takeable if self.groups.named else self.waiting

    @property
    def room(self) -> int:
        return self.settings.max_size - self.live - self.reserved

    @property
    def is_kept(self) -> bool:
        keeps = self.live or self.dead or self.lasting or self.producers or self.reserved or self.paused
        return bool(keeps or self.held or self.cursors or self.groups.named)

    def keep_record(self, state: State) -> None:
        if self.revision and self.keep_until < state.after(e.RECORD_TTL):
            self.keep_until = state.after(2 * e.RECORD_TTL)

    def counts(self, **measured: Any) -> e.QueueCounts:
        """The counts of the queue; each engine reads the `measured` ones in its own way."""
        groups = self.groups
        return e.QueueCounts(
            put=self.put,
            done=self.done,
            cancelled=self.cancelled,
            expired=self.expired,
            discarded=self.discarded,
            purged=self.purged,
            reserved=self.reserved,
            producers=self.producers + groups.producers,
            paused=bool(self.paused),
            max_size=self.settings.max_size,
            group_counter=groups.unfinished,
            held=self.held,
            **dict(zip(("starts_in", "held_off"), groups.starts_in(), strict=True)),
            rate=self.settings.rate,
            group_rate=self.settings.group_rate,
            **measured,
        )

    def count(self, state: str) -> None:
        setattr(self, state, getattr(self, state) + 1)

    def forget_counts(self, state: State) -> None:
        self.put = self.done = self.cancelled = self.expired = self.discarded = self.purged = 0
        if self.revision:
            self.revision, self.settings = 0, e.DEFAULTS
            self.groups.unset()
            stored: Table[StoredSetting] = state.table(SETTINGS)
            for setting in [*stored.each("name", self.name)]:
                stored.remove(setting)

    def enqueue_new(self, task: int, group: str, ready_at: Moment, now: Moment) -> int:
        if ready_at > now:
            self.groups.count_in(group, self.waiting)
            return self.enqueue(task, group, ready_at, now)
        self.groups.begin(group, task, self.waiting)
        self.waiting += 1
        return WAITING

    def enqueue(self, task: int, group: str, ready_at: Moment, now: Moment) -> int:
        if ready_at <= now:
            self.waiting += 1
            if self.groups.named:
                self.groups.add(group, task)
            return WAITING
        self.delayed += 1
        if self.known_due is None or ready_at < self.known_due:
            self.known_due = ready_at
        if group:
            self.groups.rest(group, task)
        return DELAYED

    def dequeue(self, place: int, group: str) -> None:
        if place == DELAYED:
            self.delayed -= 1
            self.due_is_known = False
        elif place == WAITING:
            self.waiting -= 1
            if self.groups.named:
                self.groups.remove(group)
        elif place == SUSPENDED:
            self.suspended -= 1
        elif place == ENDING:
            self.ending -= 1


class Queues(Protocol):
    def find(self, name: str, /) -> Any:
        """The queue as it is now, or None if nothing keeps it."""
        ...

    def get(self, name: str, /) -> Any: ...
