from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, NamedTuple, Protocol

import tenure.engine as e
from tenure.errors import OutcomeUnknown, StoreClosed
from tenure.store import Batcher, Session, StoreHandle, outcome_of
from tenure.waiting import Expired, Line, Waiter, now

from ._lane import HORIZON, PATIENCE, Lane, LanePlace, Spot
from ._lanes import Lanes, RateLimits

_TAKEN_BACK = "nothing was spent: a late booking is given back"
_MAY_BE_HELD_OFF = f"the hold {outcome_of(sent=True)}"


class _Back(NamedTuple):
    order: float
    number: int
    limits: RateLimits
    request: e.RefundRequest


class Process(Protocol):
    store: StoreHandle
    holding_off: Line[float, None]

    def of_its_key(self, spender: Spender) -> Spender: ...
    def rests(self, spender: Spender) -> None: ...
    def wake(self, spender: Spender, time: float) -> None: ...
    def look_again(self) -> None: ...
    def report(self, key: str, error: Exception) -> None: ...


class Spender:
    """The operations of this process on one key; calls that come while a batch is under way form the next."""

    def __init__(self, spenders: Process, key: str) -> None:
        self.key: str = key
        self._spenders = spenders
        self._turns = Batcher(spenders.store, key, spenders.store.ttl, self)
        self._numbers = count()
        self.lanes: Lanes = Lanes(self._give_back, self._turns.schedule)
        self._at_once: deque[Spot] = deque()
        self._holds: deque[Waiter[float, None]] = deque()
        self._backs: list[_Back] = []
        # the operation under way
        self._spends: list[Spot] = []
        self._requests: tuple[e.SpendRequest, ...] = ()
        self._holding: list[Waiter[float, None]] = []
        self._refunds: list[_Back] = []
        self._sent = 0.0
        self._checks = 0
        self._looked = 0
        self._spent = 0
        self._answered_at = -inf
        self.wakes_at: float = inf
        self.rests: bool = False

    def spend(self, place: LanePlace, fail_fast: bool = False) -> Awaitable[e.Spending]:
        if place.deadline == -inf:
            line = self.lanes.at_once
            spot = line.join(place)
            self._at_once.append(spot)
            self._turns.schedule()
            return self._turns.answered(line, spot, lambda: _TAKEN_BACK)
        lane = self.lanes.of(place)
        if fail_fast:
            return self._spend_in_time(lane, place)
        return lane.line.wait(self._join(lane, place))

    async def _spend_in_time(self, lane: Lane, place: LanePlace) -> e.Spending:
        while (delay := lane.delay(place, self.lanes.held)) <= place.left():
            spot, asked = self._join(lane, place), now()
            try:
                return await lane.line.wait(spot, self._turns.patience + delay)
            except Expired:
                # the turn may take longer than was known, as others spend too; but the store has to answer
                if self._answered_at < asked:
                    raise self._turns.no_answer(_TAKEN_BACK) from None
            lane, place = self.lanes.of(place), LanePlace(place.limits, place.costs, place.deadline)
        return e.Spending(False, delay, self.lanes.held, ())

    def _join(self, lane: Lane, place: LanePlace) -> Spot:
        spot = lane.join(place)
        if lane.ask_at == -inf or self.lanes.asks(lane):
            self._turns.schedule()
        elif not self._turns.busy:
            self._set_alarm()
        return spot

    async def hold_off(self, seconds: float) -> None:
        self._turns.schedule()
        waiter = self._spenders.holding_off.join(seconds)
        self._holds.append(waiter)
        await self._turns.answered(self._spenders.holding_off, waiter, lambda: _MAY_BE_HELD_OFF)

    def refund(self, limits: RateLimits, request: e.RefundRequest) -> None:
        # the latest first: only the last booking can be given back, and then the booking before it is the last
        last = max(booking.end for booking in request.bookings)
        heappush(self._backs, _Back(-last, next(self._numbers), limits, request))
        self._turns.schedule()

    def _give_back(self, limits: RateLimits, request: e.RefundRequest) -> None:
        # whom a caller leaves that was granted something may have been forgotten, and replaced
        self._spenders.of_its_key(self).refund(limits, request)

    def check(self) -> None:
        if self._spends or self.lanes.books:
            self._checks += 1
            self.lanes.is_checked = False
            spent = -1 if self._spends else self._spent
            self._spenders.store.send(
                e.Scan(e.LIMITER, self.key), partial(self._on_check, self._checks, spent)
            )

    def _on_check(
        self, number: int, spent: int, answer: e.Page[e.LimiterStatus] | e.Reply | Exception
    ) -> None:
        if isinstance(answer, e.Page):
            (status,) = answer.rows
            if status.held >= self.lanes.held or spent == self._spent:
                self._hear(status.held)
            else:
                self.check()  # the answer to a spending may be newer
        elif not isinstance(answer, StoreClosed):
            self._spenders.store.reporter.warn("limiter.look_failed", key=self.key, error=answer)
        self._looked = max(self._looked, number)
        self.lanes.is_checked = self._looked == self._checks
        self._go_on()

    def _hear(self, held: float) -> None:
        ended, self.lanes.held = held < self.lanes.held, held
        if ended:
            self._spenders.look_again()
            self._set_alarm()
            self._turns.schedule()

    # time

    def on_time(self) -> None:
        self.lanes.let_go()
        self._go_on(asked=not self.lanes.any_asks())

    def _set_alarm(self) -> None:
        self._spenders.wake(self, self.lanes.next_time(busy=self._turns.busy))

    # what the batcher asks

    def next_operation(self, session: Session, n: int) -> e.Operation[Any] | None:
        self.lanes.settle()
        # refunds first: a spending booked before them would wait longer, and less could be given back
        if self._backs:
            return self._next_refund(session, n)
        if self._holds and (hold := self._next_hold(session, n)):
            return hold
        spend = self._next_spend(session, n)
        if spend is None:
            self._go_on(asked=True)
        return spend

    def _next_refund(self, session: Session, n: int) -> e.Refund:
        while self._backs and len(self._refunds) < e.CAP:
            if self._refunds and self._refunds[0].limits != self._backs[0].limits:
                break
            self._refunds.append(heappop(self._backs))
        requests = tuple(back.request for back in self._refunds)
        return e.Refund(session.id, n, self.key, requests, self._refunds[0].limits)

    def _next_hold(self, session: Session, n: int) -> e.HoldOff | None:
        while self._holds:
            if self._holds[0].waiting:
                if self._holding and bool(self._holds[0].want) is not bool(self._holding[0].want):
                    break  # an end and a hold are two operations
                self._holding.append(self._holds[0])
            self._holds.popleft()
        if not self._holding:
            return None
        return e.HoldOff(session.id, n, self.key, max(waiter.want for waiter in self._holding))

    def _next_spend(self, session: Session, n: int) -> e.Spend | None:
        spends = self.lanes.ask(e.CAP - min(len(self._at_once), e.CAP // 2))
        while self._at_once and len(spends) < e.CAP:
            spot = self._at_once[0]
            if spot.waiting:
                if spends and spends[0].want.limits != spot.want.limits:
                    break
                spends.append(spot)
            self._at_once.popleft()
        if not spends:
            return None
        self._sent, self._spends = now(), spends
        requests: list[e.SpendRequest] = []
        last = None
        for spot in spends:
            place = spot.want
            if last is None or place.deadline != inf or place.costs is not last.costs:
                last = place.request()
            requests.append(last)
            if place.deadline != inf:
                last = None
        self._requests = tuple(requests)
        return e.Spend(session.id, n, self.key, self._requests, spends[0].want.limits, self.lanes.horizon)

    def on_answer(self, session: Session, answer: Any) -> None:
        self._answered_at = now()
        requests = self._requests
        spends, holding = self._take_out()
        if holding:
            self.check()  # the hint to this process comes by another connection, perhaps later
            if not holding[0].want:
                self._spenders.look_again()
            for holder in holding:
                self._spenders.holding_off.grant(holder, None)
        if spends:
            horizon = HORIZON + 2 * (self._answered_at - self._sent)
            # a single late answer must not have this process book seconds ahead of the others
            self.lanes.horizon = min(horizon, max(PATIENCE, 2 * self.lanes.horizon))
            self._spent += 1
            self._hear(answer.answers[-1].held)
            answers = zip(spends, requests, answer.answers, strict=True)
            self.lanes.answered(session, answers)
        self._go_on()

    def on_session_lost(self, *, resent: bool) -> None:
        # holding off twice is the same as holding off once, a little later
        self._holds.extendleft(reversed(self._holding))
        self._holding = []
        # bookings have ended with the session; corrections have not
        refunds, self._refunds = [back for back in self._refunds if back.request.amounts], []
        self._backs = [back for back in self._backs if back.request.amounts]
        heapify(self._backs)
        self.lanes.drop_lost()
        if resent:
            self._refunds = refunds
            self._fail(partial(OutcomeUnknown, self.key, "spending"))
            return
        for back in refunds:
            heappush(self._backs, back)
        self._at_once.extendleft([spot for spot in reversed(self._spends) if spot.want.lane is None])
        self._take_out()
        self._turns.schedule()

    def on_error(self, error: Exception, session: Session | None) -> None:

        def make_error() -> Exception:
            return type(error)(*error.args)

        if session is None:
            self._holding += self._holds
            self._refunds += self._backs
            self._at_once.clear()
            self._holds.clear()
            self._backs.clear()
            self.lanes.fail_all(make_error)
        self._fail(make_error)

    # inside

    @property
    def is_idle(self) -> bool:
        return not (
            self._turns.busy
            or self._at_once
            or self._holds
            or self._backs
            or self.lanes.wait
            or self._looked < self._checks
        )

    def _go_on(self, *, asked: bool = False) -> None:
        waits = self.lanes.wait
        if waits:
            self._set_alarm()  # also where something is sent: slots may be due before the answer comes
        if self._at_once or self._holds or self._backs or (waits and not asked):
            self._turns.schedule()
        elif not (waits or self._turns.busy) and self._looked == self._checks:
            self.lanes.rest()
            self._spenders.rests(self)

    def _take_out(self) -> tuple[list[Spot], list[Waiter[float, None]]]:
        spends, holding = self._spends, self._holding
        self._spends, self._requests, self._holding, self._refunds = [], (), [], []
        return spends, holding

    def _fail(self, make_error: Callable[[], Exception]) -> None:
        if any(back.request.amounts for back in self._refunds):
            self._spenders.report(self.key, make_error())
        spends, holding = self._take_out()
        for spot in spends:
            self.lanes.fail(spot, make_error())
        for holder in holding:
            self._spenders.holding_off.fail(holder, make_error())
        self._go_on()
