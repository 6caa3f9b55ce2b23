"""The keys of tasks, and new tasks whose key another task has."""

from __future__ import annotations

from collections.abc import Iterable, Set as AbstractSet
from typing import Any

import tenure.engine as e

from ._families import Families
from ._queues import DELAYED, LEASED, SUSPENDED, WAITING, Queue
from ._room import Room
from ._rows import Owner, Task, TaskRows, earlier
from ._settling import Settling
from ._state import State

_AS_NEW: dict[str, Any] = {"attempts": 0, "deliveries": 0, "keep": False, "progress": b"", "failure": b""}


class Keys:
    def __init__(
        self,
        state: State,
        rows: TaskRows,
        room: Room,
        settling: Settling,
        queue: Queue,
        tasks: Iterable[e.NewTask],
    ) -> None:
        self._state = state
        self._settling = settling
        self._families: Families = settling.families
        self._rows = rows
        self._room = room
        self._queue = queue
        self._owners: dict[str, Owner | None] = {}
        if keys := {task.key for task in tasks if task.key is not None}:
            self._read(keys)

    def is_new(self, key: str, new: e.NewTask) -> bool:
        """True if no task has this key, or the new task is put beside the task that has it."""
        owner = self._owner(key)
        return owner is None or (new.on_duplicate == "replace" and owner.place not in (WAITING, DELAYED))

    def on_duplicate_key(self, key: str, new: e.NewTask) -> int | e.Duplicate:
        owner = self._owner(key)
        assert owner is not None
        if new.on_duplicate == "refuse":
            return e.Duplicate(owner.id)
        if new.on_duplicate == "replace":
            self._replace(self._task(owner), new)
            if new.key_ttl is not None:
                self._keep(key, owner.id, new.key_ttl)
        return owner.id

    def give(self, key: str, new: e.NewTask, task: int) -> None:
        """Give the key to a new task; a leased former task does not go back, and any other ends."""
        former = self._owner(key)
        if former is not None and former.place is not None:
            owner = self._task(former)
            self._rows.update(self._queue, owner, key=None)
            if owner.stop is None:
                self._rows.update(self._queue, owner, stop=0, stop_ttl=e.EXPIRED_TTL)
            if former.place != LEASED:
                self._settling.cancel(self._queue, owner, e.EXPIRED_TTL)
                self._owners.clear()  # its parent may have a key, and go on
        if new.key_ttl is not None:
            self._keep(key, task, new.key_ttl)
        elif former is not None:
            self._rows.keep_key(self._queue, key, task, None)
        self._owners[key] = Owner(task, WAITING)

    def _task(self, owner: Owner) -> Task:
        task = self._rows.task(self._queue, owner.id)
        assert task is not None
        return task

    def _owner(self, key: str) -> Owner | None:
        if key not in self._owners:
            self._read({key})
        owner = self._owners[key]
        if owner is not None and owner.kin and owner.place in (WAITING, DELAYED):
            # it is replaced as if it was suspended if it has children
            waits = self._families.is_waited_for(self._queue, owner.id)
            return owner._replace(place=SUSPENDED) if waits else owner
        return owner

    def _read(self, keys: AbstractSet[str]) -> None:
        self._owners.update({**dict.fromkeys(keys), **self._rows.owners(self._queue, keys)})

    def _keep(self, key: str, task: int, ttl: float) -> None:
        until = self._state.after(ttl)
        self._rows.keep_key(self._queue, key, task, until)
        self._queue.keep_until = max(self._queue.keep_until, until)

    def _replace(self, former: Task, new: e.NewTask) -> None:
        state, queue, now = self._state, self._queue, self._state.moment
        task, group = former.id, former.group
        first_put = now if former.attempts or former.deliveries else former.first_put
        queue.dequeue(former.place, group)
        if new.group:
            queue.groups.count_in(new.group, queue.waiting)
        if group:
            queue.groups.count_out(group, task)
        ready_at = state.after(delay_since(new, state.seconds_since(first_put)))
        expires = None if new.expires is None else state.after(new.expires)
        deadline = None if new.deadline is None else state.after(new.deadline)
        place = queue.enqueue(task, new.group, ready_at, now)
        if former.kin:
            self._families.begin_anew(queue, task)
        self._rows.update(
            queue,
            former,
            payload=new.payload,
            priority=new.priority,
            meta=new.meta,
            group=new.group,
            place=place,
            ready_at=ready_at,
            first_put=first_put,
            expires=earlier(expires, deadline),
            deadline=deadline,
            **_AS_NEW,
        )
        queue.due_is_known = False
        self._room.make_room(queue, group)


def delay_since(new: e.NewTask, since: float) -> float:
    return new.delay if new.max_wait is None else max(0.0, min(new.delay, new.max_wait - since))
