"""A line of callers of a limiter in this process, and the slots that the process has booked for the first of them.

A slot goes to the first caller that wants no more, and the rest of it to the next. So a caller that leaves costs nobody
behind it anything.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from math import inf
from random import uniform

import tenure.engine as e
from tenure.arguments import LONGEST
from tenure.store import Session
from tenure.waiting import Line, Waiter, now

HORIZON = 0.01
"""The seconds that a process may book ahead; two round trips are added, so that they cost no time."""

AHEAD = 0.04
"""The seconds beyond the horizon that a process books at once."""

PATIENCE = 0.5
"""Seconds after which a refused caller asks again at the latest. Bookings may be given back meanwhile."""

SEARCHED = 64
"""The number of callers that are searched for one that a slot suffices for."""

_NOTHING = 1e-9

Amounts = tuple[float, ...]


class LanePlace:
    """A caller's place; a deadline of -inf means at once or not at all."""

    __slots__ = ("costs", "deadline", "granted", "lane", "limits")

    def __init__(self, limits: tuple[e.RateLimit, ...], costs: Amounts, deadline: float) -> None:
        self.limits = limits
        self.costs = costs
        self.deadline = deadline
        self.lane: Lane | None = None
        self.granted: Slot | Session | None = None
        """The slot in which it goes, or the session whose booking need not wait."""

    def left(self) -> float:
        return max(0.0, self.deadline - now())

    def request(self) -> e.SpendRequest:
        if self.deadline == -inf:
            return e.SpendRequest(self.costs, 0.0)
        left = self.left()
        return e.SpendRequest(self.costs, None if left > LONGEST else left)


Spot = Waiter[LanePlace, e.Spending]


class Slot:
    __slots__ = ("bookings", "costs", "due", "limits", "session", "spending")

    def __init__(self, place: LanePlace, session: Session, spending: e.Spending, due: float) -> None:
        self.limits = place.limits
        self.costs = place.costs
        self.session = session
        self.spending = spending
        self.bookings = spending.bookings
        """The bookings, without the ends that were given back."""
        self.due = due

    def taken(self) -> list[float]:
        parts = zip(self.limits, self.costs, self.spending.bookings, strict=True)
        ends = [booking.end - limit.burst / limit.rate if cost else -inf for limit, cost, booking in parts]
        # the limit for which it waits is the limit that is taken for longest
        return [end - max(ends) + self.due for end in ends]

    def refund(self, amounts: Amounts) -> e.RefundRequest:
        backs = self.bookings
        if amounts != self.costs:
            parts = zip(backs, amounts, self.limits, strict=True)
            backs = tuple([e.Booking(booking.end, amount / limit.rate) for booking, amount, limit in parts])
            self.bookings = tuple([e.Booking(back.end - back.size, 0.0) for back in backs])
        return e.RefundRequest(backs)


