"""Holds: weighted capacity with a line, the one algorithm under locks, semaphores, read-write locks and elections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

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

from ._clock import seconds
from ._sql import HOLDS
from ._state import State


class Hold(NamedTuple):
    """One holder (token above 0) or waiter (token 0)."""

    id: int
    session: int
    process: str
    weight: int
    ordinal: int
    token: int


@dataclass(slots=True)
class Line:
    """The state of one key; written back by `Holds._save`. `head` is the ordinal of its head, once it was looked up."""

    key: str
    id: int
    capacity: int
    fixed: bool = False
    used: int = 0
    ordinal: int = 0
    held: int = 0
    waiting: int = 0
    head: int | None = None


class Holds:
    """The family of holds."""

    def __init__(self, state: State) -> None:
        self._state = state

    def acquire(self, op: Acquire) -> HoldAnswer:
        state = self._state
        session = state.session(op.session)
        if session is None:
            return Reply.GONE
        line = self._line(op.key)
        if line is None:
            line = self._new_line(op.key, op.capacity)
        elif (known := self._stand(line, op.holder)) is not Reply.UNKNOWN:
            return known
        if line.capacity != op.capacity:
            return Mismatch(line.capacity)
        fits = not line.waiting and line.used + op.weight <= line.capacity
        if not fits and not op.wait:
            self._save(line)
            return Reply.REFUSED
        line.ordinal += 1
        token = 0
        if fits:
            token = state.token()
            line.used += op.weight
            line.held += 1
            self._changed(op.key)
        else:
            line.waiting += 1
        state.run(
            HOLDS.new_hold,
            line=line.id,
            holder=op.holder,
            session=session.id,
            weight=op.weight,
            value=op.value,
            ordinal=line.ordinal,
            since=state.wall,
            token=token,
        )
        self._save(line)
        return Granted(token) if fits else self._stand(line, op.holder)

    def ask(self, op: Ask) -> Asked | Reply:
        if self._state.session(op.session) is None:
            return Reply.GONE
        line = self._line(op.key)
        if line is None:
            return Asked((Reply.UNKNOWN,) * len(op.holders))
        return Asked(tuple(self._stand(line, holder) for holder in op.holders))

    def release(self, op: Release) -> Reply:
        line = self._line(op.key)
        hold = self._hold(line, op.holder) if line else None
        if line is None or hold is None:
            return Reply.UNKNOWN
        return self._remove(line, hold)

    def drop(self, thing: Any) -> None:
        """The session that held or waited has ended."""
        key, holder = thing
        self.release(Release(key, holder))

    def set_value(self, op: SetValue) -> Reply:
        line = self._line(op.key)
        hold = self._hold(line, op.holder) if line else None
        if hold is None or not hold.token or hold.token != op.token:
            return Reply.REFUSED
        self._state.run(HOLDS.set_value, id=hold.id, value=op.value)
        self._changed(op.key)
        return Reply.OK

    def break_hold(self, op: BreakHold) -> Reply:
        line = self._line(op.key)
        hold = self._hold(line, op.holder) if line else None
        if line is None or hold is None or not hold.token or hold.token != op.token:
            return Reply.REFUSED
        self._state.hint(hold.process, op.key, op.holder, Notice.BROKEN)
        self._remove(line, hold)
        return Reply.OK

    def resize(self, op: Resize) -> Reply:
        line = self._line(op.key) or self._new_line(op.key, op.capacity)
        line.capacity, line.fixed = op.capacity, True
        self._serve(line)
        return Reply.OK

    def holders(self, op: Holders) -> Holdings | Reply:
        state = self._state
        if op.watch:
            session = state.session(op.watch)
            if session is None:
                return Reply.GONE
            state.watch("hold", op.key, 0, session)
        line = self._line(op.key)
        if line is None:
            return Holdings(0, 0, (), ())
        held = state.all(HOLDS.holders, line=line.id, limit=op.limit)
        waiting = state.all(HOLDS.waiting, line=line.id, limit=op.limit)
        return Holdings(
            line.capacity, line.used, tuple(map(self._show, held)), tuple(map(self._show, waiting))
        )

    def go_on(self) -> None:
        """Serve the lines whose serving was cut short."""
        state = self._state
        keys = state.all(HOLDS.unserved)
        state.run(HOLDS.forget_unserved)
        state.unserved = False
        for (key,) in keys:
            if (line := self._line(key)) is not None:
                self._serve(line)

    def _serve(self, line: Line) -> None:
        """Grant to the head of the line for as long as it fits; keep the line."""
        state = self._state
        while line.waiting:
            hold, holder, process, weight = state.one(HOLDS.first, line=line.id)
            too_big = weight > line.capacity
            if not too_big and line.used + weight > line.capacity:
                break
            if not state.step():
                state.run(HOLDS.note_unserved, key=line.key)
                state.unserved = True
                break
            line.waiting -= 1
            if too_big:
                state.run(HOLDS.delete_hold, id=hold)
                state.hint(process, line.key, holder, Notice.ASK)
            else:
                token = state.token()
                state.run(HOLDS.grant, id=hold, since=state.wall, token=token)
                line.used += weight
                line.held += 1
                self._changed(line.key)
                state.hint(process, line.key, holder, Granted(token))
        self._save(line)

    def _remove(self, line: Line, hold: Hold) -> Reply:
        self._state.run(HOLDS.delete_hold, id=hold.id)
        if hold.token:
            line.held -= 1
            line.used -= hold.weight
            self._changed(line.key)
        else:
            line.waiting -= 1
        self._serve(line)
        return Reply.RELEASED if hold.token else Reply.LEFT

    def _stand(self, line: Line, holder: str) -> HoldAnswer:
        hold = self._hold(line, holder)
        if hold is None:
            return Reply.UNKNOWN
        if hold.token:
            return Granted(hold.token)
        if line.head is None:
            line.head = self._state.one(HOLDS.head, line=line.id)[0]
            assert line.head is not None
        return Queued(hold.ordinal - line.head + 1, self._state.ask_again_in())

    def _show(self, row: Any) -> Holder:
        process, holder, token, weight, value, since = row
        return Holder(process, holder, token, weight, value, seconds(self._state.wall - since))

    def _changed(self, key: str) -> None:
        self._state.fire("hold", key, Notice.CHANGED)

    def _line(self, key: str) -> Line | None:
        row = self._state.one(HOLDS.line, key=key)
        return row and Line(key, *row)

    def _hold(self, line: Line, holder: str) -> Hold | None:
        row = self._state.one(HOLDS.hold, line=line.id, holder=holder)
        return row and Hold(*row)

    def _new_line(self, key: str, capacity: int) -> Line:
        row_id = self._state.run(HOLDS.new_line, key=key, capacity=capacity).lastrowid
        assert row_id is not None
        return Line(key, row_id, capacity)

    def _save(self, line: Line) -> None:
        if not line.held and not line.waiting and not line.fixed:
            self._state.run(HOLDS.delete_line, id=line.id)
            return
        self._state.run(
            HOLDS.save_line,
            id=line.id,
            capacity=line.capacity,
            fixed=line.fixed,
            used=line.used,
            ordinal=line.ordinal,
            held=line.held,
            waiting=line.waiting,
        )
