"""The spendings of a process on its limiters: who waits stands in a line here, and little is booked ahead for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
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
)
from tenure.errors import OutcomeUnknown, StoreClosed
from tenure.store import Batcher, Session, Store, outcome_of
from tenure.waiting import Expired, Line, Waiter, now

from ._lane import HORIZON, Lane, Place, Slot, Spot

RateLimits = tuple[RateLimit, ...]
_TAKEN_BACK = "nothing was spent: a late booking is given back"
_MAY_BE_HELD_OFF = f"the hold {outcome_of(sent=True)}"


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
        self._keeps_time = False
        self._times: list[tuple[float, int, _Spender]] = []
        self._numbers = count()
        self._alarm: anyio.CancelScope | None = None
        self._pausing: Line[None, None] = Line(lambda _: None)
        self.holding_off: Line[float, None] = Line(lambda _: None)

    async def spend(self, key: str, place: Place, fail_fast: bool = False) -> Spending:
        """Spend what the place wants as soon as it is due. Not booked: its deadline leaves too little time for that."""
        self._check()
        if not self._keeps_time:
            # not when it is needed: callbacks of a loop start no job
            self.store.start_job("limiters", self._keep_time)
            self._keeps_time = True
        return await self.of(key).spend(place, fail_fast)

    async def pause(self, seconds: float) -> None:
        """Sleep for so many seconds. Raises `StoreClosed` if the store closes meanwhile."""
        if self.closed:
            raise StoreClosed("the store was closed")
        with anyio.move_on_after(seconds):
            await self._pausing.wait(self._pausing.join(None))

    def look_again(self) -> None:
        """Have all that sleep until their deadline look again, since a hold has ended early."""
        while (waiter := self._pausing.head()) is not None:
            self._pausing.grant(waiter, None)

    def correct(self, key: str, limits: RateLimits, request: RefundRequest) -> None:
        """Correct a booking, in one of the next batches of its key."""
        if not self.closed:
            self.of(key).refund(limits, request)
        else:
            self.report(key, StoreClosed("the store was closed"))

    async def hold_off(self, key: str, seconds: float) -> None:
        """Stop all callers in all processes for so many seconds, or no longer."""
        self._check()
        await self.of(key).hold_off(seconds)

    def wanted(self, key: str) -> dict[str, float]:
        """The amount of each limit for which callers of this process wait without a booking."""
        spender = self._by_key.get(key)
        return {} if spender is None else spender.wanted()

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
        for line in (self._pausing, self.holding_off):
            line.fail_all(lambda: StoreClosed("the store was closed"))
        for spender in list(self._by_key.values()):
            spender.close()
        if self._alarm is not None:
            self._alarm.cancel()

    def wake(self, spender: _Spender, time: float) -> None:
        """Call `on_time` of the spender at that time."""
        if time < spender.wakes_at:
            spender.wakes_at = time
            heappush(self._times, (time, next(self._numbers), spender))
            if self._alarm is not None and time < self._alarm.deadline:
                self._alarm.deadline = time

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
        self._line: Line[Place, Spending] = Line(self._left)
        self._lanes: dict[RateLimits, Lane] = {}
        self._at_once: deque[Spot] = deque()
        self._holds: deque[Waiter[float, None]] = deque()
        self._backs: list[_Back] = []
        # the operation under way
        self._spends: list[Spot] = []
        self._holding: list[Waiter[float, None]] = []
        self._refunds: list[_Back] = []
        # by the time of a round trip, so that no slot is lost to it
        self._horizon = HORIZON
        self._sent = 0.0
        # the slots, the first that is due first, and for how long the limiter was held off
        self._slots: list[tuple[float, int, Slot]] = []
        self._held = 0.0
        self._checks = 0
        self._looked = 0
        self._spent = 0
        self._answered_at = -inf
        self.wakes_at = inf

    async def spend(self, place: Place, fail_fast: bool) -> Spending:
        if place.at_once:
            spot = self._line.join(place)
            self._at_once.append(spot)
            self._turns.schedule()
            return await self._turns.answered(self._line, spot, lambda: _TAKEN_BACK)
        while True:
            lane = self._lane(place)
            delay = lane.delay(place, self._held) if fail_fast else 0.0
            if place.deadline < inf and delay > place.left():
                return Spending(False, delay, self._held, ())
            spot = self._line.join(place)
            lane.join(spot)
            self._plan(lane)
            if not fail_fast:
                return await self._line.wait(spot)
            asked = now()
            try:
                return await self._line.wait(spot, self._turns.patience + delay)
            except Expired:
                # the turn may take longer than was known, as others spend too; but the store has to answer
                if self._answered_at < asked:
                    raise self._turns.no_answer(_TAKEN_BACK) from None
            place = Place(place.limits, place.costs, place.deadline)

    async def hold_off(self, seconds: float) -> None:
        self._turns.schedule()
        waiter = self._spenders.holding_off.join(seconds)
        self._holds.append(waiter)
        await self._turns.answered(self._spenders.holding_off, waiter, lambda: _MAY_BE_HELD_OFF)

    def refund(self, limits: RateLimits, request: RefundRequest) -> None:
        # the latest first: only the last booking can be given back, and then the booking before it is the last
        last = max(booking.end for booking in request.bookings)
        heappush(self._backs, _Back(-last, next(self._numbers), limits, request))
        self._turns.schedule()

    def wanted(self) -> dict[str, float]:
        amounts: dict[str, float] = {}
        for lane in self._lanes.values():
            for name, amount in lane.wanted.items():
                amounts[name] = amounts.get(name, 0.0) + amount
        return amounts

    def check(self) -> None:
        """Check whether the limiter was held off: callers that wait stay until the answer has come."""
        if self._slots or self._spends:
            self._checks += 1
            spent = -1 if self._spends else self._spent
            self._spenders.store.send(Scan(LIMITER, self._key), partial(self._on_check, self._checks, spent))

    def close(self) -> None:
        # bookings end with the session
        self._slots.clear()
        self._line.fail_all(lambda: StoreClosed("the store was closed"))

    def _hear(self, held: float) -> None:
        """Hear for how long the limiter was held off so far."""
        ended, self._held = held < self._held, held
        if ended:
            self._spenders.look_again()
            self._set_alarm()
            self._turns.schedule()

    # keeping the time

    def _lane(self, place: Place) -> Lane:
        limits = place.limits
        if 0.0 in place.costs:
            limits = tuple([limit for limit, cost in zip(limits, place.costs, strict=True) if cost])
        lane = self._lanes.get(limits)
        if lane is None:
            lane = self._lanes[limits] = Lane(limits)
        return lane

    def _plan(self, lane: Lane) -> None:
        """Ask for the callers of the lane without a booking, at once or when it is time."""
        if self._asks(lane):
            self._turns.schedule()
        elif lane.spots or self._slots:
            self._set_alarm()

    def _asks(self, lane: Lane) -> bool:
        return bool(lane.spots) and lane.ask_at + self._held <= now()

    def _next_time(self) -> float:
        while self._slots and self._slots[0][2].used:
            heappop(self._slots)
        first = self._slots[0][0] + self._held if self._slots and self._looked == self._checks else inf
        if self._turns.busy:
            return first  # the answer plans what follows
        # the batcher knows of those that are earlier
        times = [lane.ask_at + self._held for lane in self._lanes.values() if lane.spots]
        return min([first, *(time for time in times if time > now())])

    def _set_alarm(self) -> None:
        self._spenders.wake(self, self._next_time())

    def on_time(self) -> None:
        """Let all go that are due, and ask for the next ones."""
        self._let_go()
        if any(map(self._asks, self._lanes.values())):
            self._turns.schedule()
        self._set_alarm()
        if not self._turns.busy:
            self._go_on()

    def _let_go(self) -> None:
        """Let all go that are due."""
        while (
            self._looked == self._checks
            and self._slots
            and self._slots[0][0] + self._held <= now() + ROUNDING
        ):
            slot = heappop(self._slots)[2]
            if not slot.used:
                lane = self._lane(slot.place)
                if slot.session.check() is None:
                    slot.used = True
                    lane.kinds[slot.place.costs].slots.remove(slot)
                    self._hand_over(lane, slot)
                else:
                    self._drop_lost(lane)
                self._plan(lane)

    def _drop_lost(self, lane: Lane) -> None:
        """Forget what has ended with its session."""
        lane.drop(lambda slot: slot.session.check() is not None)
        lane.ask_at = -inf

    def _hand_over(self, lane: Lane, slot: Slot) -> None:
        """Let the first caller go that wants as much."""
        while (spot := lane.next_for(slot)) is not None:
            spot.want.slot = slot
            if self._line.grant(spot, slot.spending):
                break
        else:
            self._give_back([slot], lane)
        if (kind := lane.kinds.get(slot.place.costs)) is not None:
            self._give_back(lane.spare(kind), lane)
        lane.tidy()

    def _give_back(self, slots: list[Slot], lane: Lane) -> None:
        for slot in slots:
            lane.ask_at = -inf
            if slot.session.lost is None:
                self.refund(slot.place.limits, RefundRequest(slot.spending.bookings))

    def _left(self, spot: Spot) -> None:
        place = spot.want
        if spot.granted:
            if place.slot is not None and spot.value.booked:
                self._hand_over(self._lane(place), place.slot)
        elif place.in_line:
            self._lane(place).leave(place)
        elif place.booked is not None:
            kind, place.booked, lane = place.booked, None, self._lane(place)
            kind.count -= 1
            self._give_back(lane.spare(kind), lane)
            lane.tidy()
            self._plan(lane)

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
        if self._slots:
            self._set_alarm()
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
        self._sent = now()
        room = CAP - min(len(self._at_once), CAP // 2)
        for its, lane in list(self._lanes.items()):
            if self._asks(lane) and len(self._spends) < room:
                self._spends += lane.ask(room - len(self._spends), limits)
                if self._spends:
                    limits = self._spends[0].want.limits
                if len(self._lanes) > 1:
                    self._lanes[its] = self._lanes.pop(its)  # the last next time
        while self._at_once and len(self._spends) < CAP:
            spot = self._at_once[0]
            if spot.waiting:
                if limits not in (None, spot.want.limits):
                    break
                limits = spot.want.limits
                self._spends.append(spot)
            self._at_once.popleft()
        if limits is None:
            return None
        requests = tuple([spot.want.request(self._horizon) for spot in self._spends])
        return Spend(session.id, n, self._key, requests, limits)

    def on_answer(self, session: Session, answer: Any) -> None:
        self._answered_at = now()
        spends, holding = self._take_out()
        if holding:
            self.check()  # the hint to this process comes by another connection, perhaps later
            if not holding[0].want:
                self._spenders.look_again()
        for holder in holding:
            self._spenders.holding_off.grant(holder, None)
        if spends:
            self._horizon = HORIZON + 2 * (now() - self._sent)
            self._spent += 1
            self._hear(answer.answers[-1].held)
            self._on_spent(session, spends, answer.answers)
        self._turns.schedule()

    def _on_spent(self, session: Session, spots: list[Spot], spendings: tuple[Spending, ...]) -> None:
        time = now()
        last: dict[Lane, Slot | None] = {}
        refused: dict[Lane, list[Spot]] = {}
        for spot, spending in zip(spots, spendings, strict=True):
            place = spot.want
            lane = self._lane(place)
            if spending.booked:
                slot = Slot(
                    time + spending.delay - spending.held, session, spending, place, next(self._numbers)
                )
                if spending.delay <= ROUNDING:
                    place.slot = slot
                    last.setdefault(lane, None)
                    if not self._line.grant(spot, spending):
                        self._hand_over(lane, slot)
                else:
                    last[lane] = slot
                    lane.book(spot, slot)
                    heappush(self._slots, (slot.due, slot.number, slot))
            elif place.max_wait is not None and spending.delay > place.max_wait + ROUNDING:
                self._line.grant(spot, spending)
                last.setdefault(lane, None)
            else:
                refused.setdefault(lane, []).append(spot)
                if len(refused[lane]) == 1:
                    delay = spending.delay
                    lane.refused(place, delay, self._horizon, spending.held)
        for lane, slot in last.items():
            if lane not in refused:
                lane.answered(slot, self._horizon)
            for kind in list(lane.kinds.values()):
                self._give_back(lane.spare(kind), lane)
        for lane, again in refused.items():
            for spot in reversed(again):
                lane.join(spot, first=True)
        for lane in {**last, **refused}:
            self._plan(lane)

    def on_session_lost(self, *, resent: bool) -> None:
        # holding off twice is the same as holding off once, a little later
        self._holds.extendleft(reversed(self._holding))
        self._holding = []
        # bookings have ended with the session; corrections have not
        refunds, self._refunds = [back for back in self._refunds if back.request.amounts], []
        self._backs = [back for back in self._backs if back.request.amounts]
        heapify(self._backs)
        for lane in self._lanes.values():
            self._drop_lost(lane)
        if resent:
            self._refunds = refunds
            self._fail(partial(OutcomeUnknown, self._key, "spending"))
            return
        for back in refunds:
            heappush(self._backs, back)
        for spot in reversed(self._spends):
            if spot.want.at_once:
                self._at_once.appendleft(spot)
            else:
                self._lane(spot.want).join(spot, first=True)
        self._take_out()
        self._turns.schedule()

    def on_error(self, error: Exception, session: Session | None) -> None:
        if session is None:
            self._spends += [*self._at_once, *(spot for lane in self._lanes.values() for spot in lane.spots)]
            self._holding += self._holds
            self._refunds += self._backs
            self._at_once.clear()
            self._lanes.clear()
            self._holds.clear()
            self._backs.clear()
        self._fail(lambda: type(error)(*error.args))

    # inside

    def _go_on(self) -> None:
        """Send what has gathered, or remove this spender if it is idle. Nothing is under way."""
        if self._at_once or self._holds or self._backs:
            self._turns.schedule()
        elif self._next_time() < inf:
            self._set_alarm()
        elif (
            not self._slots
            and self._looked == self._checks
            and not any(map(self._asks, self._lanes.values()))
        ):
            self._spenders.forget(self._key, self)

    def _take_out(self) -> tuple[list[Spot], list[Waiter[float, None]]]:
        """Return the requests that were under way, and forget them."""
        spends, holding = self._spends, self._holding
        self._spends, self._holding, self._refunds = [], [], []
        return spends, holding

    def _fail(self, make_error: Callable[[], Exception]) -> None:
        if any(back.request.amounts for back in self._refunds):
            self._spenders.report(self._key, make_error())
        spends, holding = self._take_out()
        for spot in spends:
            self._line.fail(spot, make_error())
        for holder in holding:
            self._spenders.holding_off.fail(holder, make_error())
        if any(map(self._asks, self._lanes.values())):
            self._turns.schedule()
        else:
            self._go_on()
