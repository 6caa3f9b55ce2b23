"""Operations that move tasks and records by their ids."""

from __future__ import annotations

from collections.abc import Callable

import tenure.engine as e

from ._families import Families, forget_family
from ._queues import HELD, LEASED, WAITING, Queue, Queues
from ._rows import Task, TaskRows, shown_state
from ._settling import Settling
from ._state import State
from ._takers import Takers


class Admin:
    def __init__(
        self,
        state: State,
        queues: Queues,
        rows: TaskRows,
        takers: Takers,
        settling: Settling,
        families: Families,
        count: Callable[[e.Count], e.QueueCounts | e.Reply],
    ) -> None:
        self._state = state
        self._queues = queues
        self._rows = rows
        self._takers = takers
        self._settling = settling
        self._families = families
        self.count = count

    def move(self, op: e.Move) -> e.MovedCount | e.Reply:
        if self._queues.find(op.key) is None:
            return e.MovedCount(0)
        queue: Queue = self._queues.get(op.key)  # a queue that is used keeps its record
        takeable = queue.takeable
        moved = sum([self._move(queue, task, op) for task in op.ids])
        self._takers.offer(queue, queue.takeable - takeable)
        return e.MovedCount(moved)

    def _move(self, queue: Queue, task_id: int, op: e.Move) -> bool:
        task = self._rows.task(queue, task_id)
        if task is not None:
            is_meant = op.state in ("", shown_state(task, self._state.moment))
            return is_meant and self._move_unfinished(queue, task, op)
        record = self._rows.ended_record(queue, task_id)
        if record is None or op.state not in ("", record.state):
            return False
        return (op.to == "purged" and self._purge(queue, record)) or (
            op.to == "waiting" and record.state == "dead" and self._revive(queue, record)
        )

    def _move_unfinished(self, queue: Queue, task: Task, op: e.Move) -> bool:
        if task.place == HELD:
            return False
        if op.to == "cancelled":
            self._settling.cancel(queue, task, op.ttl)
            return True
        if op.to == "waiting" or task.place >= LEASED:
            return False
        if op.to == "purged":
            if task.kin and self._families.is_release(queue, task.id):
                return False
            self._settling.end_untaken(queue, task, "purged", None)
        elif op.moves:
            self._postpone(queue, task, op)
        else:
            self._settling.edit(queue, task, op)
        return True

    def _postpone(self, queue: Queue, task: Task, op: e.Move) -> None:
        if task.place == WAITING:
            task.ready_at = min(task.ready_at, self._state.moment)  # wherever the clock was set back to
        queue.dequeue(task.place, task.group)
        self._rows.update(queue, task, place=LEASED)  # in no order
        self._settling.postpone(queue, task, op)

    def _purge(self, queue: Queue, record: e.Record) -> bool:
        self._rows.forget_record(queue, record.id)
        if record.state == "dead":
            queue.dead -= 1
            queue.purged += 1
            forget_family(self._state, queue.name, record.id)
        return True

    def _revive(self, queue: Queue, record: e.Record) -> bool:
        if self._families.is_child(queue, record.id):
            return False
        if record.key is not None:
            owner = self._rows.owners(queue, {record.key}).get(record.key)
            if owner is not None and owner.id != record.id:
                return False
        self._families.live_again(queue, record.id)
        queue.dead -= 1
        queue.live += 1
        if record.group:
            queue.groups.count_in(record.group, queue.waiting)
        queue.enqueue(record.id, record.group, self._state.moment, self._state.moment)
        self._rows.revive(queue, record.id)
        return True
