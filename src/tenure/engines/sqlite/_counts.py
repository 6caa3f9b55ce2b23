"""The counts of queues."""

from __future__ import annotations

from dataclasses import dataclass

import tenure.engine as e
from tenure.engines.rules import Cursors

from ._clock import seconds
from ._queue import SqliteQueue, SqliteQueues
from ._sql import TASKS
from ._state import SqliteState
from ._tasks import SqliteTaskRows


@dataclass(frozen=True, slots=True)
class Counts:
    _state: SqliteState
    _queues: SqliteQueues
    _rows: SqliteTaskRows

    def count(self, op: e.Count) -> e.QueueCounts | e.Reply:
        state = self._state
        session = state.session(op.watch) if op.watch else None
        if op.watch and session is None:
            return e.Reply.GONE
        queue = self._queues.find(op.key) or SqliteQueue(state, 0, None, 0, op.key)
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

    def _oldest(self, queue: SqliteQueue) -> float:
        moments = [self._state.moment]
        if queue.waiting:
            rows = [self._state.one(TASKS.oldest, queue=queue.id)]
            if queue.groups.named:
                rows.append(self._state.one(TASKS.oldest_in_groups, queue=queue.id))
            moments += [moment for (moment,) in rows if moment is not None]
        if queue.delayed and (due := self._rows.next_due(queue)) is not None:
            moments.append(due)
        return seconds(self._state.moment - min(moments))
