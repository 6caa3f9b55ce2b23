"""Releases: children that begin when their owner would end, by the laws in `tenure.engine._families`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenure.engine as e

from ._queues import Queue, Queues
from ._rows import TaskRows
from ._state import State
from ._tables import Table
from ._takers import Takers


class Releases:
    _state: State
    _queues: Queues
    _rows: TaskRows
    _takers: Takers
    _families: Table[Any]
    _entries: Table[Any]
    _forget: Callable[[str, int], None]

    def _differs(self, entry: Any, to: str, new: e.NewTask) -> bool:
        queue: Queue | None = self._queues.find(entry.child_queue)
        task = None if queue is None else self._rows.task(queue, entry.child)
        if task is None or entry.child_queue != to:
            return entry.child_queue != to
        return self._rows.unfinished_record(queue, task, "held").payload != new.payload

    def _change_held(self, family: Any, entry: Any, change: str) -> e.Reply:
        if change == "keep":
            self._remove(family, entry, "kept")
        elif self._entries.first("unfinished", family.queue, family.task) is not None:
            return e.Reply.CHILDREN
        else:
            self._begin(family, entry)
        return e.Reply.OK

    def _begin_next(self, family: Any) -> bool:
        """Begin the next releases, the last first, or drop those that are handed over; True if there may be more."""
        for _ in range(e.SWEEP_STEPS):
            entry = self._entries.last("held", family.queue, family.task)
            if entry is None:
                return False
            if entry.unless_done and entry.token == family.dropped:
                self._remove(family, entry, "dropped")
            elif not family.unfinished or (
                family.beside and entry.together and family.unfinished < e.SWEEP_STEPS
            ):
                family.beside = bool(entry.together)
                self._begin(family, entry)
            else:
                return False
        return True

    def _begin(self, family: Any, entry: Any) -> None:
        self._leave(family, entry, "unfinished")
        family.unfinished += 1
        family.ran = True
        self._families.save(family)
        queue: Queue = self._queues.get(entry.child_queue)
        task, now = self._rows.task(queue, entry.child), self._state.moment
        assert task is not None
        takeable = queue.takeable
        queue.held -= 1
        queue.put += 1
        queue.live += 1
        if task.group:
            queue.groups.read({task.group})
            queue.groups.count_in(task.group, queue.waiting)
        its = self._families.get(queue.name, task.id)
        ends = None if its is None or its.seconds is None else self._state.after(its.seconds)
        place = queue.enqueue(task.id, task.group, now, now)
        self._rows.update(queue, task, place=place, ready_at=now, deadline=ends, expires=ends)
        self._takers.offer(queue, queue.takeable - takeable)

    def _remove(self, family: Any, entry: Any, state: str) -> None:
        self._leave(family, entry, state)
        self._families.save(family)
        queue: Queue = self._queues.get(entry.child_queue)
        task = self._rows.task(queue, entry.child)
        assert task is not None
        queue.held -= 1
        self._rows.end(queue, task, e.Ends("purged", 0, b"", None), None)
        self._forget(queue.name, task.id)

    def _leave(self, family: Any, entry: Any, state: str) -> None:
        entry.state = state
        self._entries.save(entry)
        self._entries.move(entry, held=False)
        family.held -= 1
