"""The rows of keys: the tasks that have them, and until when a key lasts."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tenure.engines.rules import Owner, decoded_name, encoded_name

from ._queue import SqliteQueue, SqliteQueues
from ._sql import TASKS
from ._state import SqliteState, sooner


class Keys:
    def __init__(self, state: SqliteState, queues: SqliteQueues) -> None:
        self._state = state
        self._queues = queues

    def owners(self, queue: SqliteQueue, keys: AbstractSet[str]) -> dict[str, Owner]:
        self._state.write_tasks()
        wanted = [(queue.id, bytearray(encoded_name(key)), self._state.moment) for key in keys]
        # a task that is there comes last
        return {decoded_name(key): Owner(*row) for key, *row in self._state.many(TASKS.owners, wanted)}

    def keep_key(self, queue: SqliteQueue, key: str, task: int, until: int | None) -> None:
        if until is None:
            self._state.run(TASKS.drop_key, queue=queue.id, key=encoded_name(key))
            return
        self._state.run(TASKS.keep_key, queue=queue.id, key=encoded_name(key), task=task, until=until)
        queue.look_at = sooner(until, queue.look_at)
        self._queues.keys_kept += 1
