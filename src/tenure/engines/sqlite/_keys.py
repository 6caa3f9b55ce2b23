"""The rows of keys: the tasks that have them, and until when a key lasts."""

from __future__ import annotations

from tenure.engines.rules import Owner, encoded_name

from ._queue import Queue, Queues
from ._sql import TASKS
from ._state import State, sooner


class Keys:
    """The keys of tasks. Changes are written at once."""

    def __init__(self, state: State, queues: Queues) -> None:
        self._state = state
        self._queues = queues

    def owner(self, queue: Queue, key: str) -> Owner | None:
        state = self._state
        row = state.one(TASKS.owner, queue=queue.id, key=encoded_name(key), now=state.moment)
        return row and Owner(*row)

    def keep_key(self, queue: Queue, key: str, task: int, until: int | None) -> None:
        if until is None:
            self._state.run(TASKS.drop_key, queue=queue.id, key=encoded_name(key))
            return
        self._state.run(TASKS.keep_key, queue=queue.id, key=encoded_name(key), task=task, until=until)
        queue.look_at = sooner(until, queue.look_at)
        self._queues.keys_kept += 1
