"""Takers: idle sessions, hinted in the order in which they came when tasks can be taken."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import tenure.engine as e

from ._queues import Queue, Queues
from ._rows import TaskRows, earlier
from ._state import Moment, Session, State
from ._tables import OF_SESSION, Layout, Order, Table


@dataclass(slots=True)
class Taker:
    queue: str
    session: int
    rank: int
    want: int


TAKERS = Layout(
    "taker", Taker, ("queue", "session"), rank=Order(("queue",), ("rank",), grows=True), session=OF_SESSION
)


class Takers:
    def __init__(self, state: State, queues: Queues, rows: TaskRows) -> None:
        self._state = state
        self._queues = queues
        self._rows = rows
        self._takers: Table[Taker] = state.table(TAKERS)

    def register(self, queue: Queue, session: Session, want: int) -> None:
        if want <= 0 and not queue.takers:
            return
        taker = self._takers.get(queue.name, session.number)
        if want <= 0:
            if taker is not None:
                self._remove(queue, taker)
            return
        if taker is None:
            taker = Taker(queue.name, session.number, self._state.rank(), want)
            queue.takers += 1
        taker.want = want
        self._takers.save(taker)

    def offer(self, queue: Queue, count: int, *, to_ask: bool = False) -> None:
        """Hint as many idle takers as `count` more tasks need; with `to_ask`, only to ask in time.

        A queue with a pace hints one taker; each taking then hints the next.
        """
        if count > 0 and queue.takers and queue.groups.has_pace and not to_ask:
            count = min(count, int(queue.groups.closed_until == -inf))
        while count > 0 and queue.takers and not queue.paused:
            taker = self._takers.first("rank", queue.name)
            assert taker is not None
            self._remove(queue, taker)
            self._state.hint(self._state.process(taker.session), queue.name, "", e.Notice.READY)
            count -= taker.want

    def offer_sooner(self, queue: Queue, due: Moment | None) -> None:
        now_due = self.due(queue)
        if now_due is not None and (due is None or now_due < due):
            self.offer(queue, 1, to_ask=True)

    def due(self, queue: Queue) -> Moment | None:
        """The time at which more tasks can be taken, since a task is due or a pace allows it.

        Ask before tasks enter the order; `known_due` is then when the next task is due.
        """
        if not queue.due_is_known:
            queue.known_due = self._rows.next_due(queue) if queue.delayed else None
            queue.due_is_known = True
        if queue.groups.is_paced and (starts_at := queue.groups.due(queue.waiting)) is not None:
            return earlier(queue.known_due, self._state.after(starts_at - self._state.now))
        return queue.known_due

    def drop(self, taker: Taker) -> None:
        self._remove(self._queues.get(taker.queue), taker)

    def item(self, taker: Taker) -> e.SessionItem:
        return e.SessionItem("takers", taker.queue, "", held=False, token=0)

    def _remove(self, queue: Queue, taker: Taker) -> None:
        self._takers.remove(taker)
        queue.takers -= 1
