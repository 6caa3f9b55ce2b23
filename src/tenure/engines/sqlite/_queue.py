"""The rows of queues: read once per transaction, written back at its end."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any

from tenure.engines import rules
from tenure.engines.rules import Groups

from ._groups import SqliteGroupRows
from ._sql import QUEUES, TASKS
from ._state import SqliteState

_COLUMNS = (
    *("id", "look_at", "has_groups"),
    *(field.name for field in fields(rules.Queue) if field.init),
)
_row_of: attrgetter[tuple[Any, ...]] = attrgetter(*_COLUMNS)


class SqliteQueue(rules.Queue):
    __slots__ = ("group_rows", "has_groups", "id", "look_at", "stored")

    def __init__(
        self, state: SqliteState, queue: int, look_at: int | None, has_groups: int, *row: Any
    ) -> None:
        super().__init__(*row)
        self.id = queue
        self.look_at = look_at
        self.has_groups = has_groups
        self.stored: tuple[Any, ...] = (queue, look_at, has_groups, *row)
        self.group_rows = SqliteGroupRows(state, queue)
        self.groups = self.group_rows.grouping() if has_groups else Groups(self.group_rows)
        if self.revision:
            self.settings = state.settings(self.name, self.revision)


class SqliteQueues:
    def __init__(self, state: SqliteState) -> None:
        self._state = state
        self._queues: dict[str, SqliteQueue] = {}
        self.keys_kept = 0
        """The number of keys with a ttl that were put in this transaction."""

    def begin(self) -> None:
        self._queues, self.keys_kept = {}, 0

    def save(self) -> None:
        for queue in list(self._queues.values()):
            is_over = queue.keep_until <= self._state.moment and not queue.takers and not queue.is_kept
            if is_over and queue.has_groups:
                queue.groups.pass_time()
            if queue.has_groups or queue.groups.are_kept:
                queue.has_groups = int(queue.group_rows.save(queue.groups))
            if is_over:
                if not (queue.has_groups or self._state.one(TASKS.any_kept_key, queue=queue.id)[0]):
                    del self._queues[queue.name]
                    self._state.run(QUEUES.delete, id=queue.id)
                    queue.forget_counts(self._state)
                    continue
                queue.look_at = self._state.moment
            if queue.look_at is None and queue.keep_until > self._state.moment and not queue.is_kept:
                queue.look_at = int(queue.keep_until)
            row = _row_of(queue)
            if row != queue.stored:
                self._state.run(QUEUES.save, **dict(zip(_COLUMNS, row, strict=True)))

    def forget(self, count: int) -> None:
        state = self._state
        if state.soonest.queue is not None and state.soonest.queue <= state.moment:
            for (name,) in state.all(QUEUES.to_look_at, now=state.moment, count=count):
                if (queue := self.find(name)) is not None:
                    state.run(
                        TASKS.forget_keys, queue=queue.id, now=state.moment, count=count + 2 * self.keys_kept
                    )
                    (queue.look_at,) = state.one(TASKS.next_key, queue=queue.id)

    def find(self, name: str) -> SqliteQueue | None:
        queue = self._queues.get(name)
        if queue is None:
            row = self._state.one(QUEUES.queue, name=name)
            if row is None:
                return None
            queue = self._queues[name] = SqliteQueue(self._state, *row)
        if (queue.put or queue.revision) and queue.keep_until <= self._state.moment and not queue.is_kept:
            queue.forget_counts(self._state)
        return queue

    def get(self, name: str) -> SqliteQueue:
        queue = self.find(name)
        if queue is None:
            self._state.run(QUEUES.new, name=name)
            queue = self.find(name)
            assert queue is not None
        queue.keep_record(self._state)
        return queue
