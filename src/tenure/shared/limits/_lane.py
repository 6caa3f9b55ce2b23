"""The line of a limiter's callers in this process, and the bookings for the first callers.

A booking is not its caller's: it goes to the first who wants as much. So who leaves costs nobody behind him anything,
and bookings for more than the callers that are left are given back, the last first.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import inf
from random import uniform

from tenure.arguments import LONGEST
from tenure.engine import RateLimit, Spending, SpendRequest
from tenure.store import Session
from tenure.waiting import Waiter, now

HORIZON = 0.1
"""Seconds: while more is booked ahead by any process, nobody books."""

PATIENCE = 0.5
"""Seconds: whoever was refused asks again after at most so many. Bookings may be given back meanwhile."""


@dataclass(slots=True, eq=False)
class Place:
    """A caller's place in the line: what it wants, until when on the loop's clock; `at_once` or not at all."""

    limits: tuple[RateLimit, ...]
    costs: tuple[float, ...]
    deadline: float = inf
    at_once: bool = False
    number: int = 0
    """Its order of arrival."""
    in_line: bool = False
    """True while it stands in the line, and nothing was asked for it."""
    booked: Kind | None = None
    slot: Slot | None = None
    """The slot that it was granted."""
    max_wait: float | None = None

    def left(self) -> float:
        """Seconds until its deadline."""
        return max(0.0, self.deadline - now())

    def request(self, horizon: float) -> SpendRequest:
        """The request to the engine."""
        left = 0.0 if self.at_once else self.left()
        self.max_wait = None if left > LONGEST else left
        return SpendRequest(self.costs, self.max_wait, None if self.at_once else horizon)


_numbers = count()

Spot = Waiter[Place, Spending]
"""The waiter of a place."""


@dataclass(slots=True, eq=False)
class Slot:
    """A booking for one caller. It is due at a time of the loop, from which the seconds are taken off for which
    the limiter was held off.
    """

    due: float
    session: Session
    spending: Spending
    place: Place
    """The place for which it was asked; another may use it."""
    number: int
    """Rises with each booking."""
    used: bool = False


@dataclass(slots=True, eq=False)
class Kind:
    """The callers that want the same, in order, and a slot for each of them that has not left."""

    slots: list[Slot] = field(default_factory=list[Slot])
    spots: deque[Spot] = field(default_factory=deque[Spot])
    count: int = 0


class Lane:
    """The callers that want something of the same limits. Callers of other limits are not in their way."""

    def __init__(self, limits: tuple[RateLimit, ...]) -> None:
        self.spots: deque[Spot] = deque()
        """The callers without a booking; some have left."""
        self.wanted: dict[str, float] = {limit.name: 0.0 for limit in limits}
        """The amount of each limit that they want."""
        self.kinds: dict[tuple[float, ...], Kind] = {}
        self.ask_at = -inf
        """The time to ask for the callers without a booking, without the time for which the limiter was held off."""
        self._ahead = HORIZON / 2
        self._free = True
        self._refused = 0
        self._taken = -inf
        self._count = 0

    def join(self, spot: Spot, *, first: bool = False) -> None:
        """Add a caller at the end of the line, or at its front."""
        if first:
            self.spots.appendleft(spot)
        else:
            self.spots.append(spot)
            spot.want.number = next(_numbers)
        spot.want.in_line = True
        self._count += 1
        self._want(spot.want, 1)

    def leave(self, place: Place) -> None:
        """Take a caller out that has no booking; its spot goes later."""
        self._out(place)
        if len(self.spots) > 2 * self._count + 16:
            self.spots = deque([spot for spot in self.spots if spot.want.in_line])

    def first(self) -> Spot | None:
        """The first caller without a booking."""
        while self.spots:
            spot = self.spots[0]
            if spot.want.in_line and spot.waiting:
                return spot
            self.spots.popleft()
            if spot.want.in_line:
                self._out(spot.want)
        return None

    def take_first(self) -> Spot:
        """Take out what `first` has returned."""
        spot = self.spots.popleft()
        self._out(spot.want)
        return spot

    @property
    def waits(self) -> bool:
        """True if there is a caller without a booking."""
        return bool(self.spots) and self.first() is not None

    def delay(self, place: Place, held: float) -> float:
        """The least delay of a caller that joins now, as far as this process knows."""
        ahead, delay = self._taken + held - now(), 0.0
        for limit, cost in zip(place.limits, place.costs, strict=True):
            if cost:
                seconds = (self.wanted[limit.name] + cost) / limit.rate
                delay = max(delay, seconds + (ahead if ahead > 0 else -limit.burst / limit.rate))
        return delay

    # asking

    def ask(self, room: int, limits: tuple[RateLimit, ...] | None) -> list[Spot]:
        """Take out the callers to ask for: as many as are due in half the horizon at most, and all that are free."""
        asked: list[Spot] = []
        total: list[float] = []
        while len(asked) < room and (spot := self.first()) is not None:
            place = spot.want
            if limits not in (None, place.limits):
                break
            limits = place.limits
            total = list(map(sum, zip(total, place.costs, strict=True))) if asked else list(place.costs)
            if asked and any(
                amount > limit.rate * self._ahead + limit.burst * self._free
                for amount, limit in zip(total, limits, strict=True)
            ):
                break
            asked.append(self.take_first())
        return asked

    def refused(self, place: Place, delay: float, horizon: float, held: float) -> None:
        """Ask again when the bookings ahead end within the horizon: the sooner, the more often it was refused."""
        own = max(cost / limit.rate for limit, cost in zip(place.limits, place.costs, strict=True))
        self._free = False
        self._refused += 1
        ahead = max(0.0, delay - own)
        self._taken = now() + ahead - held
        lead = horizon * uniform(0.9, 1.0) * (self._refused + 1) / (self._refused + 2)
        self.ask_at = now() + min(max(horizon / 20, ahead - lead), PATIENCE) - held

    def answered(self, last: Slot | None, horizon: float) -> None:
        """Ask again shortly before the last slot is due; at once if nothing had to wait."""
        self._refused = 0
        self._free = last is None
        self.ask_at = -inf
        if last is not None:
            self._taken = max(self._taken, last.due)
            self.ask_at = last.due - self._ahead * uniform(0.8, 1.0)
            self._ahead = min(self._ahead * 1.5 + horizon / 100, horizon / 2)

    # slots

    def book(self, spot: Spot, slot: Slot) -> None:
        """Add a slot for a caller."""
        kind = self.kinds.setdefault(slot.place.costs, Kind())
        insort(kind.slots, slot, key=lambda slot: slot.due)
        if spot.waiting:
            kind.spots.append(spot)
            kind.count += 1
            spot.want.booked = kind

    def next_for(self, slot: Slot) -> Spot | None:
        """Take out the first caller that may use the slot; None if there is none."""
        kind = self.kinds.get(slot.place.costs)
        while kind is not None and kind.spots:
            spot = kind.spots.popleft()
            if spot.want.booked is kind:
                spot.want.booked = None
                kind.count -= 1
                return spot
        return self.take_first() if self._first_fits(slot) else None

    def spare(self, kind: Kind) -> list[Slot]:
        """Take out the slots that nobody needs: a caller without a booking moves up, if it wants as much.

        Only the last booking can be given back. So the bookings of other kinds behind it go too, and their callers get
        others; while that happens, less is booked ahead.
        """
        spare: list[Slot] = []
        while len(kind.slots) > kind.count:
            if self._first_fits(kind.slots[-1]):
                spot = self.take_first()
                kind.spots.append(spot)
                kind.count += 1
                spot.want.booked = kind
            else:
                slot = kind.slots.pop()
                slot.used = True
                spare.append(slot)
        if spare and len(self.kinds) > 1:
            first = min(slot.number for slot in spare)
            behind = self.drop(lambda slot: slot.number > first)
            if behind:
                self._ahead /= 2
                spare += behind
        return spare

    def drop(self, which: Callable[[Slot], bool]) -> list[Slot]:
        """Take out such slots: their callers go back to the front of the line."""
        dropped: list[Slot] = []
        back: list[Spot] = []
        for kind in self.kinds.values():
            out = [slot for slot in kind.slots if which(slot)]
            if out:
                kind.slots = [slot for slot in kind.slots if slot not in out]
                dropped += out
            while kind.count > len(kind.slots):
                spot = kind.spots.pop()
                if spot.want.booked is kind:
                    spot.want.booked = None
                    kind.count -= 1
                    back.append(spot)
        for spot in sorted(back, key=lambda spot: spot.want.number, reverse=True):
            self.join(spot, first=True)
        for slot in dropped:
            slot.used = True
        return dropped

    def tidy(self) -> None:
        """Forget the kinds without slots."""
        self.kinds = {costs: kind for costs, kind in self.kinds.items() if kind.slots}

    # inside

    def _first_fits(self, slot: Slot) -> bool:
        spot = self.first()
        return spot is not None and spot.want.costs == slot.place.costs

    def _out(self, place: Place) -> None:
        place.in_line = False
        self._count -= 1
        self._want(place, -1)

    def _want(self, place: Place, sign: int) -> None:
        for limit, cost in zip(place.limits, place.costs, strict=True):
            if cost:
                self.wanted[limit.name] = self.wanted[limit.name] + sign * cost if self._count else 0.0
