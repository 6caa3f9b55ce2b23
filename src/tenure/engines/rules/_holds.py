"""Holds: weighted capacity with a line of waiters. A barrier is a line of holds without weight."""

from __future__ import annotations

from dataclasses import dataclass

import tenure.engine as e

from ._pages import Position, page_of, place_in
from ._places import Place, Places
from ._state import State
from ._tables import OF_SESSION, Layout, Order, Table


@dataclass(slots=True)
class Line:
    """A key that is held or waited for, or whose capacity is fixed.

    `head` is the ordinal of the first waiter. `meeting` is the token of the meeting for which arrivals wait, or which
    they broke.
    """

    key: str
    capacity: int
    fixed: bool = False
    used: int = 0
    ordinal: int = 0
    head: int = 0
    held: int = 0
    waiting: int = 0
    meeting: int = 0


@dataclass(slots=True)
class Hold(Place):
    """A holder, with a token, or a waiter. `place` is the token or the ordinal."""

    weight: int
    value: bytes
    since: float
    place: int


@dataclass(slots=True)
class Unserved:
    key: str
    rank: int


LINES = Layout("line", Line, ("key",))
HOLDS = Layout(
    "hold", Hold, ("key", "name"), place=Order(("key", "waits"), ("place",), grows=True), session=OF_SESSION
)
UNSERVED = Layout("unserved", Unserved, ("key",), rank=Order((), ("rank",), grows=True))


