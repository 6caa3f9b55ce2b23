"""Operations on queues from outside: counts, listings, dead letters, purging."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import tenure.engine as e
from tenure.engines.rules import LEASED, Cursors, Families, Settling, Takers

from ._queue import Queue, Queues
from ._records import Ended
from ._state import State
from ._task import Task
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
        move = {
            "cancelled": self._cancel,
            "delayed": self._postpone,
            "waiting": self._requeue,
            "purged": self._purge,
        }[op.to]
        takeable, moved = queue.takeable, 0
        for i in op.ids:
            item = queue.tasks.get(i) or queue.records.valid(i, self._state.now)
            if item is not None and op.state in ("", self._state_of(queue, item)):
                moved += move(queue, item, op)
        self._takers.offer(queue, queue.takeable - takeable)
        return e.MovedCount(moved)

    def _state_of(self, queue: Queue, item: Task | Ended) -> str:
        return item.state if isinstance(item, Ended) else queue.state_of(item, self._state.now)

    def _postpone(self, queue: Queue, task: Task | Ended, op: e.Move) -> bool:
        if isinstance(task, Ended) or task.place >= LEASED:
            return False
        if not op.moves:
            self._settling.edit(queue, task, op)
            return True
        queue.dequeue(task.place, task.group)
        task.place = LEASED  # in no order
        self._settling.postpone(queue, task, op)
        return True

    def _cancel(self, queue: Queue, task: Task | Ended, op: e.Move) -> bool:
        if isinstance(task, Ended):
            return False
        self._settling.cancel(queue, task, op.ttl)
        return True

    def _requeue(self, queue: Queue, ended: Task | Ended, _: e.Move) -> bool:
        """Make a dead task ready, unless another one has its key."""
        if isinstance(ended, Task) or ended.state != "dead":
            return False
        if ended.kin and self._families.is_child(queue, ended.id):
            return False
        if ended.key is not None and queue.owner(ended.key, self._state.now) not in (None, ended.id):
            return False
        queue.records.remove(ended)
        queue.dead -= 1
        queue.live += 1
        if ended.kin:
            self._families.end_try(queue, ended.id)
        self._rows.requeue(queue, ended)
        return True

    def _purge(self, queue: Queue, task: Task | Ended, _: e.Move) -> bool:
        if isinstance(task, Task):
            if task.place >= LEASED:
                return False
            self._settling.end_untaken(queue, task, "purged", None)
        elif task.state == "dead":
            self._rows.remove_letter(queue, task)
        else:
            queue.records.remove(task)
        return True

    def count(self, op: e.Count) -> e.QueueCounts | e.Reply:
        if op.watch and self._state.session(op.watch) is None:
            return e.Reply.GONE
        queue = self._queues.find(op.key) or Queue(op.key, self._state)
        if op.watch and queue.live:
            self._state.watch(op.watch, ("drain", op.key))
        now = self._state.now
        due = queue.due(now)
        waiting, delayed = queue.waiting + due, queue.delayed - due
        suspended, ending = queue.suspended, queue.ending
        leased = queue.live - waiting - delayed - suspended - ending
        dead, groups = queue.dead, queue.groups.unfinished
        if op.recount:
            states = Counter(queue.state_of(task, now) for task in queue.tasks.values())
            waiting, delayed, leased = states["waiting"], states["delayed"], states["leased"]
            suspended, ending = states["suspended"], states["ending"]
            dead = queue.records.count("dead")
            groups = len({task.group for task in queue.tasks.values()} - {""})
        return queue.counts(
            waiting=waiting,
            delayed=delayed,
            leased=leased,
            dead=dead,
            groups=groups,
            oldest=now - queue.oldest(now),
            cursors=Cursors(self._state).each(op.key),
            ask_again_in=self._state.ask_again_in(),
            now=self._state.wall_time(),
            suspended=suspended,
            ending=ending,
        )
