"""Holds: weighted capacity with a line, the one algorithm under locks, semaphores, read-write locks and elections."""

from __future__ import annotations

from dataclasses import dataclass

from tenure.engine import (
    Acquire,
    Ask,
    Asked,
    BreakHold,
    Granted,
    HoldAnswer,
    Holder,
    Holders,
    Holdings,
    Mismatch,
    Notice,
    Queued,
    Release,
    Reply,
    Resize,
    SessionItem,
    SetValue,
)

from ._state import State
from ._tables import OF_SESSION, Layout, Order, Table


@dataclass(slots=True)
class Line:
    """A key that is held or waited for, or whose capacity is fixed; `used` is the weight of its holders."""

    key: str
    capacity: int
    fixed: bool = False
    used: int = 0
    ordinal: int = 0
    held: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Hold:
    """A holder, with a token, or a waiter. `place` is the ordinal of a waiter, and the token of a holder."""

    line: str
    holder: str
    session: int
    rank: int
    weight: int
    value: bytes
    since: float
    place: int
    waits: bool = True

    @property
    def token(self) -> int:
        return 0 if self.waits else self.place


@dataclass(slots=True)
class Unserved:
    """A line whose serving was cut short for want of steps."""

    line: str
    rank: int


LINES = Layout("line", Line, ("key",))
HOLDS = Layout(
    "hold", Hold, ("line", "holder"), place=Order(("line", "waits"), ("place",)), session=OF_SESSION
)
UNSERVED = Layout("unserved", Unserved, ("line",), rank=Order((), ("rank",)))


class Holds:
    """The family of holds."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lines: Table[Line] = state.table(LINES)
        self._holds: Table[Hold] = state.table(HOLDS)
        self._unserved: Table[Unserved] = state.table(UNSERVED)

    def acquire(self, op: Acquire) -> HoldAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        line = self._lines.get(op.key)
        if line is None:
            line = Line(op.key, op.capacity)
        elif (hold := self._holds.get(op.key, op.holder)) is not None:
            return self._status(hold)
        if line.capacity != op.capacity:
            return Mismatch(line.capacity)
        fits = not line.waiting and line.used + op.weight <= line.capacity
        if not fits and not op.wait:
            return Reply.REFUSED
        line.ordinal += 1
        hold = Hold(
            *(op.key, op.holder, session.number, state.rank()), op.weight, op.value, state.now, line.ordinal
        )
        if fits:
            self._grant(line, hold)
        else:
            line.waiting += 1
            self._holds.save(hold)
        self._lines.save(line)
        return self._status(hold)

    def ask(self, op: Ask) -> Asked | Reply:
        if self._state.session(op.session) is None:
            return Reply.GONE
        return Asked(tuple(self._status(self._holds.get(op.key, holder)) for holder in op.holders))

    def release(self, op: Release) -> Reply:
        hold = self._holds.get(op.key, op.holder)
        if hold is None:
            return Reply.UNKNOWN
        self.drop(hold)
        return Reply.LEFT if hold.waits else Reply.RELEASED

    def drop(self, hold: Hold) -> None:
        """Remove a holder or waiter, whose session may have ended, and serve the line."""
        line = self._line(hold.line)
        self._remove(line, hold)
        if not hold.waits:
            self._changed(line)
        self._serve(line)

    def set_value(self, op: SetValue) -> Reply:
        hold = self._held(op)
        if hold is None:
            return Reply.REFUSED
        hold.value = op.value
        self._holds.save(hold)
        self._changed(self._line(op.key))
        return Reply.OK

    def break_hold(self, op: BreakHold) -> Reply:
        hold = self._held(op)
        if hold is None:
            return Reply.REFUSED
        self._hint(hold, Notice.BROKEN)
        self.drop(hold)
        return Reply.OK

    def resize(self, op: Resize) -> Reply:
        line = self._lines.get(op.key) or Line(op.key, op.capacity)
        line.capacity, line.fixed = op.capacity, True
        self._serve(line)
        return Reply.OK

    def holders(self, op: Holders) -> Holdings | Reply:
        if op.watch:
            if self._state.session(op.watch) is None:
                return Reply.GONE
            self._state.subscribe_once("hold", op.key, op.watch)
        line = self._lines.get(op.key)
        if line is None:
            return Holdings(0, 0, (), ())
        holders, waiters = (
            tuple(map(self._show, self._holds.some("place", op.key, waits, limit=op.limit)))
            for waits in (False, True)
        )
        return Holdings(line.capacity, line.used, holders, waiters)

    def item(self, hold: Hold) -> SessionItem:
        """Describe a holder or waiter as a part of its session."""
        return SessionItem("holds", hold.line, hold.holder, not hold.waits, hold.token)

    def serve_unserved(self) -> None:
        """Go on with the lines whose serving was cut short."""
        self._state.wake_at("line", None)
        rows = self._unserved.some("rank", limit=self._state.cap)
        if len(rows) == self._state.cap:
            self._state.wake_at("line", self._state.now)
        for row in rows:
            self._unserved.remove(row)
            if (line := self._lines.get(row.line)) is not None:
                self._serve(line)

    def _serve(self, line: Line) -> None:
        """Grant to the head of the line for as long as it fits. A waiter that never fits asks again, and is refused."""
        while line.waiting:
            head = self._head(line.key)
            too_big = head.weight > line.capacity
            if not too_big and line.used + head.weight > line.capacity:
                break
            if not self._state.step():
                self._unserved.save(Unserved(line.key, self._state.rank()))
                self._state.wake_at("line", self._state.now)
                break
            if too_big:
                self._remove(line, head)
                self._hint(head, Notice.ASK)
            else:
                line.waiting -= 1
                self._grant(line, head)
                self._hint(head, Granted(head.token))
        if line.held or line.waiting or line.fixed:
            self._lines.save(line)
        else:
            self._lines.remove(line)

    def _grant(self, line: Line, hold: Hold) -> None:
        hold.place, hold.waits, hold.since = self._state.token(), False, self._state.now
        line.held += 1
        line.used += hold.weight
        self._holds.save(hold)
        self._changed(line)

    def _remove(self, line: Line, hold: Hold) -> None:
        if hold.waits:
            line.waiting -= 1
        else:
            line.held -= 1
            line.used -= hold.weight
        self._holds.remove(hold)

    def _held(self, op: SetValue | BreakHold) -> Hold | None:
        """The holder, if it has the token of the operation."""
        hold = self._holds.get(op.key, op.holder)
        return hold if hold is not None and hold.token == op.token > 0 else None

    def _line(self, key: str) -> Line:
        line = self._lines.get(key)
        assert line is not None
        return line

    def _head(self, key: str) -> Hold:
        head = self._holds.first("place", key, True)
        assert head is not None
        return head

    def _status(self, hold: Hold | None) -> HoldAnswer:
        if hold is None:
            return Reply.UNKNOWN
        if not hold.waits:
            return Granted(hold.token)
        return Queued(hold.place - self._head(hold.line).place + 1, self._state.ask_again_in())

    def _show(self, hold: Hold) -> Holder:
        state = self._state
        age = max(0.0, state.now - hold.since)
        return Holder(state.process(hold.session), hold.holder, hold.token, hold.weight, hold.value, age)

    def _hint(self, hold: Hold, news: Granted | Notice) -> None:
        self._state.hint(self._state.process(hold.session), hold.line, hold.holder, news)

    def _changed(self, line: Line) -> None:
        self._state.notify_watchers("hold", line.key, Notice.CHANGED)
