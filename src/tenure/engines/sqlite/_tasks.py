"""The rows of tasks in the file, in a few statements for a whole batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import tenure.engine as e
from tenure.engines.rules import FAMILIES, Position, Task, Turn, decoded_name, encoded_name

from ._changes import Changes
from ._clock import micros, seconds
from ._keys import Keys
from ._listing import listed
from ._new_tasks import NewTasks
from ._queue import SqliteQueue, SqliteQueues
from ._records import record_of, seconds_left
from ._session import SqliteSession
from ._sql import TASKS
from ._state import SqliteState

_PAGE = 64


class SqliteTaskRows(NewTasks, Keys, Changes):
    """The tasks of all queues in the file. Changes are written together, before a statement has to find them."""

    def __init__(self, state: SqliteState, queues: SqliteQueues) -> None:
        NewTasks.__init__(self, state)
        Keys.__init__(self, state, queues)
        Changes.__init__(self, state, queues)
        state.write_tasks = self.write

    def begin(self) -> None:
        NewTasks.begin(self)
        Changes.begin(self)

    def write(self) -> None:
        self.store()
        self.insert()

    # orders

    def next_due(self, queue: SqliteQueue) -> int | None:
        self.write()
        return self._state.one(TASKS.due, queue=queue.id)[0]

    def promote(self, queue: SqliteQueue, count: int) -> tuple[int, Iterable[tuple[int, str]]]:
        self.write()
        state, in_groups = self._state, list[tuple[int, str]]()
        if queue.groups.named:
            rows = state.all(TASKS.are_due, queue=queue.id, now=state.moment, limit=count)
            in_groups = [(task, decoded_name(group)) for group, _, _, task, _ in rows]
            queue.groups.read({group for _, group in in_groups})
        moved = state.run(TASKS.promote, queue=queue.id, now=state.moment, count=count).rowcount
        return moved, in_groups

    def take(self, queue: SqliteQueue, session: SqliteSession, want: int) -> list[e.Taken]:
        self.write()
        tasks: list[e.Taken] = []
        if (aging := queue.settings.aging) is not None:
            before = self._state.moment - micros(aging)
            found = self._state.one(TASKS.first_by_age, queue=queue.id, count=want, before=before)
            tasks += self._lease(queue, session, found)
        if len(tasks) < min(want, queue.waiting):
            found = self._state.one(TASKS.first_by_priority, queue=queue.id, count=want - len(tasks))
            tasks += self._lease(queue, session, found)
        return tasks

    def take_turns(self, queue: SqliteQueue, session: SqliteSession, turns: Sequence[Turn]) -> list[e.Taken]:
        self.write()
        count = Counter([turn.group for turn in turns])
        aging = queue.settings.aging
        before = None if aging is None else self._state.moment - micros(aging)
        next_in: dict[str, Iterator[int]] = {}
        ids: list[int] = []
        for turn in turns:
            if turn.pinned_task:
                ids.append(turn.pinned_task)
            elif count[turn.group] == 1 and before is None:
                ids.append(turn.first)
            else:
                if turn.group not in next_in:
                    next_in[turn.group] = self._next_in(queue, turn.group, count[turn.group], before)
                ids.append(next(next_in[turn.group]))
        found = self._state.one(TASKS.these, ids=str(ids))
        return self._lease(queue, session, found, [turn.group for turn in turns])

    def _next_in(self, queue: SqliteQueue, group: str, count: int, before: int | None) -> Iterator[int]:
        bounds = {"queue": queue.id, "group": encoded_name(group), "count": count}
        old: list[Any] = []
        if before is not None:
            old = self._state.all(TASKS.group_by_age, **bounds, before=before)
        rows = old
        if len(old) < count:
            rows = dict.fromkeys([*old, *self._state.all(TASKS.group_by_priority, **bounds)])
        return (row[0] for row in rows)

    def _lease(
        self, queue: SqliteQueue, session: SqliteSession, found: Any, groups: Iterable[str] = repeat("")
    ) -> list[e.Taken]:
        rows = json.loads(found[0])
        if not rows:
            return []
        state, parts = self._state, found[1]
        at = 0
        tasks: list[e.Taken] = []
        ids: list[int] = []
        for (task, priority, attempts, deliveries, ready_at, kin, size, sizes), group in zip(
            rows, groups, strict=False
        ):
            payload = parts[at : (at := at + size)]
            progress = failure = meta = b""
            left = None
            if sizes:
                of_progress, of_failure, of_meta, *deadline = map(int, sizes.split())
                progress = parts[at : (at := at + of_progress)]
                failure = parts[at : (at := at + of_failure)]
                meta = parts[at : (at := at + of_meta)]
                left = seconds_left(state, *deadline) if deadline else None
            waited = seconds(state.moment - ready_at)
            entries = state.table(FAMILIES).get(queue.name, task).total if kin else 0
            notes = (progress, failure, meta, group, entries, left)
            ids.append(task)
            tasks.append(
                e.Taken(task, state.token(), payload, priority, attempts, deliveries + 1, waited, *notes)
            )
        state.run(
            TASKS.lease,
            ids=str(ids),
            session=session.number,
            token=tasks[0].token,
            max_deliveries=queue.settings.max_deliveries,
            keep=queue.settings.payloads,
            dead_ttl=queue.settings.dead,
        )
        state.fire("change", ids, e.Notice.CHANGED)
        return tasks

    # leases

    def leased(self, queue: SqliteQueue, session: SqliteSession, tasks: Sequence[int]) -> dict[int, Task]:
        self.write()
        found = self._state.one(TASKS.leased, ids=str(tasks), queue=queue.id, session=session.number)
        leases = {row[0]: Task(*row) for row in json.loads(found[0])}
        if queue.groups.named:
            for lease in leases.values():
                lease.group = decoded_name(bytes.fromhex(lease.group))
        return leases

    def first_of_session(self, session: SqliteSession) -> tuple[str, int] | None:
        self.write()
        return self._state.one(TASKS.next_of_session, session=session.number)

    def stops(self, queue: SqliteQueue, session: SqliteSession) -> tuple[int, ...]:
        self.write()
        rows = self._state.all(TASKS.stops, queue=queue.id, session=session.number)
        return tuple([row[0] for row in rows])

    # single tasks

    def task(self, queue: SqliteQueue, task: int) -> Task | None:
        self.write()
        row = self._state.one(TASKS.task, id=task, queue=queue.id)
        return row and _task(row)

    def unfinished_record(self, queue: SqliteQueue, task: Task, state: str) -> e.Record:
        row = self._state.one(TASKS.show, ids=str([task.id]), state=state)
        return record_of(self._state, queue.name, *row)

    def ended_record(self, queue: SqliteQueue, task: int) -> e.Record | None:
        row = self._state.one(TASKS.ended_task, id=task, queue=queue.id, now=self._state.moment)
        return row and record_of(self._state, queue.name, *row)

    def listed(
        self, queue: SqliteQueue, state: str, after: Position, limit: int
    ) -> list[tuple[Position, e.Record | None]]:
        return listed(self._state, queue, state, after, limit)

    def held_by(self, session: SqliteSession, token: int, limit: int) -> list[tuple[int, e.SessionItem]]:
        rows = self._state.all(TASKS.of_session, session=session.number, token=token, limit=limit)
        return [
            (token, e.SessionItem("tasks", queue, f"{task} {token}", True, token))
            for token, queue, task in rows
        ]

    # time

    def expired(self) -> list[tuple[str, Task]]:
        self.write()
        state = self._state
        rows = state.all(TASKS.expired, now=state.moment, count=_PAGE)
        if not rows:
            state.soonest.task = state.one(TASKS.soonest)[0]
        return [(name, _task(row)) for name, *row in rows]


def _task(row: Sequence[Any]) -> Task:
    task = Task(*row)
    task.group = decoded_name(row[9])
    return task
