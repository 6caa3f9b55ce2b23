"""New tasks: one statement inserts the tasks of an operation that are alike."""

from __future__ import annotations

import tenure.engine as e
from tenure.engines.rules import encoded_name

from ._queue import SqliteQueue
from ._sql import TASKS, joined
from ._state import SqliteState, sooner

_Kind = tuple[int, int, int, int | None, int | None, bool, bytes, bytes | None]
"""All of a new task but its payload and group: place, priority, ready_at, expires, deadline, kin, meta and key."""


class NewTasks:
    """The new tasks of one operation. They are inserted before a statement has to find them."""

    def __init__(self, state: SqliteState) -> None:
        self._state = state
        self._queue = 0
        self._first_id = 0
        self._kinds: list[_Kind] = []
        self._groups: list[bytes] = []
        self._payloads: list[bytes] = []

    def begin(self) -> None:
        self._kinds, self._groups, self._payloads = [], [], []

    def add(
        self,
        queue: SqliteQueue,
        task: int,
        new: e.NewTask,
        place: int,
        ready_at: int,
        expires: int | None,
        deadline: int | None,
        *,
        kin: bool = False,
    ) -> None:
        if expires is not None:
            self._state.soonest.task = sooner(expires, self._state.soonest.task)
        self._queue = queue.id
        if not self._kinds:
            self._first_id = task
        key = None if new.key is None else encoded_name(new.key)
        self._kinds.append((place, new.priority, ready_at, expires, deadline, kin, new.meta, key))
        self._groups.append(encoded_name(new.group) if new.group else b"")
        self._payloads.append(new.payload)

    def insert(self) -> None:
        if not self._kinds:
            return
        kinds = set(self._kinds)
        kind = kinds.pop()
        if kinds or kind[-1] is not None:
            self._insert_each()
        else:
            self._insert_alike(*kind)
        NewTasks.begin(self)

    def _insert_alike(
        self,
        place: int,
        priority: int,
        ready_at: int,
        expires: int | None,
        deadline: int | None,
        kin: bool,
        meta: bytes,
        _: bytes | None,
    ) -> None:
        in_groups = any(self._groups)
        parts = self._payloads + self._groups if in_groups else self._payloads
        end = 1
        rows: list[list[int]] = []
        for part in parts:
            rows.append([end, len(part)])
            end += len(part)
        if in_groups:
            count = len(self._payloads)
            rows = [[*payload, *group] for payload, group in zip(rows[:count], rows[count:], strict=True)]
        self._state.run(
            TASKS.insert_alike,
            queue=self._queue,
            id=self._first_id,
            place=place,
            priority=priority,
            ready_at=ready_at,
            expires=expires,
            deadline=deadline,
            kin=kin,
            meta=meta,
            in_groups=int(in_groups),
            rows=str(rows),
            bytes=joined(parts),
        )

    def _insert_each(self) -> None:
        tasks = enumerate(zip(self._kinds, self._groups, self._payloads, strict=True), self._first_id)
        queue, now = self._queue, self._state.moment
        rows = [(task, queue, *kind, group, now, payload) for task, (kind, group, payload) in tasks]
        self._state.many(TASKS.insert, rows)
