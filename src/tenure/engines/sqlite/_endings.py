"""Tasks that leave their lease or their order: written together; sessions that wait for their ends are hinted."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import tenure.engine as e
from tenure.engines.rules import Task, encoded_name, forget_family

from ._queue import Queue, Queues
from ._sql import QUEUES, SESSIONS, TASKS, joined
from ._state import State, sooner


class Endings:
    """Tasks that end or go back into the order, and the records of those that have ended."""

    def __init__(self, state: State, queues: Queues) -> None:
        self._state = state
        self._queues = queues
        self._watchers: dict[int, list[str]] = {}
        self._ended: list[tuple[Any, ...]] = []
        self._results: list[bytes] = []
        self._returned: list[tuple[int, ...]] = []
        self._count = 0
        """The number of tasks that have ended in this transaction."""

    def begin(self) -> None:
        """Forget what a transaction that failed has left."""
        self._watchers, self._ended, self._results, self._returned, self._count = {}, [], [], [], 0

    def expect_ends(self, queue: Queue, tasks: list[int]) -> None:
        """Read who watches for the ends of these tasks, before they end."""
        found = self._state.task_watchers(queue.name, tasks)
        self._watchers.update({task: found.get(task, []) for task in tasks})

    def record(
        self, queue: Queue, task: Task, state: str, attempts: int, result: bytes, expires: int | None
    ) -> None:
        own = self._state
        if expires is not None:
            if state == "dead":
                own.soonest.letter = sooner(expires, own.soonest.letter)
            else:
                own.soonest.record = sooner(expires, own.soonest.record)
        self._ended.append((task.id, state, own.last.ending, attempts, expires, len(result)))
        self._results.append(result)
        self.finished(queue, task.id)

    def finished(self, queue: Queue, task: int) -> None:
        """Hint those that watch for the end of a task."""
        watchers = self._watchers.pop(task, None)
        if watchers:
            self._state.run(SESSIONS.fired, kind="task", key=queue.name, task=task)
            for process in watchers:
                self._state.hint(process, queue.name, str(task), e.Notice.FINISHED)

    def release(
        self, _queue: Queue, task: Task, place: int, ready_at: int, attempts: int, deliveries: int
    ) -> None:
        self._returned.append((task.id, place, ready_at, attempts, deliveries))

    def change(self, _queue: Queue, task: Task, op: e.Move) -> None:
        if (op.payload, op.priority, op.group) != (None, None, None):
            group = None if op.group is None else encoded_name(op.group)
            run = self._state.run
            run(TASKS.change, id=task.id, payload=op.payload, priority=op.priority, group=group)
            self._state.changed([task.id])

    def store(self) -> None:
        """Store what was decided since."""
        if self._ended:
            rows: list[tuple[Any, ...]] = []
            at = 1
            for *row, size in self._ended:
                rows.append((*row, at, size))
                at += size
            run = self._state.run
            run(TASKS.record, rows=json.dumps(rows), bytes=joined(self._results), now=self._state.moment)
            ids = [row[0] for row in rows]
            run(TASKS.delete, ids=str(ids))
            self._state.changed(ids)
            self._count += len(rows)
        if self._returned:
            self._state.run(TASKS.release, rows=json.dumps(self._returned))
            self._state.changed([row[0] for row in self._returned])
        self._ended, self._results, self._returned = [], [], []

    def delete_letters(self) -> None:
        """Delete dead letters whose ttl has passed, as far as the step budget goes."""
        state = self._state
        rows = state.all(TASKS.delete_letters, now=state.moment, count=state.steps_left)
        state.steps_left -= len(rows)
        for queue_id, count in Counter(row[0] for row in rows).items():
            (name,) = state.one(QUEUES.name, id=queue_id)
            queue = self._queues.get(name)
            queue.dead -= count
            queue.purged += count
            for queue_of, task, kin in rows:
                if kin and queue_of == queue_id:
                    forget_family(state, name, task)
        state.soonest.letter = soonest = state.one(TASKS.soonest_letter)[0]
        state.unfinished = soonest is not None and soonest <= state.moment

    def forget_records(self) -> None:
        """Forget outdated records: a few at a time, and more than can have come since."""
        state = self._state
        if state.soonest.record is not None and state.soonest.record <= state.moment:
            state.run(TASKS.forget, now=state.moment, count=e.how_many_to_forget(self._count))
