"""Holds: weighted capacity with a line, the one algorithm under locks, semaphores, read-write locks and elections."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice

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
    SetValue,
)

from ._state import ItemKey, Session, State


@dataclass(slots=True)
class Hold:
    """One holder (token above 0) or waiter (token 0)."""

    holder: str
    session: Session
    weight: int
    value: bytes
    ordinal: int
    since: float
    token: int = 0


@dataclass(slots=True)
class Line:
    """The state of one key."""

    capacity: int
    fixed: bool = False
    used: int = 0
    ordinal: int = 0
    held: dict[str, Hold] = field(default_factory=dict[str, Hold])
    waiting: OrderedDict[str, Hold] = field(default_factory=OrderedDict[str, Hold])

    def place(self, hold: Hold) -> int:
        return hold.ordinal - next(iter(self.waiting.values())).ordinal + 1


class Holds:
    """The family of holds."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lines: dict[str, Line] = {}

    def acquire(self, op: Acquire) -> HoldAnswer:
        state = self._state
        session = state.sessions.get(op.session)
        if session is None:
            return Reply.GONE
        line = self._lines.get(op.key)
        if line is None:
            line = self._lines[op.key] = Line(op.capacity)
        elif (known := self._stand(line, op.holder)) is not Reply.UNKNOWN:
            return known
        if line.capacity != op.capacity:
            return Mismatch(line.capacity)
        fits = not line.waiting and line.used + op.weight <= line.capacity
        if not fits and not op.wait:
            self._tidy(op.key, line)
            return Reply.REFUSED
        line.ordinal += 1
        hold = Hold(op.holder, session, op.weight, op.value, line.ordinal, state.now)
        session.attach("holds", op.key, op.holder)
        if fits:
            self._grant(op.key, line, hold)
            return Granted(hold.token)
        line.waiting[op.holder] = hold
        return self._stand(line, op.holder)

    def ask(self, op: Ask) -> Asked | Reply:
        if op.session not in self._state.sessions:
            return Reply.GONE
        line = self._lines.get(op.key, Line(0))
        return Asked(tuple(self._stand(line, holder) for holder in op.holders))

    def release(self, op: Release) -> Reply:
        line = self._lines.get(op.key)
        if line is None:
            return Reply.UNKNOWN
        hold = line.held.get(op.holder) or line.waiting.get(op.holder)
        if hold is None:
            return Reply.UNKNOWN
        hold.session.detach("holds", op.key, op.holder)
        return self._remove(op.key, line, hold)

    def drop(self, item: ItemKey) -> None:
        """The session that held or waited has ended."""
        key, holder = item
        line = self._lines[key]
        self._remove(key, line, line.held.get(holder) or line.waiting[holder])

    def set_value(self, op: SetValue) -> Reply:
        line = self._lines.get(op.key)
        hold = line.held.get(op.holder) if line else None
        if hold is None or hold.token != op.token:
            return Reply.REFUSED
        hold.value = op.value
        self._changed(op.key)
        return Reply.OK

    def break_hold(self, op: BreakHold) -> Reply:
        line = self._lines.get(op.key)
        hold = line.held.get(op.holder) if line else None
        if line is None or hold is None or hold.token != op.token:
            return Reply.REFUSED
        hold.session.detach("holds", op.key, op.holder)
        self._state.hint(hold.session.process, op.key, op.holder, Notice.BROKEN)
        self._remove(op.key, line, hold)
        return Reply.OK

    def resize(self, op: Resize) -> Reply:
        line = self._lines.setdefault(op.key, Line(op.capacity))
        line.capacity, line.fixed = op.capacity, True
        self.serve(op.key)
        return Reply.OK

    def holders(self, op: Holders) -> Holdings | Reply:
        if op.watch:
            if op.watch not in self._state.sessions:
                return Reply.GONE
            self._state.watch(op.watch, ("hold", op.key))
        line = self._lines.get(op.key)
        if line is None:
            return Holdings(0, 0, (), ())
        show = self._show
        held = tuple(show(hold) for hold in islice(line.held.values(), op.limit))
        return Holdings(
            line.capacity, line.used, held, tuple(map(show, islice(line.waiting.values(), op.limit)))
        )

    def in_use(self) -> list[str]:
        """The keys that are held."""
        return [key for key, line in self._lines.items() if line.held]

    def has(self, item: ItemKey) -> bool:
        """Whether it is held, and not waited for."""
        return item[1] in self._lines[item[0]].held

    def token(self, item: ItemKey) -> int:
        """The token of one that is held."""
        return self._lines[item[0]].held[item[1]].token

    def serve(self, key: str) -> None:
        """Grant to the head of the line for as long as it fits."""
        line = self._lines.get(key)
        if line is None:
            return
        while line.waiting:
            hold = next(iter(line.waiting.values()))
            too_big = hold.weight > line.capacity
            if not too_big and line.used + hold.weight > line.capacity:
                break
            if not self._state.step():
                self._state.unserved[key] = None
                return
            del line.waiting[hold.holder]
            if too_big:
                hold.session.detach("holds", key, hold.holder)
                self._state.hint(hold.session.process, key, hold.holder, Notice.ASK)
            else:
                self._grant(key, line, hold)
                self._state.hint(hold.session.process, key, hold.holder, Granted(hold.token))
        self._tidy(key, line)

    def _grant(self, key: str, line: Line, hold: Hold) -> None:
        hold.token, hold.since = self._state.token(), self._state.now
        line.used += hold.weight
        line.held[hold.holder] = hold
        self._changed(key)

    def _remove(self, key: str, line: Line, hold: Hold) -> Reply:
        if hold.token:
            del line.held[hold.holder]
            line.used -= hold.weight
            self._changed(key)
        else:
            del line.waiting[hold.holder]
        self.serve(key)
        return Reply.RELEASED if hold.token else Reply.LEFT

    def _stand(self, line: Line, holder: str) -> HoldAnswer:
        if (hold := line.held.get(holder)) is not None:
            return Granted(hold.token)
        if (hold := line.waiting.get(holder)) is not None:
            return Queued(line.place(hold), self._state.ask_again_in())
        return Reply.UNKNOWN

    def _show(self, hold: Hold) -> Holder:
        age = max(0.0, self._state.now - hold.since)
        return Holder(hold.session.process, hold.holder, hold.token, hold.weight, hold.value, age)

    def _changed(self, key: str) -> None:
        self._state.fire(("hold", key), key, "", Notice.CHANGED)

    def _tidy(self, key: str, line: Line) -> None:
        if not line.held and not line.waiting and not line.fixed:
            del self._lines[key]
