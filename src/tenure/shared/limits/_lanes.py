from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

import tenure.engine as e
from tenure.store import Session
from tenure.waiting import Line, now

from ._lane import HORIZON, Amounts, Lane, LanePlace, Slot, Spot, less

RateLimits = tuple[e.RateLimit, ...]


class Lanes:
    """The waiting callers of one limiter."""

    def __init__(
        self, refund: Callable[[RateLimits, e.RefundRequest], None], schedule: Callable[[], None]
    ) -> None:
        self.held = 0.0
        """The seconds for which the limiter was held off until now, and will be."""
        self.is_checked = True
        """False while `held` may have changed: nobody goes then."""
        self.horizon = HORIZON
        self.at_once: Line[LanePlace, e.Spending] = Line(self._left, "a rate limiter")
        self._lanes: list[Lane] = []
        self._refund = refund
        self._schedule = schedule

    def of(self, place: LanePlace | Slot) -> Lane:
        limits, costs = place.limits, place.costs
        zeros = tuple([not cost for cost in costs]) if 0.0 in costs else ()
        for lane in self._lanes:
            if lane.limits == limits and lane.zeros == zeros:
                return lane
        lane = Lane(limits, zeros, self._left)
        self._lanes.append(lane)
        return lane

    @property
    def wait(self) -> bool:
        return any(lane.slots or lane.line.first is not None for lane in self._lanes)

    @property
    def books(self) -> bool:
        return any(lane.slots for lane in self._lanes)

    def asks(self, lane: Lane) -> bool:
        return (lane.ask_at == -inf or lane.ask_at + self.held <= now()) and lane.asks

    def any_asks(self) -> bool:
        return any(map(self.asks, self._lanes))

    def next_time(self, *, busy: bool) -> float:
        times = [inf]
        for lane in self._lanes:
            if lane.slots and self.is_checked:
                times.append(lane.slots[0].due + self.held)
            if not busy and lane.ask_at + self.held > now() and lane.asks:
                times.append(lane.ask_at + self.held)
        return min(times)

    def wanted(self) -> dict[str, float]:
        amounts: dict[str, float] = {}
        for lane in self._lanes:
            for limit, amount in zip(lane.limits, lane.wanted(), strict=True):
                amounts[limit.name] = amounts.get(limit.name, 0.0) + amount
        return amounts

    def fail_all(self, make_error: Callable[[], Exception]) -> None:
        for line in (self.at_once, *[lane.line for lane in self._lanes]):
            line.fail_all(make_error)
        self._lanes.clear()

    def fail(self, spot: Spot, error: Exception) -> None:
        lane = spot.want.lane
        if lane is None:
            self.at_once.fail(spot, error)
        elif lane.line.fail(spot, error):
            lane.out(spot.want)

    def drop_lost(self) -> None:
        for lane in self._lanes:
            lane.drop_lost()

    # turns

    def rest(self) -> None:
        self._lanes = [lane for lane in self._lanes if lane.ask_at == -inf]

    def settle(self) -> None:
        for lane in self._lanes:
            if lane.slots:
                for slot in lane.spare(self.horizon, self.held):
                    self._give_back(slot, slot.costs)
        if len(self._lanes) > 1:
            self._lanes = [lane for lane in self._lanes if lane.slots or lane.line.first is not None]

    def ask(self, room: int) -> list[Spot]:
        asked: list[Spot] = []
        for lane in list(self._lanes):
            if len(asked) < room and self.asks(lane) and (not asked or asked[0].want.limits == lane.limits):
                asked += lane.ask(room - len(asked), self.horizon, self.held)
                if len(self._lanes) > 1:
                    self._lanes.remove(lane)
                    self._lanes.append(lane)  # the last next time
        return asked

    def answered(self, session: Session, answers: Iterable[tuple[Spot, e.SpendRequest, e.Spending]]) -> None:
        last: dict[Lane, Slot | None] = {}
        refused: dict[Lane, None] = {}
        time = now()
        for spot, request, spending in answers:
            place = spot.want
            lane = place.lane
            line = self.at_once if lane is None else lane.line
            if spending.booked and spending.delay <= e.ROUNDING:
                place.granted = session
                if lane is not None:
                    last[lane] = None
                if not line.grant(spot, spending):
                    self._hand_over(Slot(place, session, spending, time), place.costs)
                elif lane is not None:
                    lane.out(place)
            elif spending.booked and lane is not None:
                last[lane] = slot = Slot(place, session, spending, time + spending.delay - spending.held)
                lane.add(slot)
            elif lane is None or (
                request.max_wait is not None and spending.delay > request.max_wait + e.ROUNDING
            ):
                if line.grant(spot, spending) and lane is not None:
                    lane.out(place)
            elif lane not in refused:
                refused[lane] = None
                lane.refused(place.costs, spending.delay, self.horizon, spending.held)
        for lane, slot in last.items():
            if lane not in refused:
                lane.answered(slot, self.horizon)

    def let_go(self) -> None:
        time = now() + e.ROUNDING
        for lane in self._lanes:
            while self.is_checked and lane.slots and lane.slots[0].due + self.held <= time:
                slot = lane.take()
                if slot.session.check() is None:
                    self._hand_over(slot, slot.costs)
                else:
                    lane.drop_lost()
                    lane.ask_at = -inf

    def _hand_over(self, slot: Slot, left: Amounts) -> None:
        lane = self.of(slot)
        while left and (spot := lane.next_for(left, largest=left is not slot.costs)) is not None:
            place = spot.want
            place.granted = slot
            lane.line.grant(spot, slot.spending)
            lane.out(place)
            left = less(left, place.costs)
        if left:
            self._give_back(slot, left)
            lane.ask_at = -inf
        if len(lane.slots) > len(lane.line):
            self._schedule()  # nobody needs them all, as several went in this slot: give them back

    def _give_back(self, slot: Slot, amounts: Amounts) -> None:
        if slot.session.lost is None:
            self._refund(slot.limits, slot.refund(amounts))

    def _left(self, spot: Spot) -> None:
        place, by = spot.want, spot.want.granted
        if not spot.granted:
            if place.lane is not None:
                place.lane.out(place)
                if place.lane.slots:
                    self._schedule()
        elif by is not None:
            slot = by if isinstance(by, Slot) else Slot(place, by, spot.value, now())
            self._hand_over(slot, place.costs)
