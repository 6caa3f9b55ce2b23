"""The counts of queues."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import tenure.engine as e
from tenure.engines.rules import HELD, Cursors

from ._queue import MemoryQueue, MemoryQueues
from ._state import MemoryState


@dataclass(frozen=True, slots=True)
class Counts:
    _state: MemoryState
    _queues: MemoryQueues

    def count(self, op: e.Count) -> e.QueueCounts | e.Reply:
        if op.watch and self._state.session(op.watch) is None:
            return e.Reply.GONE
        queue = self._queues.find(op.key) or MemoryQueue(op.key, self._state)
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
            groups = len({task.group for task in queue.tasks.values() if task.place != HELD} - {""})
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
