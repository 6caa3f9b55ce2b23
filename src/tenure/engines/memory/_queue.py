"""The state of one queue: its tasks, their orders, its producers and takers. No rules, only bookkeeping."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from math import inf
from operator import itemgetter

from tenure.engine import Record

from ._groups import Groups
from ._order import Order, Rank
from ._state import Session


@dataclass(slots=True)
class Task:
    """One unfinished task; leased while it has a session."""

    id: int
    payload: bytes
    priority: int
    key: str | None
    expires: float | None
    ready_at: float
    attempts: int = 0
    deliveries: int = 0
    session: Session | None = None
    token: int = 0
    delayed: bool = False
    stop: bool = False
    ttl: float | None = None
    max_deliveries: int = 0
    keep: bool = False
    dead_ttl: float | None = None
    progress: bytes = b""
    failure: bytes = b""
    meta: bytes = b""
    group: str = ""
    first_put: float = 0.0
    superseded: bool = False


@dataclass(slots=True)
class Ended:
    """The record of a task that has ended."""

    seq: int
    id: int
    state: str
    payload: bytes
    priority: int
    key: str | None
    attempts: int
    deliveries: int
    result: bytes
    ended_at: float
    expires: float | None
    progress: bytes
    failure: bytes
    meta: bytes
    group: str

    def is_over(self, now: float) -> bool:
        """Whether its ttl has passed."""
        return self.expires is not None and self.expires <= now


@dataclass(slots=True)
class Producer:
    """A producer that waits to put `count` tasks, or has that many slots reserved.

    `group` is the one that it waits for, or in which it has slots reserved.
    """

    name: str
    session: Session
    count: int
    ordinal: int
    group: str


class Queue:
    """The state of one queue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused = False
        self.max_size = 0
        self.tasks: dict[int, Task] = {}
        self.keys: dict[str, int] = {}
        self.kept: dict[str, float] = {}
        """Until when tasks have their keys at least, for those with a ttl."""
        self.ended: dict[int, Ended] = {}
        self.waiting = 0
        self.delayed = 0
        self.counts: dict[str, int] = dict.fromkeys(
            ("put", "done", "dead", "cancelled", "expired", "discarded", "purged"), 0
        )
        self.lasting = 0  # records that are kept for good
        self.keep_until = -inf
        self.cursors: dict[str, bytes] = {}
        self.producers: OrderedDict[str, Producer] = OrderedDict()
        self.reserved: dict[str, Producer] = {}
        self.reserved_slots = 0
        self.ordinal = 0
        self.in_groups: dict[str, Producer] = {}
        self.groups = Groups(self._is_ready, self.tasks)
        self.takers: OrderedDict[str, int] = OrderedDict()
        self.stops: dict[int, Session] = {}
        self._log: list[Ended] = []
        self._by_due = Order(self._is_delayed)
        self._by_age: Order | None = None  # of all that wait; once its oldest is asked for

    def is_forgotten(self, now: float) -> bool:
        """Whether nothing keeps it any more; idle takers do not."""
        keeps = self.tasks or self.counts["dead"] or self.lasting or self.cursors or self.producers
        keeps = keeps or self.reserved or self.in_groups or self.paused or self.groups.have_settings
        return not keeps and self.keep_until <= now

    def forget(self) -> None:
        """Make the counts those of a queue that was never used."""
        self.counts = dict.fromkeys(self.counts, 0)

    def owner(self, key: str, now: float) -> int | None:
        """The task that has a key, which may have ended."""
        task_id = self.keys.get(key)
        if task_id is None or task_id in self.tasks or self.kept.get(key, now) > now:
            return task_id
        return None

    def drop_key(self, key: str) -> None:
        """The task with this key is unfinished no more."""
        if key not in self.kept:
            del self.keys[key]

    def look_at_key(self, key: str, now: float) -> float | None:
        """Forget a ttl that is over, and the key if its task has ended; the time of the next look."""
        until = self.kept.get(key)
        if until is None or until > now:
            return until
        del self.kept[key]
        if self.keys[key] not in self.tasks:
            del self.keys[key]
        return None

    def producer(self, name: str) -> Producer | None:
        """One that waits or has slots reserved."""
        return self.producers.get(name) or self.in_groups.get(name) or self.reserved.get(name)

    # the orders: a rank ends with (ready_at, id); they show whether it still stands

    def _is_ready(self, group: str, rank: Rank) -> bool:
        task = self.tasks.get(rank[-1])
        if task is None or task.session is not None or task.delayed or task.ready_at != rank[-2]:
            return False
        # one that was replaced at once may be in another group now, or have another priority
        return task.group == group and (len(rank) == 2 or task.priority == -rank[0])

    def _is_waiting(self, _: str, rank: Rank) -> bool:
        task = self.tasks.get(rank[-1])
        return task is not None and task.session is None and not task.delayed and task.ready_at == rank[-2]

    def _is_delayed(self, _: str, rank: Rank) -> bool:
        task = self.tasks.get(rank[-1])
        return task is not None and task.delayed and task.ready_at == rank[-2]

    def line_up(self, task: Task, now: float) -> None:
        """Enter a task that is not leased into the orders."""
        task.delayed = task.ready_at > now
        if task.delayed:
            self.delayed += 1
            self._by_due.add((task.ready_at, task.id), self.delayed)
            if task.group:
                self.groups.rest(task)
        else:
            self.waiting += 1
            self.groups.add(task)
            if self._by_age is not None:
                self._by_age.add((task.ready_at, task.id), self.waiting)

    def step_out(self, task: Task) -> None:
        """The task is no longer waiting or delayed; its ranks die by themselves."""
        if task.delayed:
            self.delayed -= 1
        else:
            self.waiting -= 1
            self.groups.remove(task)
        task.delayed = False

    def next_due(self) -> float | None:
        rank = self._by_due.first()
        return rank[0] if rank else None

    def due(self, now: float) -> int:
        """How many are entered as delayed, and are due."""
        return len(self._by_due.until((now, inf))) if self.delayed else 0

    def oldest(self, now: float) -> float:
        """Since when the longest waiting task has been ready; `now` if none waits."""
        if self._by_age is None:
            self._by_age = Order(self._is_waiting)
            for task in self.tasks.values():
                if task.session is None and not task.delayed:
                    self._by_age.add((task.ready_at, task.id), self.waiting)
        firsts = (self._by_age.first(), self._by_due.first())
        return min([now, *(rank[0] for rank in firsts if rank is not None)])

    def promote(self, now: float, cap: int) -> int:
        """Move at most `cap` delayed tasks that are due to the waiting ones; return how many."""
        moved = 0
        while moved < cap and (rank := self._by_due.first()) is not None and rank[0] <= now:
            task = self.tasks[int(rank[-1])]
            self.step_out(task)
            self.line_up(task, now)
            moved += 1
        return moved

    def pop_next(self, now: float, aging: float | None) -> Task | None:
        """Take the next task out of the order."""
        task_id = self.groups.pop(now, aging)
        if task_id is None:
            return None
        task = self.tasks[task_id]
        if self.groups.take_turns:
            self.groups.lease(task)
            self.waiting -= 1
        else:
            self.step_out(task)
        return task

    # the record of endings

    def log(self, ended: Ended) -> None:
        if len(self._log) > 2 * len(self.ended) + 64:
            self._log = [e for e in self._log if self.ended.get(e.id) is e]
        self._log.append(ended)
        self.ended[ended.id] = ended
        self.lasting += ended.expires is None

    def unlog(self, ended: Ended) -> None:
        del self.ended[ended.id]
        self.lasting -= ended.expires is None

    def endings(self, after: int, now: float, state: str) -> Iterator[Ended]:
        """Those in the state ("ended": in any), in order, whose rank is above `after`."""
        for i in range(bisect_right(self._log, after, key=lambda e: e.seq), len(self._log)):
            e = self._log[i]
            if not e.is_over(now) and self.ended.get(e.id) is e and state in (e.state, "ended"):
                yield e

    def listed(self, state: str, after: Rank, limit: int, now: float) -> list[tuple[Rank, Task]]:
        """The first unfinished tasks in the state whose rank is above `after`, with their ranks."""
        tasks = (task for task in self.tasks.values() if self.state_of(task, now) == state)
        ranked = ((self._rank(task, state), task) for task in tasks)
        return nsmallest(limit, (one for one in ranked if one[0] > after), key=itemgetter(0))

    def _rank(self, task: Task, state: str) -> Rank:
        match state:
            case "waiting":
                return (task.group, -task.priority, task.ready_at, task.id)
            case "delayed":
                return (task.ready_at, task.id)
            case _:
                return (float(task.token), task.id)

    def state_of(self, task: Task, now: float) -> str:
        if task.session is not None:
            return "leased"
        return "delayed" if task.ready_at > now else "waiting"

    def next_changes(self, task: Task, now: float) -> list[float]:
        """When time alone changes an unfinished task."""
        if task.session is not None:
            return []
        return [when for when in (task.ready_at, task.expires) if when is not None and when > now]

    def record(self, task: Task, now: float) -> Record:
        return Record(
            seq=0,
            id=task.id,
            state=self.state_of(task, now),
            payload=task.payload,
            priority=task.priority,
            key=task.key,
            attempts=task.attempts,
            deliveries=task.deliveries,
            result=b"",
            age=max(0.0, now - task.ready_at),
            progress=task.progress,
            failure=task.failure,
            meta=task.meta,
            group=task.group,
        )