class Lane:
    def __init__(
        self, limits: tuple[e.RateLimit, ...], zeros: tuple[bool, ...], on_leave: Callable[[Spot], None]
    ) -> None:
        self.limits = limits
        self.zeros = zeros
        """The limits in which they cost nothing."""
        self.line: Line[LanePlace, e.Spending] = Line(on_leave, "a rate limiter")
        self.slots: list[Slot] = []
        self._wanted: list[float] | None = None
        """The amounts that `wanted` returned, kept up to date; None while nobody has asked."""
        self.ask_at = -inf
        """The time to ask for the callers without a slot, without the time for which the limiter was held off."""
        self._free = True
        self._refused = 0
        self._untaken = [-inf] * len(limits)
        self._taken = self._untaken
        """The times up to which each limit is taken, as far as is known."""

    def join(self, place: LanePlace) -> Spot:
        place.lane = self
        if self._wanted is not None:
            self._want(place.costs, 1)
        return self.line.join(place)

    def out(self, place: LanePlace) -> None:
        if self._wanted is not None:
            self._want(place.costs, -1)
            if self.line.first is None:
                self._wanted = None  # no rounding adds up

    @property
    def asks(self) -> bool:
        slots, first = self.slots, self.line.first
        return first is not None and (
            len(self.line) > len(slots) or not _fits(first.want.costs, slots[0].costs)
        )

    def delay(self, place: LanePlace, held: float) -> float:
        passed, delay = now() - held, 0.0
        for limit, cost, wanted, taken in zip(
            self.limits, place.costs, self.wanted(), self._taken, strict=True
        ):
            if cost:
                ahead = taken - passed if taken > passed else -limit.burst / limit.rate
                delay = max(delay, (wanted + cost) / limit.rate + ahead)
        return delay

    def wanted(self) -> list[float]:
        if self._wanted is None:
            self._wanted = [0.0] * len(self.limits)
            for spot in self.line:
                self._want(spot.want.costs, 1)
            for slot in self.slots:
                self._want(slot.costs, -1)
        return [max(0.0, amount) for amount in self._wanted]

    # asking

    def ask(self, room: int, horizon: float, held: float) -> list[Spot]:
        asked: list[Spot] = []
        costs, share, total = (), 0.0, 0.0
        spot = self._served(now() + horizon - held)[1]
        while spot is not None and len(asked) < room:
            place = spot.want
            if place.costs is not costs:
                costs, share = place.costs, self._share(place.costs, AHEAD + horizon)
            total += share
            if asked and total > 1 + _NOTHING:
                break
            if spot.waiting:
                asked.append(spot)
            spot = spot.following
        return asked

    def refused(self, costs: Amounts, delay: float, horizon: float, held: float) -> None:
        parts = zip(self.limits, costs, strict=True)
        # a limit of which the cost alone takes so long is not the limit that is booked too far ahead
        most = [delay - cost / limit.rate if cost else -inf for limit, cost in parts]
        ahead = min([seconds for seconds in most if seconds > horizon], default=max(most))
        self._free = False
        self._refused += 1
        self._taken = [now() + ahead - held if seconds == ahead else -inf for seconds in most]
        lead = horizon * uniform(0.9, 1.0) * (self._refused + 1) / (self._refused + 2)
        self.ask_at = now() + min(max(horizon / 20, ahead - lead), PATIENCE) - held

    def answered(self, last: Slot | None, horizon: float) -> None:
        self._refused = 0
        self._free = last is None
        self._taken, self.ask_at = self._untaken, -inf
        if last is not None:
            self._taken = last.taken()
            self.ask_at = last.due - horizon / 2 * uniform(0.8, 1.0)

    # slots

    def add(self, slot: Slot) -> None:
        insort(self.slots, slot, key=lambda slot: slot.due)
        self._want(slot.costs, -1)

    def take(self) -> Slot:
        slot = self.slots.pop(0)
        self._want(slot.costs, 1)
        return slot

    def next_for(self, amounts: Amounts, *, largest: bool = False) -> Spot | None:
        spot, found = self.line.head(), None
        for _ in range(SEARCHED):
            if spot is None:
                break
            if (
                _fits(spot.want.costs, amounts)
                and spot.waiting
                and (found is None or spot.want.costs > found.want.costs)
            ):
                found = spot
                if not largest:
                    break
            spot = spot.following
        return found

    def spare(self, horizon: float, held: float) -> list[Slot]:
        return self.drop(self.slots[self._served(now() + horizon - held)[0] :])

    def drop(self, slots: list[Slot]) -> list[Slot]:
        if slots:
            gone = set(map(id, slots))
            self.slots = [slot for slot in self.slots if id(slot) not in gone]
            for slot in slots:
                self._want(slot.costs, 1)
            self._taken = self.slots[-1].taken() if self.slots else self._untaken
            self.ask_at = -inf
        return slots

    def drop_lost(self) -> None:
        self.drop([slot for slot in self.slots if slot.session.check() is not None])

    # inside

    def _served(self, soon: float) -> tuple[int, Spot | None]:
        spot, n = self.line.head(), 0
        for slot in self.slots:
            is_soon = slot.due <= soon
            if spot is not None and (
                spot.want.costs == slot.costs or (is_soon and _fits(spot.want.costs, slot.costs))
            ):
                spot = spot.following
            elif not is_soon:
                break
            n += 1
        return n, spot

    def _share(self, costs: Amounts, seconds: float) -> float:
        return max(
            [
                cost / (limit.rate * seconds + limit.burst * self._free)
                for limit, cost in zip(self.limits, costs, strict=True)
            ]
        )

    def _want(self, amounts: Amounts, sign: int) -> None:
        if self._wanted is not None:
            self._wanted = [
                wanted + sign * amount for wanted, amount in zip(self._wanted, amounts, strict=True)
            ]


def less(amounts: Amounts, costs: Amounts) -> Amounts:
    if costs == amounts:
        return ()
    left = tuple([max(0.0, amount - cost) for amount, cost in zip(amounts, costs, strict=True)])
    return left if max(left) > _NOTHING else ()


def _fits(costs: Amounts, amounts: Amounts) -> bool:
    if costs == amounts:
        return True
    return all(cost <= amount + _NOTHING for cost, amount in zip(costs, amounts, strict=True))
