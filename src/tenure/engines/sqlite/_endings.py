"""What becomes of tasks that leave their lease or their order: decided one by one, written together."""

from __future__ import annotations

import json
from typing import Any

from tenure.engine import Notice

from ._queue import DELAYED, Queue, Queues
from ._session import Session
from ._sql import SESSIONS, TASKS, joined
from ._state import State, sooner


class Endings:
    """Tasks that end or go back into the order; `write` makes it so."""

    def __init__(self, state: State, queues: Queues) -> None:
        self._state = state
        self._queues = queues
        self._watchers: dict[int, list[str]] = {}
        self._ended: list[tuple[Any, ...]] = []
        self._results: list[bytes] = []
        self._returned: list[tuple[int, ...]] = []
        self.count = 0
        """How many tasks have ended in this transaction."""

    def begin(self) -> None:
        """Forget what a transaction that failed has left."""
        self._watchers, self._ended, self._results, self._returned, self.count = {}, [], [], [], 0

    def expect(self, queue: Queue, tasks: list[int]) -> None:
        """Read who watches for the ends of these tasks, before they end."""
        self._watchers.update(self._state.task_watchers(queue.name, tasks))

    def end(
        self,
        queue: Queue,
        task: int,
        group: bytes,
        state: str,
        attempts: int,
        result: bytes,
        ttl: int | None,
        session: Session | None = None,
    ) -> None:
        """A task that is in no order has ended, settled by the session if there is one.

        `ttl` None keeps the record for good.
        """
        self.remove(queue, task, group)
        queue.count(state)
        own = self._state
        queue.lasting += ttl is None
        settled = 0 if session is None else 2 * session.micros
        listed = 0 if ttl is None or state == "dead" else ttl  # a dead letter keeps its queue by being there
        queue.keep_until = max(queue.keep_until, own.wall + max(listed, settled))
        own.last.ending += 1
        expires = None
        if ttl is not None:
            expires = own.wall + ttl
            if state == "dead":
                own.soonest.letter = sooner(expires, own.soonest.letter)
            else:
                own.soonest.record = sooner(expires, own.soonest.record)
        self._ended.append((task, state, own.last.ending, attempts, expires, len(result)))
        self._results.append(result)
        self.finished(queue, task)

    def end_in_order(
        self, queue: Queue, task: int, group: bytes, place: int, state: str, attempts: int, ttl: int | None
    ) -> None:
        """A task that was not taken has ended."""
        queue.step_out(place, group)
        self.expect(queue, [task])
        self.end(queue, task, group, state, attempts, b"", ttl)

    def remove(self, queue: Queue, task: int, group: bytes) -> None:
        """There is one unfinished task less."""
        queue.live -= 1
        if queue.groups is not None:
            queue.groups.go(group, task)
        self._queues.make_room(queue, group)
        if not queue.live:
            self._state.notify_watchers("drain", queue.name, Notice.DRAINED)

    def finished(self, queue: Queue, task: int) -> None:
        """Hint those that watch for the end of a task."""
        watchers = self._watchers.pop(task, None)
        if watchers:
            self._state.run(SESSIONS.fired, kind="task", key=queue.name, task=task)
            for process in watchers:
                self._state.hint(process, queue.name, str(task), Notice.FINISHED)

    def give_back(
        self, queue: Queue, task: int, group: bytes, ready_at: int, attempts: int, deliveries: int
    ) -> None:
        """A task that is in no order goes back into it; the caller offers what can be taken."""
        due = self._queues.due(queue)
        place = queue.line_up(task, group, ready_at, self._state.wall)
        self._returned.append((task, place, ready_at, attempts, deliveries))
        if place == DELAYED:
            self._queues.offer_sooner(queue, due)

    def write(self) -> None:
        """Store what was decided since."""
        if self._ended:
            rows: list[tuple[Any, ...]] = []
            at = 1
            for *row, size in self._ended:
                rows.append((*row, at, size))
                at += size
            run = self._state.run
            run(TASKS.record, rows=json.dumps(rows), bytes=joined(self._results), now=self._state.wall)
            ids = [row[0] for row in rows]
            run(TASKS.delete, ids=str(ids))
            self._state.changed(ids)
            self.count += len(rows)
        if self._returned:
            self._state.run(TASKS.release, rows=json.dumps(self._returned))
            self._state.changed([row[0] for row in self._returned])
        self._watchers, self._ended, self._results, self._returned = {}, [], [], []