class Holds(Places[Hold]):
    def __init__(self, state: State) -> None:
        super().__init__(state, "holds", HOLDS)
        self._lines: Table[Line] = state.table(LINES)
        self._unserved: Table[Unserved] = state.table(UNSERVED)

    def acquire(self, op: e.Acquire) -> e.HoldAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return e.Reply.GONE
        line = self._lines.get(op.key)
        if line is None:
            line = Line(op.key, op.capacity)
        elif (hold := self._places.get(op.key, op.holder)) is not None:
            return self._status(line, hold)
        if line.capacity != op.capacity and (op.weight or line.waiting or line.fixed):
            return e.Mismatch(line.capacity)
        fits = not line.waiting and 0 < op.weight <= line.capacity - line.used
        if not fits and not op.wait:
            return e.Reply.REFUSED
        place = state.token() if fits else line.ordinal + 1
        number, rank = session.number, state.rank()
        hold = Hold(op.key, op.holder, number, rank, not fits, op.weight, op.value, state.now, place)
        self._places.save(hold)
        if fits:
            self._count_in(line, hold)
        else:
            line.ordinal, line.head = place, line.head if line.waiting else place
            line.waiting += 1
            if not op.weight:
                return self._gather(line, hold, op.capacity)
        self._lines.save(line)
        return e.Granted(place) if fits else self._status(line, hold)

    def ask(self, op: e.Ask) -> e.HoldStatuses | e.Reply:
        if self._state.session(op.session) is None:
            return e.Reply.GONE
        line = self._lines.get(op.key)
        holds = (self._places.get(op.key, holder) if line else None for holder in op.holders)
        return e.HoldStatuses(tuple(self._status(line, hold) for hold in holds))

    def release(self, op: e.Release) -> e.Granted | e.Reply:
        hold = self._places.get(op.key, op.holder)
        if hold is None:
            return e.Reply.UNKNOWN
        self.drop(hold)
        if hold.waits:
            return e.Reply.LEFT
        return e.Reply.RELEASED if hold.weight else e.Granted(hold.place)

    def set_value(self, op: e.SetValue) -> e.Reply:
        hold = self._with_token(op.key, op.holder, op.token)
        if hold is None:
            return e.Reply.REFUSED
        hold.value = op.value
        self._places.save(hold)
        self._state.notify_watchers("hold", op.key, e.Notice.CHANGED)
        return e.Reply.OK

    def break_hold(self, op: e.BreakHold) -> e.Reply:
        hold = self._with_token(op.key, op.holder, op.token)
        if hold is None:
            return e.Reply.REFUSED
        self._hint(hold, e.Notice.BROKEN)
        self.drop(hold)
        return e.Reply.OK

    def resize(self, op: e.Resize) -> e.Reply:
        line = self._lines.get(op.key)
        if not op.capacity and (line is None or line.used or line.waiting):
            return e.Reply.OK if line is None else e.Reply.REFUSED
        line = line or Line(op.key, op.capacity)
        line.capacity, line.fixed = op.capacity, op.capacity != 0
        self._serve(line)
        return e.Reply.OK

    def holders(self, op: e.Scan[e.Holdings]) -> e.Holdings:
        if op.watch:
            self._state.subscribe_once("hold", op.key, op.watch)
        line = self._lines.get(op.key) or Line(op.key, 0)
        first, place = place_in(op, 0, 0) or (0, 0)
        placed: list[tuple[Position, e.Holder]] = []
        for waits in range(first, 2):
            left = op.limit + 1 - len(placed)
            holds = self._places.some("place", op.key, bool(waits), limit=left, after=(place,))
            placed += [((waits, hold.place), self._show(hold)) for hold in holds]
            place = 0
        return page_of(op, placed, capacity=line.capacity, used=line.used, meeting=line.meeting)

    def serve_unserved(self) -> None:
        self._state.wake_at("line", None)
        rows = self._unserved.some("rank", limit=self._state.cap)
        if len(rows) == self._state.cap:
            self._state.wake_at("line", self._state.now)
        for row in rows:
            self._unserved.remove(row)
            if (line := self._lines.get(row.key)) is not None:
                self._serve(line)

    def drop(self, hold: Hold) -> None:
        line = self._lines.get(hold.key)
        assert line is not None
        self._take_out(line, hold)
        if not hold.waits:
            self._state.notify_watchers("hold", line.key, e.Notice.CHANGED)
        elif not hold.weight and hold.value != e.DROP:
            line.capacity, line.fixed = e.BROKEN, True
        self._serve(line)

    def _serve(self, line: Line) -> None:
        """Grant to the head of the line for as long as it fits. A waiter that never fits is hinted to ask, and is then
        refused.
        """
        state = self._state
        while line.waiting:
            head = self._places.first("place", line.key, True)
            assert head is not None
            line.head = head.place
            too_big = head.weight > line.capacity
            if not too_big and not 0 < head.weight <= line.capacity - line.used:
                break
            if not state.step():
                self._unserved.save(Unserved(line.key, state.rank()))
                state.wake_at("line", state.now)
                break
            if too_big:
                self._take_out(line, head)
                self._hint(head, e.Notice.ASK)
            else:
                line.waiting -= 1
                self._places.move(head, place=state.token(), waits=False, since=state.now)
                self._count_in(line, head)
                self._hint(head, e.Granted(head.place))
        if line.held or line.waiting or line.fixed:
            self._lines.save(line)
        else:
            self._lines.remove(line)

    def _gather(self, line: Line, hold: Hold, parties: int) -> e.HoldAnswer:
        state = self._state
        line.capacity, line.meeting = parties, line.meeting or state.token()
        status: e.HoldAnswer = self._status(line, hold)
        if line.waiting == parties:
            token = state.token()
            state.last.token += 2 * (parties - 1)
            token += -token % parties
            for party in self._places.some("place", line.key, True, limit=parties):
                self._places.move(party, place=token, waits=False, since=state.now)
                status = e.Granted(token)
                if party.name != hold.name:
                    self._hint(party, status)
                token += 1
            line.held, line.waiting, line.meeting = line.held + parties, 0, 0
            state.notify_watchers("hold", line.key, e.Notice.CHANGED)
        self._lines.save(line)
        return status

    def _count_in(self, line: Line, hold: Hold) -> None:
        line.held += 1
        line.used += hold.weight
        self._state.notify_watchers("hold", line.key, e.Notice.CHANGED)

    def _take_out(self, line: Line, hold: Hold) -> None:
        if hold.waits:
            line.waiting -= 1
        else:
            line.held -= 1
            line.used -= hold.weight
        self._places.remove(hold)

    def _status(self, line: Line | None, hold: Hold | None) -> e.HoldAnswer:
        if hold is None or line is None:
            return e.Reply.UNKNOWN
        if hold.waits:
            return e.Queued(hold.place - line.head + 1, self._state.ask_again_in(), line.meeting)
        return e.Granted(hold.place)

    def _token(self, hold: Hold, /) -> int:
        return 0 if hold.waits else hold.place

    def _show(self, hold: Hold) -> e.Holder:
        state = self._state
        age = max(0.0, state.now - hold.since)
        return e.Holder(
            state.process(hold.session), hold.name, self._token(hold), hold.weight, hold.value, age
        )
