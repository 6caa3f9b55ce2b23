"""The rows of keys: the tasks that have them, and until when a key lasts."""

from __future__ import annotations

import tenure.engine as e
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

    def keep_key(self, queue: Queue, key: str, task: int, until: int) -> None:
        self._state.run(TASKS.keep_key, queue=queue.id, key=encoded_name(key), task=task, until=until)
        queue.look_at = sooner(until, queue.look_at)
        self._queues.keys_kept += 1

    def drop_key(self, queue: Queue, key: str) -> None:
        self._state.run(TASKS.drop_key, queue=queue.id, key=encoded_name(key))

    def supersede(self, _queue: Queue, task: int) -> None:
        self._state.run(TASKS.supersede, id=task, ttl=e.EXPIRED_TTL)

    def replace(
        self,
        _queue: Queue,
        task: int,
        new: e.NewTask,
        place: int,
        ready_at: int,
        expires: int | None,
        deadline: int | None,
        first_put: int,
    ) -> None:
        state = self._state
        if expires is not None:
            state.soonest.task = sooner(expires, state.soonest.task)
        state.run(
            TASKS.replace,
            id=task,
            place=place,
            priority=new.priority,
            ready_at=ready_at,
            expires=expires,
            deadline=deadline,
            meta=new.meta,
            group=encoded_name(new.group),
            first_put=first_put,
            payload=new.payload,
        )
        state.changed([task])
