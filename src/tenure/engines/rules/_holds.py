"""Holds: weighted capacity with a line, the algorithm under locks, semaphores, read-write locks and elections."""

from __future__ import annotations

from dataclasses import dataclass

from tenure.engine import (
    Acquire,
    Ask,
    BreakHold,
    Granted,
    HoldAnswer,
    Holder,
    Holders,
    Holdings,
    HoldStatuses,
    Mismatch,
    Notice,
    Queued,
    Release,
    Reply,
    Resize,
    SetValue,
)

from ._places import Place, Places
from ._state import State
from ._tables import OF_SESSION, Layout, Order, Table


@dataclass(slots=True)
class Line:
    """A key that is held or waited for, or whose capacity is fixed; `used` is the weight of its holders.

    `head` is the ordinal of the waiter at the head of the line.
    """

    key: str
    capacity: int
    fixed: bool = False
    used: int = 0
    ordinal: int = 0
    head: int = 0
    held: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Hold(Place):
    """A holder, with a token, or a waiter. `place` is the ordinal of a waiter, and the token of a holder."""

    weight: int
    value: bytes
    since: float
    place: int


@dataclass(slots=True)
class Unserved:
    """A line whose serving was cut short for want of steps."""

    key: str
    rank: int


LINES = Layout("line", Line, ("key",))
HOLDS = Layout(
    "hold", Hold, ("key", "name"), place=Order(("key", "waits"), ("place",), grows=True), session=OF_SESSION
)
UNSERVED = Layout("unserved", Unserved, ("key",), rank=Order((), ("rank",), grows=True))


class Holds(Places[Hold]):
    """The family of holds."""

    def __init__(self, state: State) -> None:
        super().__init__(state, "holds", HOLDS)
        self._lines: Table[Line] = state.table(LINES)
        self._unserved: Table[Unserved] = state.table(UNSERVED)

    def acquire(self, op: Acquire) -> HoldAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        line = self._lines.get(op.key)
        if line is None:
            line = Line(op.key, op.capacity)
        elif (hold := self._places.get(op.key, op.holder)) is not None:
            return self._status(line, hold)
        if line.capacity != op.capacity:
            return Mismatch(line.capacity)
        fits = not line.waiting and line.used + op.weight <= line.capacity
        if not fits and not op.wait:
            return Reply.REFUSED
        place = state.token() if fits else line.ordinal + 1
        hold = Hold(
            *(op.key, op.holder, session.number, state.rank(), not fits),
            *(op.weight, op.value, state.now, place),
        )
        self._places.save(hold)
        if fits:
            self._count_in(line, hold)
        else:
            line.ordinal, line.head = place, line.head if line.waiting else place
            line.waiting += 1
        self._lines.save(line)
        return Granted(place) if fits else self._status(line, hold)

    def ask(self, op: Ask) -> HoldStatuses | Reply:
        if self._state.session(op.session) is None:
            return Reply.GONE
        line = self._lines.get(op.key)
        holds = (self._places.get(op.key, holder) if line else None for holder in op.holders)
        return HoldStatuses(tuple(self._status(line, hold) for hold in holds))

    def release(self, op: Release) -> Reply:
        hold = self._places.get(op.key, op.holder)
        if hold is None:
            return Reply.UNKNOWN
        self.drop(hold)
        return Reply.LEFT if hold.waits else Reply.RELEASED

    def set_value(self, op: SetValue) -> Reply:
        hold = self._with_token(op.key, op.holder, op.token)
        if hold is None:
            return Reply.REFUSED
        hold.value = op.value
        self._places.save(hold)
        self._state.notify_watchers("hold", op.key, Notice.CHANGED)
        return Reply.OK

    def break_hold(self, op: BreakHold) -> Reply:
        hold = self._with_token(op.key, op.holder, op.token)
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
            tuple(map(self._show, self._places.some("place", op.key, waits, limit=op.limit)))
            for waits in (False, True)
        )
        return Holdings(line.capacity, line.used, holders, waiters)

    def serve_unserved(self) -> None:
        """Go on with the lines whose serving was cut short."""
        self._state.wake_at("line", None)
        rows = self._unserved.some("rank", limit=self._state.cap)
        if len(rows) == self._state.cap:
            self._state.wake_at("line", self._state.now)
        for row in rows:
            self._unserved.remove(row)
            if (line := self._lines.get(row.key)) is not None:
                self._serve(line)

    def drop(self, hold: Hold) -> None:
        """Remove a holder or waiter, whose session may have ended, and serve the line."""
        line = self._lines.get(hold.key)
        assert line is not None
        self._take_out(line, hold)
        if not hold.waits:
            self._state.notify_watchers("hold", line.key, Notice.CHANGED)
        self._serve(line)

    def _serve(self, line: Line) -> None:
        """Grant to the head of the line for as long as it fits. A waiter that never fits asks again, and is refused."""
        state = self._state
        while line.waiting:
            head = self._places.first("place", line.key, True)
            assert head is not None
            line.head = head.place
            too_big = head.weight > line.capacity
            if not too_big and line.used + head.weight > line.capacity:
                break
            if not state.step():
                self._unserved.save(Unserved(line.key, state.rank()))
                state.wake_at("line", state.now)
                break
            if too_big:
                self._take_out(line, head)
                self._hint(head, Notice.ASK)
            else:
                line.waiting -= 1
                self._places.move(head, place=state.token(), waits=False, since=state.now)
                self._count_in(line, head)
                self._hint(head, Granted(head.place))
        if line.held or line.waiting or line.fixed:
            self._lines.save(line)
        else:
            self._lines.remove(line)

    def _count_in(self, line: Line, hold: Hold) -> None:
        """A holder came."""
        line.held += 1
        line.used += hold.weight
        self._state.notify_watchers("hold", line.key, Notice.CHANGED)

    def _take_out(self, line: Line, hold: Hold) -> None:
        """A holder or waiter goes."""
        if hold.waits:
            line.waiting -= 1
        else:
            line.held -= 1
            line.used -= hold.weight
        self._places.remove(hold)

    def _status(self, line: Line | None, hold: Hold | None) -> HoldAnswer:
        if hold is None or line is None:
            return Reply.UNKNOWN
        if hold.waits:
            return Queued(hold.place - line.head + 1, self._state.ask_again_in())
        return Granted(hold.place)

    def _token(self, hold: Hold, /) -> int:
        return 0 if hold.waits else hold.place

    def _show(self, hold: Hold) -> Holder:
        state = self._state
        age = max(0.0, state.now - hold.since)
        return Holder(state.process(hold.session), hold.name, self._token(hold), hold.weight, hold.value, age)
