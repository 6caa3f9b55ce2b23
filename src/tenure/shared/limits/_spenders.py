"""The spendings of a process on its limiters: batched by key, and waited for here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

import anyio

from tenure.engine import (
    CAP,
    LIMITER,
    ROUNDING,
    Hint,
    HoldOff,
    LimiterStatus,
    Notice,
    Operation,
    Page,
    RateLimit,
    Refund,
    RefundRequest,
    Reply,
    Scan,
    SessionItem,
    Spend,
    Spending,
    SpendRequest,
)
from tenure.errors import OutcomeUnknown, StoreClosed
from tenure.store import Batcher, Session, Store, outcome_of
from tenure.waiting import Line, Waiter, now

RateLimits = tuple[RateLimit, ...]
_TAKEN_BACK = "nothing was spent: a late booking is given back"
_MAY_BE_HELD_OFF = f"the hold {outcome_of(sent=True)}"


class _Wanted(NamedTuple):
    limits: RateLimits
    request: SpendRequest


class _Back(NamedTuple):
    """A refund on its way. The latest bookings come first."""

    order: float
    number: int
    limits: RateLimits
    request: RefundRequest


class Spenders:
    """The spenders of this process. There is one for each key that is in use: idle keys take no memory."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.closed = False
        self._by_key: dict[str, _Spender] = {}
        self._pausing: Line[None, None] = Line(lambda _: None)
        self.holding_off: Line[float, None] = Line(lambda _: None)
        self.looking: Line[None, None] = Line(lambda _: None)

    async def spend(
        self, key: str, limits: RateLimits, request: SpendRequest, *, prompt: bool = False
    ) -> Spending:
        """Book the cost; if it was booked, wait until it is due. `prompt`: do not wait while the store is away."""
        self._check()
        return await self.of(key).spend(_Wanted(limits, request), prompt)

    async def pause(self, seconds: float) -> None:
        """Sleep for so many seconds. Raises `StoreClosed` if the store closes meanwhile."""
        if self.closed:
            raise StoreClosed("the store was closed")
        with anyio.move_on_after(seconds):
            await self._pausing.wait(self._pausing.join(None))

    def wake(self) -> None:
        """Have all that sleep look again, since a hold has ended early."""
        while (waiter := self._pausing.head()) is not None:
            self._pausing.grant(waiter, None)

    def refund(self, key: str, limits: RateLimits, request: RefundRequest) -> None:
        """Give a booking back or correct it, in one of the next batches of its key."""
        if not self.closed:
            self.of(key).refund(limits, request)
        elif request.amounts:
            self.report(key, StoreClosed("the store was closed"))

    async def hold_off(self, key: str, seconds: float) -> None:
        """Stop all callers in all processes for so many seconds, or no longer."""
        self._check()
        await self.of(key).hold_off(seconds)

    def report(self, key: str, error: Exception) -> None:
        """Report corrections that could not be booked."""
        self.store.reporter.warn("limiter.correction_failed", key=key, error=error)

    def on_hint(self, hint: Hint) -> None:
        """Pass the hint on to the spender of its key. MISSED goes to all spenders."""
        if hint.news is Notice.MISSED:
            for spender in list(self._by_key.values()):
                spender.check()
        elif spender := self._by_key.get(hint.key):
            spender.check()

    def on_found(self, session: Session, item: SessionItem) -> None:
        """Do nothing: a limiter leaves no items in a session."""

    def close(self) -> None:
        """End all waits: the store closes."""
        self.closed = True
        lines = (self._pausing, self.holding_off, self.looking)
        for line in (*lines, *(spender.booked for spender in self._by_key.values())):
            line.fail_all(lambda: StoreClosed("the store was closed"))

    def of(self, key: str) -> _Spender:
        """The spender of a key, made if there is none."""
        spender = self._by_key.get(key)
        if spender is None:
            spender = self._by_key[key] = _Spender(self, key)
        return spender

    def forget(self, key: str, spender: _Spender) -> None:
        """Remove a spender that is idle."""
        if self._by_key.get(key) is spender:
            del self._by_key[key]

    def _check(self) -> None:
        self.store.home.check()
        if self.closed:
            raise StoreClosed("the store is closed")


