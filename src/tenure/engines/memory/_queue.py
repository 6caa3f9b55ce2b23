"""The queues in memory, with their tasks and records."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from math import inf
from operator import itemgetter

from tenure.engines import rules
from tenure.engines.rules import DELAYED, WAITING, Groups

from ._due import Due
from ._groups import MemoryGroupRows
from ._order import Order, Rank
from ._records import Records
from ._state import MemoryState
from ._task import MemoryTask


class MemoryQueue(rules.Queue):
    __slots__ = ("_by_age", "_by_due", "group_rows", "kept", "keys", "records", "tasks")

    def __init__(self, name: str, state: MemoryState) -> None:
        super().__init__(name)
        self.group_rows = MemoryGroupRows(self._is_ready, state)
        self.groups = Groups(self.group_rows)
        self.tasks: dict[int, MemoryTask] = {}
        self.records = Records(self)
        self.keys: dict[str, int] = {}
        self.kept: dict[str, float] = {}
        """The times until which tasks have their keys at least, for keys with a ttl."""
        self._by_due = Order(self._is_delayed)
        self._by_age: Order | None = None  # of all that wait; once its oldest is asked for

    def is_forgotten(self, now: float) -> bool:
        return self.keep_until <= now and not self.is_kept

    # keys

    def owner(self, key: str, now: float) -> int | None:
        task_id = self.keys.get(key)
        if task_id is None or task_id in self.tasks or self.kept.get(key, now) > now:
            return task_id
        return None

    def drop_key(self, key: str) -> None:
        if key not in self.kept:
            del self.keys[key]

    def check_key(self, key: str, now: float) -> float | None:
        until = self.kept.get(key)
        if until is None or until > now:
            return until
        del self.kept[key]
        if self.keys[key] not in self.tasks:
            del self.keys[key]
        return None

    # the orders: a rank ends with (ready_at, id); they show whether it still stands

    def _is_ready(self, group: str, rank: Rank) -> bool:
        task = self.tasks.get(rank[-1])
        if task is None or task.place != WAITING or task.ready_at != rank[-2]:
            return False
        # a task that was replaced at once may be in another group now, or have another priority
        return task.group == group and (len(rank) == 2 or task.priority == -rank[0])

    def _is_waiting(self, _: str, rank: Rank) -> bool:
        task = self.tasks.get(rank[-1])
        return task is not None and task.place == WAITING and task.ready_at == rank[-2]

    def _is_delayed(self, _: str, rank: Rank) -> bool:
        task = self.tasks.get(rank[-1])
        return task is not None and task.place == DELAYED and task.ready_at == rank[-2]

    def enter(self, task: MemoryTask) -> None:
        if task.place == DELAYED:
            self._by_due.add((task.ready_at, task.id), self.delayed)
            return
        rank = (-task.priority, task.ready_at, task.id)
        ready = self.group_rows.order_of(task.group)
        ready.by_priority.add(rank, self.waiting)
        if ready.by_age is not None:
            ready.by_age.add((task.ready_at, task.id), self.waiting)
        if self._by_age is not None:
            self._by_age.add((task.ready_at, task.id), self.waiting)

    def pop(self, group: str, now: float, aging: float | None) -> MemoryTask | None:
        task_id = self.group_rows.order_of(group).pop(now, aging)
        return None if task_id is None else self.tasks[task_id]

    def next_due(self) -> float | None:
        rank = self._by_due.first()
        return rank[0] if rank else None

    def pop_due(self, now: float) -> MemoryTask | None:
        rank = self._by_due.first()
        return None if rank is None or rank[0] > now else self.tasks[self._by_due.pop()[-1]]

    def due(self, now: float) -> int:
        return len(self._by_due.until((now, inf))) if self.delayed else 0

    def oldest(self, now: float) -> float:
        """The time since which the longest waiting task has been ready; `now` if none waits."""
        if self._by_age is None:
            self._by_age = Order(self._is_waiting)
            for task in self.tasks.values():
                if task.place == WAITING:
                    self._by_age.add((task.ready_at, task.id), self.waiting)
        firsts = (self._by_age.first(), self._by_due.first())
        return min([now, *(rank[0] for rank in firsts if rank is not None)])

    # all tasks, looked at one by one

    def listed(self, state: str, after: Rank, limit: int, now: float) -> list[tuple[Rank, MemoryTask]]:
        tasks = (task for task in self.tasks.values() if self.state_of(task, now) == state)
        ranked = ((self._rank(task, state), task) for task in tasks)
        return nsmallest(limit, (pair for pair in ranked if pair[0] > after), key=itemgetter(0))

    def _rank(self, task: MemoryTask, state: str) -> Rank:
        match state:
            case "waiting":
                return (task.group, -task.priority, task.ready_at, task.id)
            case "delayed":
                return (task.ready_at, task.id)
            case "leased":
                return (task.token,)
            case _:
                return (task.id,)

    def state_of(self, task: MemoryTask, now: float) -> str:
        return rules.shown_state(task, now)


class MemoryQueues:
    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._queues: dict[str, MemoryQueue] = {}
        self.due = Due(self._check)

    def get(self, name: str) -> MemoryQueue:
        queue = self.find(name)
        if queue is None:
            queue = self._queues[name] = MemoryQueue(name, self._state)
            self.due.add(name, self._state.now)
        queue.keep_record(self._state)
        return queue

    def find(self, name: str) -> MemoryQueue | None:
        """The queue, to be checked later: the caller may leave nothing that keeps it."""
        queue = self._queues.get(name)
        if queue is not None:
            if queue.is_forgotten(self._state.now):
                queue.forget_counts(self._state)
            self.due.add(name, queue.keep_until)
        return queue

    def stored(self, name: str) -> MemoryQueue | None:
        return self._queues.get(name)

    def check_now(self, name: str) -> None:
        self.due.add(name, self._state.now)

    def in_use(self) -> list[str]:
        now = self._state.now
        queues = self._queues.items()
        return [
            name
            for name, queue in queues
            if (queue.put or queue.revision or queue.is_kept) and not queue.is_forgotten(now)
        ]

    def __iter__(self) -> Iterator[MemoryQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def _check(self, name: str) -> float | None:
        queue = self._queues[name]
        now = self._state.now
        if queue.is_forgotten(now):
            # its last records and groups go before
            queue.groups.pass_time()
            if len(queue.records) or queue.groups.idle:
                return now
            if not queue.takers:
                queue.forget_counts(self._state)
                del self._queues[name]
        return queue.keep_until if queue.keep_until > now else None
