"""Operations on queues from outside: counts, listings, dead letters, purging."""

from __future__ import annotations

from dataclasses import dataclass

import tenure.engine as e
from tenure.engines.rules import (
    DELAYED,
    LEASED,
    Cursors,
    Families,
    Settling,
    Takers,
    Task,
    decoded_name,
    forget_family,
    shown_state,
)

from ._clock import seconds
from ._queue import Queue, Queues
from ._sql import TASKS
from ._state import State
from ._tasks import TaskRows


@dataclass(frozen=True, slots=True)
class Admin:
    """Administration of queues."""

    _state: State
    _queues: Queues
    _rows: TaskRows
    _takers: Takers
    _settling: Settling
    _families: Families

    def move(self, op: e.Move) -> e.MovedCount | e.Reply:
        if self._queues.find(op.key) is None:
            return e.MovedCount(0)
        queue = self._queues.get(op.key)  # a queue that is used keeps its record
        takeable = queue.takeable
        move = {
            "cancelled": self._cancel,
            "delayed": self._postpone,
            "waiting": self._requeue,
            "purged": self._purge,
        }[op.to]
        moved = sum(move(queue, task, op) for task in op.ids)
        self._takers.offer(queue, queue.takeable - takeable)
        return e.MovedCount(moved)

    def _unfinished(self, queue: Queue, task_id: int, op: e.Move) -> Task | None:
        """The task, if it has not ended and is in the state of the move."""
        task = self._rows.task(queue, task_id)
        if task is None or op.state not in ("", shown_state(task, self._state.moment)):
            return None
        return task

    def _cancel(self, queue: Queue, task_id: int, op: e.Move) -> bool:
        task = self._unfinished(queue, task_id, op)
        if task is None:
            return False
        self._settling.cancel(queue, task, op.ttl)
        return True

    def _postpone(self, queue: Queue, task_id: int, op: e.Move) -> bool:
        state = self._state
        task = self._unfinished(queue, task_id, op)
        if task is None or task.place >= LEASED:
            return False
        if not op.moves:
            self._settling.edit(queue, task, op)
            return True
        queue.dequeue(task.place, task.group)
        if task.place == DELAYED:
            # as long as it is not written, it is still found among the delayed ones
            (queue.known_due,) = state.one(TASKS.due_beside, queue=queue.id, id=task.id)
            queue.due_is_known = True
        else:
            task.ready_at = min(task.ready_at, state.moment)
        self._settling.postpone(queue, task, op)
        return True

    def _purge(self, queue: Queue, task_id: int, op: e.Move) -> bool:
        if (task := self._unfinished(queue, task_id, op)) is not None:
            if task.place >= LEASED:
                return False
            self._settling.end_untaken(queue, task, "purged", None)
            return True
        state = self._state
        row = state.one(TASKS.ended_one, id=task_id, queue=queue.id, now=state.moment)
        if not row or op.state not in ("", row[0]):
            return False
        name, expires, kin = row
        queue.lasting -= expires is None
        state.run(TASKS.forget_one, id=task_id)
        if name == "dead":
            queue.dead -= 1
            queue.purged += 1
            if kin:
                forget_family(state, queue.name, task_id)
        return True

    def _requeue(self, queue: Queue, task: int, op: e.Move) -> bool:
        """Make a dead task ready, unless another one has its key, or it is a child."""
        state = self._state
        row = state.one(TASKS.dead_one, id=task, queue=queue.id)
        if not row or op.state not in ("", "dead"):
            return False
        key, expires, group, kin = row
        if kin and self._families.is_child(queue, task):
            return False
        if key is not None:
            owner = self._rows.owners(queue, {name := decoded_name(key)}).get(name)
            if owner is not None and owner.id != task:
                return False
        if kin:
            self._families.end_try(queue, task)
        state.run(TASKS.requeue, id=task, now=state.moment)
        state.run(TASKS.forget_one, id=task)
        queue.dead -= 1
        queue.lasting -= expires is None
        queue.live += 1
        name = decoded_name(group)
        if name:
            queue.groups.count_in(name, queue.waiting)
        queue.enqueue(task, name, state.moment, state.moment)
        return True

    def count(self, op: e.Count) -> e.QueueCounts | e.Reply:
        state = self._state
        session = state.session(op.watch) if op.watch else None
        if op.watch and session is None:
            return e.Reply.GONE
        queue = self._queues.find(op.key) or Queue(state, 0, None, 0, op.key)
        groups = queue.groups
        if session is not None and queue.live:
            state.watch("drain", op.key, 0, session)
        waiting, delayed, suspended, ending = queue.waiting, queue.delayed, queue.suspended, queue.ending
        leased = queue.live - waiting - delayed - suspended - ending
        dead, due = queue.dead, 0
        unfinished = groups.unfinished
        if op.recount:
            recounted = state.one(TASKS.recount, queue=queue.id)
            waiting, delayed, leased, suspended, ending, dead, unfinished = recounted
        if delayed:
            due = len(state.all(TASKS.are_due, queue=queue.id, now=state.moment, limit=e.CAP))
        return queue.counts(
            waiting=waiting + due,
            delayed=delayed - due,
            leased=leased,
            dead=dead,
            groups=unfinished,
            oldest=self._oldest(queue),
            cursors=Cursors(state).each(op.key),
            ask_again_in=state.ask_again_in(),
            now=seconds(state.moment),
            suspended=suspended,
            ending=ending,
        )

    def _oldest(self, queue: Queue) -> float:
        """For how many seconds the longest waiting task has been ready."""
        moments = [self._state.moment]
        if queue.waiting:
            rows = [self._state.one(TASKS.oldest, queue=queue.id)]
            if queue.groups.named:
                rows.append(self._state.one(TASKS.oldest_in_groups, queue=queue.id))
            moments += [moment for (moment,) in rows if moment is not None]
        self._takers.due(queue)
        if queue.known_due is not None:
            moments.append(queue.known_due)
        return seconds(self._state.moment - min(moments))