class _Spender:
    """The operations of this process on one key. Calls that come while a batch is under way form the next one."""

    def __init__(self, spenders: Spenders, key: str) -> None:
        self._key = key
        self._spenders = spenders
        self._turns = Batcher(spenders.store, key, spenders.store.ttl, self)
        self._numbers = count()
        self._gathered: deque[Waiter[_Wanted, Spending]] = deque()
        self._holds: deque[Waiter[float, None]] = deque()
        self._backs: list[_Back] = []
        # the operation under way
        self._spends: list[Waiter[_Wanted, Spending]] = []
        self._holding: list[Waiter[float, None]] = []
        self._refunds: list[_Back] = []
        # callers that wait for their bookings, and the last known hold-off
        self.booked: Line[_Wanted, Spending] = Line(self._left)
        self._waiting = 0
        self._held = 0.0
        self._checks = 0
        self._looked = 0
        self._spent = 0
        self._until_looked: list[Waiter[None, None]] = []

    async def spend(self, wanted: _Wanted, prompt: bool) -> Spending:
        self._turns.schedule()
        waiter = self.booked.join(wanted)
        self._gathered.append(waiter)
        if prompt:
            spending = await self._turns.answered(self.booked, waiter, lambda: _TAKEN_BACK)
        else:
            spending = await self.booked.wait(waiter)
        if _waits(spending):
            try:
                await self._due(spending)
            except BaseException:
                self._spenders.refund(self._key, wanted.limits, RefundRequest(spending.bookings))
                raise
            finally:
                self._go(1)
        return spending

    async def hold_off(self, seconds: float) -> None:
        self._turns.schedule()
        waiter = self._spenders.holding_off.join(seconds)
        self._holds.append(waiter)
        await self._turns.answered(self._spenders.holding_off, waiter, lambda: _MAY_BE_HELD_OFF)

    def refund(self, limits: RateLimits, request: RefundRequest) -> None:
        # the latest first: only the last booking can be given back whole, and then the one before it is the last
        last = max(booking.end for booking in request.bookings)
        heappush(self._backs, _Back(-last, next(self._numbers), limits, request))
        self._turns.schedule()

    def check(self) -> None:
        """Check whether the limiter was held off: callers that wait stay until the answer has come."""
        if self._waiting or self._spends:
            self._checks += 1
            spent = -1 if self._spends else self._spent
            self._spenders.store.send(Scan(LIMITER, self._key), partial(self._on_check, self._checks, spent))

    # waiting for bookings

    async def _due(self, spending: Spending) -> None:
        due = now() + spending.delay
        while True:
            # the time for which it was held off since the booking delays it by as much; a hold may also end early
            left = due + self._held - spending.held - now()
            if left > ROUNDING:
                await self._spenders.pause(left)
            elif self._looked < self._checks:
                waiter = self._spenders.looking.join(None)
                self._until_looked.append(waiter)
                await self._spenders.looking.wait(waiter)
            else:
                return

    def _hear(self, held: float) -> None:
        """Hear for how long the limiter was held off so far."""
        ended, self._held = held < self._held, held
        if ended:
            self._spenders.wake()

    def _go(self, count: int) -> None:
        self._waiting -= count
        if not self._waiting and not self._turns.busy:
            self._go_on()

    def _on_check(self, number: int, spent: int, answer: Page[LimiterStatus] | Reply | Exception) -> None:
        if isinstance(answer, Page):
            (status,) = answer.rows
            if status.held >= self._held or spent == self._spent:
                self._hear(status.held)
            else:
                self.check()  # the answer to a spending may be newer
        elif not isinstance(answer, StoreClosed):
            self._spenders.store.reporter.warn("limiter.look_failed", key=self._key, error=answer)
        self._looked = max(self._looked, number)
        if self._looked == self._checks:
            for waiter in self._until_looked:
                self._spenders.looking.grant(waiter, None)
            self._until_looked.clear()
            if not self._turns.busy:
                self._go_on()

    # what the batcher asks

    def next_operation(self, session: Session, n: int) -> Operation[Any] | None:
        # refunds first: a spending booked before them would wait longer, and less could be given back
        if self._backs:
            return self._next_refund(session, n)
        if self._holds and (hold := self._next_hold(session, n)):
            return hold
        spend = self._next_spend(session, n)
        if spend is None:
            self._go_on()
        return spend

    def _next_refund(self, session: Session, n: int) -> Refund:
        while self._backs and len(self._refunds) < CAP:
            if self._refunds and self._refunds[0].limits != self._backs[0].limits:
                break
            self._refunds.append(heappop(self._backs))
        requests = tuple(back.request for back in self._refunds)
        return Refund(session.id, n, self._key, requests, self._refunds[0].limits)

    def _next_hold(self, session: Session, n: int) -> HoldOff | None:
        while self._holds:
            if self._holds[0].waiting:
                if self._holding and bool(self._holds[0].want) is not bool(self._holding[0].want):
                    break  # an end and a hold are two operations
                self._holding.append(self._holds[0])
            self._holds.popleft()
        if not self._holding:
            return None
        return HoldOff(session.id, n, self._key, max(waiter.want for waiter in self._holding))

    def _next_spend(self, session: Session, n: int) -> Spend | None:
        limits: RateLimits | None = None
        while self._gathered and len(self._spends) < CAP:
            waiter = self._gathered[0]
            if waiter.waiting:
                if limits not in (None, waiter.want.limits):
                    break
                limits = waiter.want.limits
                self._spends.append(waiter)
            self._gathered.popleft()
        if limits is None:
            return None
        return Spend(
            session.id, n, self._key, tuple([waiter.want.request for waiter in self._spends]), limits
        )

    def on_answer(self, session: Session, answer: Any) -> None:
        del session
        spends, holding = self._take_out()
        if holding:
            self.check()  # the hint to this process comes by another connection, perhaps later
            if not holding[0].want:
                self._spenders.wake()
        for holder in holding:
            self._spenders.holding_off.grant(holder, None)
        if spends:
            self._spent += 1
            self._hear(answer.answers[-1].held)
            for waiter, spending in zip(spends, answer.answers, strict=True):
                self._waiting += _waits(spending)
                if not self.booked.grant(waiter, spending):
                    self._take_back(waiter.want, spending)
        self._turns.schedule()

    def on_session_lost(self, *, resent: bool) -> None:
        # holding off twice is the same as holding off once, a little later
        self._holds.extendleft(reversed(self._holding))
        self._holding = []
        if resent:
            self._fail(partial(OutcomeUnknown, self._key, "spending"))
            return
        self._gathered.extendleft(reversed(self._spends))
        for back in self._refunds:
            heappush(self._backs, back)
        self._take_out()
        self._turns.schedule()

    def on_error(self, error: Exception, session: Session | None) -> None:
        if session is None:
            self._spends += self._gathered
            self._holding += self._holds
            self._refunds += self._backs
            self._gathered.clear()
            self._holds.clear()
            self._backs.clear()
        self._fail(lambda: type(error)(*error.args))

    # inside

    def _go_on(self) -> None:
        """Send the gathered requests, or remove this spender if it is idle. Nothing is under way."""
        if self._gathered or self._holds or self._backs:
            self._turns.schedule()
        elif not self._waiting and self._looked == self._checks:
            self._spenders.forget(self._key, self)

    def _take_out(self) -> tuple[list[Waiter[_Wanted, Spending]], list[Waiter[float, None]]]:
        """Return the requests that were under way, and forget them."""
        spends, holding = self._spends, self._holding
        self._spends, self._holding, self._refunds = [], [], []
        return spends, holding

    def _left(self, waiter: Waiter[_Wanted, Spending]) -> None:
        if waiter.granted:
            self._take_back(waiter.want, waiter.value)

    def _take_back(self, wanted: _Wanted, spending: Spending) -> None:
        if spending.booked:
            # not `self.refund`: another spender may have replaced this one meanwhile
            self._spenders.refund(self._key, wanted.limits, RefundRequest(spending.bookings))
            self._go(_waits(spending))

    def _fail(self, make_error: Callable[[], Exception]) -> None:
        if any(back.request.amounts for back in self._refunds):
            self._spenders.report(self._key, make_error())
        spends, holding = self._take_out()
        for waiter in spends:
            self.booked.fail(waiter, make_error())
        for holder in holding:
            self._spenders.holding_off.fail(holder, make_error())
        self._go_on()


def _waits(spending: Spending) -> bool:
    return spending.booked and spending.delay > ROUNDING
