"""The keys of one queue's tasks: who has one, and what becomes of a new task whose key another one has."""

from __future__ import annotations

from typing import NamedTuple

from tenure.engine import EXPIRED_TTL, Duplicate, NewTask

from ._clock import micros
from ._queue import LEASED, WAITING, Queue, Queues
from ._records import encoded_name
from ._sql import TASKS
from ._state import State, sooner


class Owner(NamedTuple):
    """The task that has a key; without a place, it has ended."""

    id: int
    place: int | None
    stop: int | None


class Keys:
    """The keys of a queue, in one operation. What they change is written at once."""

    def __init__(self, state: State, queues: Queues, queue: Queue) -> None:
        self._state = state
        self._queues = queues
        self._queue = queue
        self._owners: dict[str, Owner | None] = {}
        self.given = False
        """Whether a new task has got one."""

    def is_new(self, key: str, new: NewTask) -> bool:
        """Whether a task with this key is put beside the one that has the key, or there is none."""
        owner = self._owner(key)
        return owner is None or (new.on_duplicate == "replace" and owner.place in (None, LEASED))

    def meet(self, key: str, new: NewTask) -> int | Duplicate:
        """A new task is not put, because another one has its key. Return what the put answers."""
        owner = self._owner(key)
        assert owner is not None
        if new.on_duplicate == "refuse":
            return Duplicate(owner.id)
        if new.on_duplicate == "replace":
            self._replace(owner.id, new)
            if new.key_ttl is not None:
                self._keep(key, owner.id, new.key_ttl)
        return owner.id

    def give(self, key: str, new: NewTask, task: int) -> None:
        """A new task has the key from now on."""
        former = self._owner(key)
        if former is not None and former.place == LEASED:
            self._state.run(TASKS.supersede, id=former.id, ttl=micros(EXPIRED_TTL))
            self._queue.stops += former.stop is None
        if new.key_ttl is not None:
            self._keep(key, task, new.key_ttl)
        elif former is not None:
            self._state.run(TASKS.drop_key, queue=self._queue.id, key=encoded_name(key))
        self._owners[key] = Owner(task, WAITING, None)
        self.given = True

    def _owner(self, key: str) -> Owner | None:
        if key not in self._owners:
            state = self._state
            row = state.one(TASKS.owner, queue=self._queue.id, key=encoded_name(key), now=state.wall)
            self._owners[key] = row and Owner(*row)
        return self._owners[key]

    def _keep(self, key: str, task: int, ttl: float) -> None:
        """The task has the key for so long at least."""
        state, queue = self._state, self._queue
        until = state.wall + micros(ttl)
        state.run(TASKS.keep_key, queue=queue.id, key=encoded_name(key), task=task, until=until)
        queue.keep_until = max(queue.keep_until, until)
        queue.look_at = sooner(until, queue.look_at)
        self._queues.keys_kept += 1

    def _replace(self, task: int, new: NewTask) -> None:
        """A task that is not leased becomes the new one."""
        state, queue, now = self._state, self._queue, self._state.wall
        place, was_tried, first_put, former_group = state.one(TASKS.replaceable, id=task)
        if was_tried or first_put is None:
            first_put = now
        queue.step_out(place, former_group)
        group = encoded_name(new.group)
        if queue.groups is not None:
            queue.groups.come(group)
            queue.groups.go(former_group, task)
        ready_at = now + delay_since(new, now - first_put)
        expires = None
        if new.expires is not None:
            expires = now + micros(new.expires)
            state.soonest.task = sooner(expires, state.soonest.task)
        state.run(
            TASKS.replace,
            id=task,
            place=queue.line_up(task, group, ready_at, now),
            priority=new.priority,
            ready_at=ready_at,
            expires=expires,
            meta=new.meta,
            group=group,
            first_put=first_put,
            payload=new.payload,
        )
        queue.due_is_known = False
        state.changed([task])
        self._queues.make_room(queue, former_group)


def delay_since(new: NewTask, since: int) -> int:
    """When a new task is ready, so many microseconds since its first put."""
    delay = micros(new.delay)
    return delay if new.max_wait is None else max(0, min(delay, micros(new.max_wait) - since))
