from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import inf

import anyio

import tenure.engine as e
from tenure.errors import StoreClosed
from tenure.store import Session, StoreHandle
from tenure.waiting import Line, now

from ._lanes import RateLimits
from ._spender import Spender

RESTING = 128
"""The number of idle spenders that are kept, since making one takes as long as an operation."""


class Spenders:
    def __init__(self, store: StoreHandle) -> None:
        self.store: StoreHandle = store
        self.closed = False
        self._by_key: dict[str, Spender] = {}
        self._resting: list[Spender] = []
        self._keeps_time = False
        self._times: list[tuple[float, int, Spender]] = []
        self._numbers = count()
        self._alarm: anyio.CancelScope | None = None
        self._pausing: Line[None, None] = Line(owner="a rate limiter")
        self.holding_off: Line[float, None] = Line(owner="a rate limiter")

    def of(self, key: str) -> Spender:
        self.store.home.check()
        if self.closed:
            raise StoreClosed("the store is closed")
        return self._by_key.get(key) or self._make(key)

    async def pause(self, seconds: float) -> None:
        if self.closed:
            raise StoreClosed("the store was closed")
        with anyio.move_on_after(seconds):
            await self._pausing.wait(self._pausing.join(None))

    def look_again(self) -> None:
        while (waiter := self._pausing.head()) is not None:
            self._pausing.grant(waiter, None)

    def correct(self, key: str, limits: RateLimits, request: e.RefundRequest) -> None:
        if not self.closed:
            (self._by_key.get(key) or self._make(key)).refund(limits, request)
        else:
            self.report(key, StoreClosed("the store was closed"))

    def wanted(self, key: str) -> dict[str, float]:
        spender = self._by_key.get(key)
        return {} if spender is None else spender.lanes.wanted()

    def report(self, key: str, error: Exception) -> None:
        self.store.reporter.warn("limiter.correction_failed", key=key, error=error)

    def on_hint(self, hint: e.Hint) -> None:
        if hint.news is e.Notice.MISSED:
            for spender in list(self._by_key.values()):
                spender.check()
        elif spender := self._by_key.get(hint.key):
            spender.check()

    def on_found(self, session: Session, item: e.SessionItem) -> None:
        """Do nothing: a limiter leaves no items in a session."""

    def close(self) -> None:
        self.closed = True
        for line in (self._pausing, self.holding_off):
            line.fail_all(lambda: StoreClosed("the store was closed"))
        for spender in list(self._by_key.values()):
            # bookings end with the session
            spender.lanes.fail_all(lambda: StoreClosed("the store was closed"))
        if self._alarm is not None:
            self._alarm.cancel()

    def wake(self, spender: Spender, time: float) -> None:
        if time < spender.wakes_at:
            spender.wakes_at = time
            heappush(self._times, (time, next(self._numbers), spender))
            if self._alarm is not None and time < self._alarm.deadline:
                self._alarm.deadline = time

    def of_its_key(self, spender: Spender) -> Spender:
        return self._by_key.setdefault(spender.key, spender)

    def rests(self, spender: Spender) -> None:
        if not spender.rests:
            spender.rests = True
            self._resting.append(spender)
            if len(self._resting) > RESTING:
                for rested in self._resting:
                    rested.rests = False
                    if rested.is_idle and self._by_key.get(rested.key) is rested:
                        del self._by_key[rested.key]
                self._resting.clear()

    def _make(self, key: str) -> Spender:
        if not self._keeps_time:
            # not when it is needed: callbacks of a loop start no job
            self.store.start_job("limiters", self._keep_time)
            self._keeps_time = True
        self._by_key[key] = spender = Spender(self, key)
        return spender

    async def _keep_time(self) -> None:
        while not self.closed:
            with anyio.CancelScope(deadline=self._times[0][0] if self._times else inf) as self._alarm:
                await anyio.sleep_forever()
            self._alarm = None
            while self._times and self._times[0][0] <= now():
                time, _, spender = heappop(self._times)
                if spender.wakes_at == time:
                    spender.wakes_at = inf
                    spender.on_time()
