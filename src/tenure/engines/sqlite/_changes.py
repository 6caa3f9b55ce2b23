"""Changes and ends of tasks, written together, and hints to the followers of the tasks."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache
from typing import Any

import tenure.engine as e
from tenure.engines.rules import SHOWN, Task, encoded_name, forget_family

from ._queue import SqliteQueue, SqliteQueues
from ._sql import QUEUES, TASKS, joined
from ._state import SqliteState, sooner


class Changes:
    def __init__(self, state: SqliteState, queues: SqliteQueues) -> None:
        self._state = state
        self._queues = queues
        self._changed: dict[int, dict[str, Any]] = {}
        self._ended: list[int] = []
        self._recorded: list[tuple[Any, ...]] = []
        self._results: list[bytes] = []
        self._count = 0
        """The number of tasks that have ended in this transaction."""

    def begin(self) -> None:
        self._changed, self._ended, self._recorded, self._results, self._count = {}, [], [], [], 0

    def update(self, _queue: SqliteQueue, task: Task, **fields: Any) -> None:
        if fields.get("expires") is not None:
            self._state.soonest.task = sooner(fields["expires"], self._state.soonest.task)
        former = self._changed.get(task.id)
        self._changed[task.id] = fields if former is None else former | fields

    def end(self, _queue: SqliteQueue, task: Task, ends: e.Ends, expires: int | None) -> None:
        self._ended.append(task.id)
        if ends.state == "purged":
            return
        own = self._state
        if expires is not None:
            if ends.state == "dead":
                own.soonest.letter = sooner(expires, own.soonest.letter)
            else:
                own.soonest.record = sooner(expires, own.soonest.record)
        row = (task.id, ends.state, own.last.ending, ends.attempts, expires, len(ends.result))
        self._recorded.append(row)
        self._results.append(ends.result)

    def store(self) -> None:
        if self._changed:
            self._store_changes()
        if self._ended:
            if self._recorded:
                self._store_records()
            ended, self._ended = self._ended, []
            self._state.run(TASKS.delete, ids=str(ended))
            self._state.fire("task", ended, e.Notice.FINISHED)
            self._state.fire("change", ended, e.Notice.CHANGED)
            self._count += len(ended)

    def _store_changes(self) -> None:
        rows: defaultdict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for task, fields in self._changed.items():
            if "group" in fields:
                fields["group"] = bytearray(encoded_name(fields["group"]))
            rows[tuple(fields)].append((task, *fields.values()))
        self._changed = {}
        for names, values in rows.items():
            self._state.many(updating(names), values)
            if not SHOWN.isdisjoint(names):
                self._state.fire("change", [row[0] for row in values], e.Notice.CHANGED)

    def _store_records(self) -> None:
        rows: list[tuple[Any, ...]] = []
        at = 1
        for *row, size in self._recorded:
            rows.append((*row, at, size))
            at += size
        data = joined(self._results)
        self._recorded, self._results = [], []
        self._state.run(TASKS.record, rows=json.dumps(rows), bytes=data, now=self._state.moment)

    def revive(self, queue: SqliteQueue, task: int) -> None:
        self._state.run(TASKS.revive, id=task, now=self._state.moment)
        self.forget_record(queue, task)

    def forget_record(self, queue: SqliteQueue, task: int) -> None:
        (expires,) = self._state.one(TASKS.forget_one, id=task)
        queue.lasting -= expires is None

    def delete_letters(self) -> None:
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
        state = self._state
        if state.soonest.record is not None and state.soonest.record <= state.moment:
            state.run(TASKS.forget, now=state.moment, count=e.how_many_to_forget(self._count))


@cache
def updating(names: tuple[str, ...]) -> str:
    new = ", ".join(f"new_{name}" for name in names)
    values = ", ".join(f":{name}" for name in names)
    changes = ", ".join(f"{'group_name' if name == 'group' else name} = new_{name}" for name in names)
    return (
        f"WITH new (task, {new}) AS (VALUES (:task, {values})) "  # noqa: S608 the names are fields
        f"UPDATE task SET {changes} FROM new WHERE id = new.task"
    )
