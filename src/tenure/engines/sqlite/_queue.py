"""The state of one queue: its counters, producers and takers. Read once per transaction, written back at its end."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from tenure.engine import Notice

from ._groups import Groups
from ._session import Session
from ._sql import QUEUES, TASKS
from ._state import State

WAITING, DELAYED, LEASED = 0, 1, 2
"""The places of a task."""

IN_LINE, RESERVED, IN_GROUP = 0, 1, 2
"""The places of a producer."""


@dataclass(slots=True)
class Row:
    """The row of a queue, by the names of its columns."""

    id: int
    name: str
    paused: int
    max_size: int
    live: int
    waiting: int
    delayed: int
    put: int
    done: int
    dead: int
    cancelled: int
    expired: int
    discarded: int
    purged: int
    reserved: int
    producers: int
    takers: int
    stops: int
    ordinal: int
    lasting: int
    keep_until: int
    look_at: int | None
    has_groups: int


_COLUMNS = tuple(field.name for field in fields(Row))
_row_of: attrgetter[tuple[Any, ...]] = attrgetter(*_COLUMNS)


class Queue(Row):
    """One queue; `known_due` is the due time of its next delayed task, as long as `due_is_known`.

    It has `groups` if one is named or there are settings for them.
    """

    __slots__ = ("due_is_known", "groups", "known_due", "stored")

    def __init__(self, *row: Any) -> None:
        super().__init__(*row)
        self.stored: tuple[Any, ...] = row
        self.known_due: int | None = None
        self.due_is_known = False
        self.groups: Groups | None = None

    @property
    def takeable(self) -> int:
        """How many tasks can be taken now."""
        groups = self.groups
        return self.waiting if groups is None or not groups.named else groups.takeable

    @property
    def room(self) -> int:
        return self.max_size - self.live - self.reserved

    def count(self, state: str) -> None:
        setattr(self, state, getattr(self, state) + 1)

    def line_up(self, task: int, group: bytes, ready_at: int, now: int) -> int:
        """A task enters the order; returns its place."""
        if ready_at <= now:
            self.waiting += 1
            if self.groups is not None:
                self.groups.add(group, task)
            return WAITING
        self.delayed += 1
        if self.known_due is None or ready_at < self.known_due:
            self.known_due = ready_at
        if self.groups is not None:
            self.groups.rest(group, task)
        return DELAYED

    def step_out(self, place: int, group: bytes) -> None:
        """A task leaves the order."""
        if place == DELAYED:
            self.delayed -= 1
            self.due_is_known = False
        elif place == WAITING:
            self.waiting -= 1
            if self.groups is not None:
                self.groups.remove(group)


class Queues:
    """The queues of this transaction."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queues: dict[str, Queue] = {}
        self.keys_kept = 0
        """How many keys with a ttl were put in this transaction."""

    def begin(self) -> None:
        self._queues, self.keys_kept = {}, 0

    def save(self) -> None:
        for queue in list(self._queues.values()):
            if queue.groups is not None:
                queue.has_groups = int(queue.groups.save())
            if queue.keep_until <= self._state.wall and not queue.takers and self._is_idle(queue):
                if not self._state.one(TASKS.any_kept_key, queue=queue.id)[0]:
                    del self._queues[queue.name]
                    self._state.run(QUEUES.delete, id=queue.id)
                    continue
                queue.look_at = self._state.wall
            if queue.look_at is None and queue.keep_until > self._state.wall and self._is_idle(queue):
                queue.look_at = queue.keep_until
            row = _row_of(queue)
            if row != queue.stored:
                self._state.run(QUEUES.save, **dict(zip(_COLUMNS, row, strict=True)))

    def _is_idle(self, queue: Queue) -> bool:
        """Whether nothing but time keeps it; idle takers do not."""
        keeps = queue.live or queue.dead or queue.lasting or queue.producers or queue.reserved or queue.paused
        keeps = keeps or (queue.groups is not None and queue.groups.are_kept)
        return not keeps and not self._state.one(QUEUES.any_cursor, queue=queue.id)[0]

    def forget(self, count: int) -> None:
        """Look at queues that nothing may keep any more, which `save` deletes, or that have keys to be forgotten."""
        state = self._state
        if state.soonest.queue is not None and state.soonest.queue <= state.wall:
            for (name,) in state.all(QUEUES.to_look_at, now=state.wall, count=count):
                if (queue := self.find(name)) is not None:
                    state.run(
                        TASKS.forget_keys, queue=queue.id, now=state.wall, count=count + 2 * self.keys_kept
                    )
                    (queue.look_at,) = state.one(TASKS.next_key, queue=queue.id)

    def find(self, name: str) -> Queue | None:
        """A queue as it is now: one that nothing keeps any more is as if never used."""
        queue = self._queues.get(name)
        if queue is None:
            row = self._state.one(QUEUES.queue, name=name)
            if row is None:
                return None
            queue = self._queues[name] = Queue(*row)
            if queue.has_groups:
                self.groups(queue)
        if queue.put and queue.keep_until <= self._state.wall and self._is_idle(queue):
            queue.put = queue.done = queue.cancelled = queue.expired = queue.discarded = queue.purged = 0
        return queue

    def get(self, name: str) -> Queue:
        queue = self.find(name)
        if queue is None:
            self._state.run(QUEUES.new, name=name)
            queue = self.find(name)
            assert queue is not None
        return queue

    def groups(self, queue: Queue) -> Groups:
        """The groups of a queue, which may have had none."""
        if queue.groups is None:
            queue.groups = Groups(self._state, lambda: queue.waiting, queue.id)
        return queue.groups

    # delayed tasks

    def due(self, queue: Queue) -> int | None:
        """When the next delayed task is due; to be asked before tasks enter the order."""
        if not queue.due_is_known:
            queue.known_due = self._state.one(TASKS.due, queue=queue.id)[0] if queue.delayed else None
            queue.due_is_known = True
        return queue.known_due

    # producers

    def make_room(self, queue: Queue, group: bytes) -> None:
        """Something was freed in this group, and so in the queue."""
        groups = queue.groups
        while groups is not None and groups.has_line(group):
            producer, count, _ = self._state.one(QUEUES.first_in_group, queue=queue.id, group=group)
            if not groups.admits(group, count):
                break
            groups.reserve(group, count)
            groups.leave(group)
            queue.ordinal += 1
            queue.producers += 1
            self._state.run(QUEUES.leave_group, id=producer, ordinal=queue.ordinal)
        self.admit(queue)

    def admit(self, queue: Queue) -> None:
        """Reserve slots for the head of the producers' line, for as long as it fits."""
        while queue.producers:
            producer, name, process, count = self._state.one(QUEUES.first_producer, queue=queue.id)
            if count > queue.room and (queue.live or queue.reserved):
                return
            self._state.run(QUEUES.reserve, id=producer)
            queue.producers -= 1
            queue.reserved += count
            self._state.hint(process, queue.name, name, Notice.ROOM)

    # takers

    def register(self, queue: Queue, session: Session, want: int) -> None:
        """A session is idle and wants that many tasks; with 0, it is busy."""
        if want <= 0 and not queue.takers:
            return
        idle = self._state.one(QUEUES.is_idle, queue=queue.id, session=session.number)
        if want > 0:
            self._state.run(QUEUES.idle, queue=queue.id, session=session.number, want=want)
            queue.takers += idle is None
        elif idle is not None:
            self.drop_taker(queue, idle[0])

    def drop_taker(self, queue: Queue, taker: int) -> None:
        self._state.run(QUEUES.busy, id=taker)
        queue.takers -= 1

    def offer(self, queue: Queue, count: int) -> None:
        """Hint idle takers that `count` more tasks can be taken, as many takers as are needed."""
        while count > 0 and queue.takers and not queue.paused:
            taker, process, want = self._state.one(QUEUES.first_taker, queue=queue.id)
            self.drop_taker(queue, taker)
            self._state.hint(process, queue.name, "", Notice.READY)
            count -= want

    def offer_sooner(self, queue: Queue, due: int | None) -> None:
        """A new earliest due time: one idle taker must know, to ask in time."""
        now_due = self.due(queue)
        if now_due is not None and (due is None or now_due < due):
            self.offer(queue, 1)
