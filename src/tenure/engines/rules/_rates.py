"""Rates: spending from limiters (GCRA, ITU-T I.371)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, takewhile
from math import inf

import tenure.engine as e

from ._state import State
from ._tables import Layout, Order, Table


@dataclass(slots=True)
class LimiterRow:
    key: str
    until: float
    limiter: e.Limiter


@dataclass(slots=True)
class LimiterWaiter:
    key: str
    process: str
    due: float


LIMITERS = Layout("limiter", LimiterRow, ("key",), until=Order((), ("until", "key")))
LIMITER_WAITERS = Layout(
    "limiter_waiter", LimiterWaiter, ("key", "process"), due=Order(("key",), ("due", "process"))
)


class Rates:
    def __init__(self, state: State) -> None:
        self._state = state
        self._limiters: Table[LimiterRow] = state.table(LIMITERS)
        self._waiters: Table[LimiterWaiter] = state.table(LIMITER_WAITERS)

    def spend(self, op: e.Spend) -> e.SpendResults | e.Reply:
        state = self._state
        known = state.cached_reply(op.session, op.n, name := f"spend {op.key}")
        if known is not None:
            return known
        row = self._row(op.key)
        limiter = row.limiter
        limiter.drop_ended(op.limits, state.session, state.now)
        answer = e.SpendResults(limiter.spend(op.limits, op.requests, state.now, op.session, op.horizon))
        if any(spending.booked and spending.delay > 0 for spending in answer.answers):
            session = state.session(op.session)
            assert session is not None
            self._forget_waiters(op.key, limiter.time(state.now))
            known = self._waiters.get(op.key, session.process)
            if known is not None:
                self._waiters.remove(known)
            self._waiters.save(LimiterWaiter(op.key, session.process, limiter.last_due))
        self._keep(row)
        state.cache_reply(op.session, op.n, name, answer)
        return answer

    def refund(self, op: e.Refund) -> e.Reply:
        state = self._state
        known = state.cached_reply(op.session, op.n, name := f"spend {op.key}")
        if known is not None:
            return known
        row = self._row(op.key)
        for request in op.requests:
            row.limiter.refund(op.limits, request, state.now, op.session)
        self._keep(row)
        state.cache_reply(op.session, op.n, name, e.Reply.OK)
        return e.Reply.OK

    def hold_off(self, op: e.HoldOff) -> e.Reply:
        state = self._state
        known = state.cached_reply(op.session, op.n, name := f"spend {op.key}")
        if known is not None:
            return known
        row = self._row(op.key)
        time = row.limiter.time(state.now)
        if row.limiter.hold_off(op.seconds, state.now):
            self._forget_waiters(op.key, time)
            for process in sorted(waiter.process for waiter in self._waiters.each("due", op.key)):
                state.hint(process, op.key, "", e.Notice.HELD)
        self._keep(row)
        state.cache_reply(op.session, op.n, name, e.Reply.OK)
        return e.Reply.OK

    def limiter(self, op: e.Scan[e.Page[e.LimiterStatus]]) -> e.Page[e.LimiterStatus]:
        return e.Page((self._row(op.key).limiter.status(self._state.now),))

    def forget(self, count: int) -> None:
        state = self._state
        rows = islice(self._limiters.each("until"), count)
        for row in list(takewhile(lambda row: row.until <= state.now, rows)):
            self._keep(row)
        first = self._limiters.first("until")
        state.wake_at("limiter", None)
        state.wake_at("limiter", inf if first is None else first.until)

    def _row(self, key: str) -> LimiterRow:
        row = self._limiters.get(key) or LimiterRow(key, 0.0, e.Limiter())
        if not row.limiter.is_used(self._state.now):
            row.limiter = e.Limiter()
        return row

    def _keep(self, row: LimiterRow) -> None:
        now, until = self._state.now, row.limiter.used_until()
        if until <= now:
            if row.until:
                self._forget(row)
            return
        if 0 < row.until <= now:
            self._limiters.move(row, until=until, limiter=row.limiter)
        else:
            row.until = row.until or until
            self._limiters.save(row)
        self._state.wake_at("limiter", row.until)

    def _forget(self, row: LimiterRow) -> None:
        self._limiters.remove(row)
        self._forget_waiters(row.key, inf)

    def _forget_waiters(self, key: str, time: float) -> None:
        while (waiter := self._waiters.first("due", key)) is not None and waiter.due < time:
            self._waiters.remove(waiter)
