"""The rows of tasks in memory, changed task by task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set as AbstractSet
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any

import tenure.engine as e
from tenure.engines.rules import (
    DELAYED,
    FAMILIES,
    HELD,
    LEASED,
    SHOWN,
    WAITING,
    Owner,
    Position,
    Tree,
    Turn,
    forget_family,
    tree_of,
)

from ._due import Due
from ._queue import MemoryQueue, MemoryQueues
from ._records import Ended, ran
from ._state import MemorySession, MemoryState
from ._task import MemoryTask

_Time = tuple[float, int, str]
"""The time at which something happens to a task, its id and its queue."""


class MemoryTaskRows:
    def __init__(self, state: MemoryState, queues: MemoryQueues) -> None:
        self._state = state
        self._queues = queues
        self._expiring: list[_Time] = []
        self._most_expiring = 64
        self._letters: list[_Time] = []
        self._outdated: list[_Time] = []
        self._keys_due = Due(self._check_key)
        self.heaps = (self._expiring, self._letters, self._outdated, self._keys_due.heap)
        self._families = state.table(FAMILIES)

    # new tasks

    def add(
        self,
        queue: MemoryQueue,
        task: int,
        new: e.NewTask,
        place: int,
        ready_at: float,
        expires: float | None,
        deadline: float | None,
        *,
        kin: bool = False,
    ) -> None:
        added = MemoryTask(task, 0, 0, 0, ready_at, None, None, kin, deadline, new.group, place)
        added.first_put, added.queue, added.key = self._state.now, queue.name, new.key
        added.payload, added.priority, added.meta = new.payload, new.priority, new.meta
        self._keep(queue, added)
        if expires is not None:
            self.update(queue, added, expires=expires)

    def _keep(self, queue: MemoryQueue, task: MemoryTask) -> None:
        queue.tasks[task.id] = task
        if task.key is not None:
            queue.keys[task.key] = task.id
        if task.place != HELD:
            queue.enter(task)

    def update(self, queue: MemoryQueue, task: MemoryTask, **fields: Any) -> None:
        session = task.session
        for name, value in fields.items():
            setattr(task, name, value)
        if session is not None and task.session is None:
            del self._state.numbered[session].tasks[task.id]
        if "place" in fields and task.place <= DELAYED:
            queue.enter(task)
        if task.expires is not None and "expires" in fields:
            self._look_at(task, task.expires)
        if self._state.watches and not SHOWN.isdisjoint(fields):
            self._changed(task)

    # keys

    def owners(self, queue: MemoryQueue, keys: AbstractSet[str]) -> dict[str, Owner]:
        owners: dict[str, Owner] = {}
        for key in keys:
            if (owner := queue.owner(key, self._state.now)) is not None:
                task = queue.tasks.get(owner)
                owners[key] = Owner(owner, None) if task is None else Owner(owner, task.place, task.kin)
        return owners

    def keep_key(self, queue: MemoryQueue, key: str, task: int, until: float | None) -> None:
        if until is None:
            queue.kept.pop(key, None)
            return
        if queue.keys.get(key) == task:
            until = max(until, queue.kept.get(key, until))
        queue.keys[key], queue.kept[key] = task, until
        self._keys_due.add((queue.name, key), until)
        self._state.kept_lately += 1

    def revive(self, queue: MemoryQueue, task: int) -> None:
        now, ended = self._state.now, queue.records.get(task)
        assert ended is not None
        queue.records.remove(ended)
        revived = MemoryTask(task, 0, 0, 0, now, None, None, ended.kin, None, ended.group, WAITING)
        revived.first_put, revived.queue, revived.key = now, queue.name, ended.key
        revived.payload, revived.priority, revived.meta = ended.payload, ended.priority, ended.meta
        revived.progress, revived.failure = ended.progress, ended.failure
        self._keep(queue, revived)

    def forget_record(self, queue: MemoryQueue, task: int) -> None:
        ended = queue.records.get(task)
        assert ended is not None
        queue.records.remove(ended)

    # orders

    def next_due(self, queue: MemoryQueue) -> float | None:
        return queue.next_due()

    def promote(self, queue: MemoryQueue, count: int) -> tuple[int, Iterable[tuple[int, str]]]:
        moved: list[tuple[int, str]] = []
        while len(moved) < count and (task := queue.pop_due(self._state.now)) is not None:
            task.place = WAITING
            queue.enter(task)
            moved.append((task.id, task.group))
        return len(moved), moved if queue.groups.named else ()

    def take(self, queue: MemoryQueue, session: MemorySession, want: int) -> list[e.Taken]:
        tasks: list[e.Taken] = []
        while (
            len(tasks) < want and (task := queue.pop("", self._state.now, queue.settings.aging)) is not None
        ):
            tasks.append(self._lease(session, task, queue.settings))
        return tasks

    def take_turns(self, queue: MemoryQueue, session: MemorySession, turns: Sequence[Turn]) -> list[e.Taken]:
        tasks: list[e.Taken] = []
        for turn in turns:
            if turn.pinned_task:
                task = queue.tasks[turn.pinned_task]
            else:
                task = queue.pop(turn.group, self._state.now, queue.settings.aging)
                assert task is not None
            tasks.append(self._lease(session, task, queue.settings))
        return tasks

    def _lease(self, session: MemorySession, task: MemoryTask, its: e.Settings) -> e.Taken:
        task.place, task.session, task.token = LEASED, session.number, self._state.token()
        task.deliveries += 1
        task.max_deliveries, task.keep, task.dead_ttl = its.max_deliveries, its.payloads, its.dead
        session.tasks[task.id] = task
        self._changed(task)
        return e.Taken(
            task.id,
            task.token,
            task.payload,
            task.priority,
            task.attempts,
            task.deliveries,
            max(0.0, self._state.now - task.ready_at),
            task.progress,
            task.failure,
            task.meta,
            task.group,
            self._families.get(task.queue, task.id).total if task.kin else 0,
            self._seconds_left(task),
        )

    def _seconds_left(self, task: MemoryTask) -> float | None:
        return None if task.deadline is None else max(0.0, task.deadline - self._state.now)

    def _tree(self, queue: str, task: MemoryTask | Ended) -> Tree:
        return tree_of(self._families.get(queue, task.id) if task.kin else None)

    # leases

    def leased(
        self, queue: MemoryQueue, session: MemorySession, tasks: Sequence[int]
    ) -> dict[int, MemoryTask]:
        leased = session.tasks
        return {i: task for i in tasks if (task := leased.get(i)) is not None and task.queue == queue.name}

    def end(self, queue: MemoryQueue, task: MemoryTask, ends: e.Ends, expires: float | None) -> None:
        del queue.tasks[task.id]
        if task.session is not None:
            del self._state.numbered[task.session].tasks[task.id]
        if task.key is not None:
            queue.drop_key(task.key)
        if ends.state != "purged":
            self._record(queue, task, ends, expires)
        if self._state.watches:
            topic = ("task", task.queue, str(task.id))
            self._state.fire(topic, task.queue, str(task.id), e.Notice.FINISHED)
            self._changed(task)

    def _record(self, queue: MemoryQueue, task: MemoryTask, ends: e.Ends, expires: float | None) -> None:
        state = ends.state
        self._state.kept_lately += 1
        if expires is not None:
            heappush(self._letters if state == "dead" else self._outdated, (expires, task.id, queue.name))
        payload = task.payload if task.keep or state == "dead" else b""
        queue.records.add(
            Ended(
                self._state.last.ending,
                task.id,
                state,
                payload,
                task.priority,
                task.key,
                ends.attempts,
                task.deliveries,
                ends.result,
                self._state.now,
                task.token,
                expires,
                task.progress,
                task.failure,
                task.meta,
                task.group,
                task.kin,
            )
        )

    def first_of_session(self, session: MemorySession) -> tuple[str, int] | None:
        task = next(iter(session.tasks.values()), None)
        return None if task is None else (task.queue, task.id)

    def stops(self, queue: MemoryQueue, session: MemorySession) -> tuple[int, ...]:
        tasks = [task for task in session.tasks.values() if task.stop and task.queue == queue.name]
        return tuple([task.token for task in sorted(tasks, key=lambda task: task.stop or 0)])

    # single tasks

    def task(self, queue: MemoryQueue, task: int) -> MemoryTask | None:
        return queue.tasks.get(task)

    def unfinished_record(self, _queue: MemoryQueue, task: MemoryTask, state: str) -> e.Record:
        return e.Record(
            *(0, task.id, state, task.payload, task.priority, task.key),
            *(task.attempts, task.deliveries, b"", max(0.0, self._state.now - task.ready_at)),
            ran(task.token, self._state.now),
            *(task.progress, task.failure, task.meta, task.group),
            *self._tree(task.queue, task),
            self._seconds_left(task),
        )

    def ended_record(self, queue: MemoryQueue, task: int) -> e.Record | None:
        ended = queue.records.valid(task, self._state.now)
        return None if ended is None else self.show(queue, ended)

    def show(self, queue: MemoryQueue, ended: Ended) -> e.Record:
        return ended.show(self._state.now, self._tree(queue.name, ended))

    def listed(
        self, queue: MemoryQueue, state: str, after: Position, limit: int
    ) -> list[tuple[Position, e.Record]]:
        now = self._state.now
        if state == "ended" or state in e.ENDED:
            (seq,) = after or (0,)
            endings = islice(queue.records.after(seq, now, state), limit)
            return [((ended.seq,), self.show(queue, ended)) for ended in endings]
        tasks = queue.listed(state, after, limit, now)
        return [(rank, self.unfinished_record(queue, task, state)) for rank, task in tasks]

    def held_by(self, session: MemorySession, token: int, limit: int) -> list[tuple[int, e.SessionItem]]:
        held = sorted((task.token, task) for task in session.tasks.values() if task.token > token)
        return [
            (token, e.SessionItem("tasks", task.queue, f"{task.id} {token}", True, token))
            for token, task in held[:limit]
        ]

    def _changed(self, task: MemoryTask) -> None:
        if self._state.watches:
            topic = ("change", task.queue, str(task.id))
            self._state.fire(topic, task.queue, str(task.id), e.Notice.CHANGED)

    # time

    def expired(self) -> Sequence[tuple[str, MemoryTask]]:
        now = self._state.now
        while self._expiring and self._expiring[0][0] <= now:
            task = self._expiring_task(self._expiring[0])
            if task is not None:
                return ((task.queue, task),)
            heappop(self._expiring)
        return ()

    def _expiring_task(self, entry: _Time) -> MemoryTask | None:
        due, task_id, name = entry
        queue = self._queues.stored(name)
        task = queue.tasks.get(task_id) if queue else None
        # a task that is looked at at another time has an entry for that
        return task if task is not None and task.expires == due else None

    def _look_at(self, task: MemoryTask, when: float) -> None:
        heappush(self._expiring, (when, task.id, task.queue))
        if len(self._expiring) > self._most_expiring:
            self._expiring[:] = [entry for entry in self._expiring if self._expiring_task(entry) is not None]
            heapify(self._expiring)
            self._most_expiring = 2 * len(self._expiring) + 64

    def delete_letters(self) -> None:
        now = self._state.now
        while self._letters and self._letters[0][0] <= now:
            _, task_id, name = self._letters[0]
            queue = self._queues.stored(name)
            ended = queue.records.get(task_id) if queue else None
            if queue is not None and ended is not None and ended.state == "dead" and ended.is_over(now):
                if not self._state.step():
                    return
                queue.records.remove(ended)
                queue.dead -= 1
                queue.purged += 1
                forget_family(self._state, name, task_id)
                self._queues.check_now(name)
            heappop(self._letters)

    def forget(self, most: int) -> None:
        now = self._state.now
        for _ in range(most):
            if not self._outdated or self._outdated[0][0] > now:
                break
            _, task_id, name = heappop(self._outdated)
            queue = self._queues.stored(name)
            ended = queue.records.get(task_id) if queue else None
            if queue is not None and ended is not None and ended.is_over(now):
                queue.records.remove(ended)
        self._keys_due.check(now, most)

    def _check_key(self, name: tuple[str, str]) -> float | None:
        queue = self._queues.stored(name[0])
        return queue and queue.check_key(name[1], self._state.now)
