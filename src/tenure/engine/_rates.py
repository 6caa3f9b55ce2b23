"""The arithmetic of rates that all engines share: the generic cell rate algorithm (ITU-T I.371), for several limits.

The limiter has a clock of its own, which stands still while the limiter is held off. All times of bookings are on that
clock, so holding off changes two numbers. `redis/lua/rates.lua` and `postgres/sql/rates.sql` repeat the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from tenure.arguments import LONGEST

from ._counters import Booking, Debt, LimiterStatus, RateLimit, RefundRequest, Spending, SpendRequest
from ._value import value

ROUNDING = 1e-6
"""Seconds: a shorter delay counts as none, because sums of floats are not exact."""


@value
class Booked:
    """The booking of one limit, up to the time `end` (the theoretical arrival time) at `rate` per second.

    Corrections have moved the end of its last spending by `moved` seconds. If that spending has to wait, `session` made
    it, and it is due at `due` and `size` seconds long.
    """

    end: float
    rate: float
    moved: float = 0.0
    session: str = ""
    due: float = 0.0
    size: float = 0.0


@dataclass(slots=True)
class Limiter:
    """The state of one limiter. Times are in seconds; `now` is the engine's time."""

    held_until: float = 0.0
    """Engine's time."""
    held: float = 0.0
    """The seconds of all hold-offs, up to `held_until`."""
    last_due: float = 0.0
    """The time at which the last waiting caller is due, on the limiter's clock."""
    booked: dict[str, Booked] = field(default_factory=dict[str, Booked])

    def time(self, now: float) -> float:
        """The limiter's clock."""
        return max(now, self.held_until) - self.held

    def is_used(self, now: float) -> bool:
        """True if the limiter has any effect; otherwise it is as if it had never been used."""
        return self.used_until() > now

    def delays(self, now: float) -> bool:
        """True if the limiter is held off or makes a caller wait."""
        return max(self.held_until, self.last_due + self.held) > now + ROUNDING

    def used_until(self) -> float:
        """The engine's time from which on it has no effect."""
        ends = (booked.end for booked in self.booked.values())
        return max(self.held_until, max(self.last_due, *ends, 0.0) + self.held)

    def drop_ended(self, limits: tuple[RateLimit, ...], is_open: Callable[[str], object], now: float) -> None:
        """Drop the last booking of a limit if its session has ended and it is not due yet."""
        time = self.time(now)
        for limit in limits:
            booked = self.booked.get(limit.name)
            if booked is not None and booked.session and booked.due > time and not is_open(booked.session):
                self.booked[limit.name] = Booked(booked.end - booked.size, booked.rate, booked.moved)

    def spend(
        self,
        limits: tuple[RateLimit, ...],
        requests: tuple[SpendRequest, ...],
        now: float,
        session: str = "",
        horizon: float | None = None,
    ) -> tuple[Spending, ...]:
        """Book each request in all limits, unless its delay is too long, or too much was booked before this call."""
        time, hold = self.time(now), max(0.0, self.held_until - now)
        # from here on relative to that time: a sum with the time keeps no fractions
        ahead = [self._ahead(limit, time) for limit in limits]
        for limit, debt in zip(limits, ahead, strict=True):
            booked = self.booked.get(limit.name)
            if booked is not None and booked.rate != limit.rate:
                self.booked[limit.name] = Booked(time + debt, limit.rate)
        # forget the limits without bookings: perhaps no caller has them now
        self.booked = {name: booked for name, booked in self.booked.items() if booked.end > time}
        most = inf if horizon is None else horizon + ROUNDING
        far = [debt - limit.burst / limit.rate > most for limit, debt in zip(limits, ahead, strict=True)]
        answers: list[Spending] = []
        for request in requests:
            start, costs = 0.0, request.costs
            for limit, cost, debt in zip(limits, costs, ahead, strict=True):
                if cost:
                    start = max(start, debt + (cost - limit.burst) / limit.rate)
            if start < ROUNDING:
                start = 0.0
            delay = hold + start
            if (request.max_wait is not None and delay > request.max_wait + ROUNDING) or (
                start and any(cost and is_far for cost, is_far in zip(costs, far, strict=True))
            ):
                answers.append(Spending(False, delay, self.held, ()))
                continue
            bookings: list[Booking] = []
            for i, (limit, cost, debt) in enumerate(zip(limits, costs, ahead, strict=True)):
                after = debt
                if cost:
                    # what would come back beyond the burst before the start is lost
                    after = max(debt + cost / limit.rate, start + min(cost, limit.burst) / limit.rate)
                    by = session if delay > 0 else ""
                    self.booked[limit.name] = Booked(
                        time + after, limit.rate, 0.0, by, time + start, after - debt
                    )
                    ahead[i] = min(after, LONGEST)
                bookings.append(Booking(time + after, after - debt))
            if delay > 0:
                self.last_due = max(self.last_due, time + start)
            answers.append(Spending(True, delay, self.held, tuple(bookings)))
        return tuple(answers)

    def refund(
        self, limits: tuple[RateLimit, ...], request: RefundRequest, now: float, session: str = ""
    ) -> None:
        """Give back what the request of the session names."""
        time = self.time(now)
        for i, (limit, booking) in enumerate(zip(limits, request.bookings, strict=True)):
            booked = self.booked.get(limit.name)
            back = request.amounts[i] / limit.rate if request.amounts else booking.size
            if booked is None and back < 0:
                booked = Booked(time, limit.rate)
            if booked is None or not back:
                continue
            # relative to the limiter's time, in seconds at the rate of the booking
            change = booked.rate / limit.rate
            ahead, ends_in = (booked.end - time) * change, booking.end - time
            if not request.amounts:
                uncorrected = ahead - booked.moved * change
                if abs(uncorrected - ends_in) > ROUNDING or booked.session not in ("", session):
                    # there is another booking behind it, whose caller may have counted on none of it
                    continue
                if not booked.moved:
                    ahead = ends_in  # no rounding adds up
            elif back < 0:
                ahead = max(0.0, ahead)
            # corrections add up: no debt lasts for longer than the longest duration
            after = time + min((ahead - min(back, max(0.0, ends_in))) / change, LONGEST)
            if request.amounts:
                booked = replace(booked, end=after, moved=booked.moved + after - booked.end)
            else:
                booked = Booked(after, booked.rate, booked.moved)
            self.booked[limit.name] = booked

    def hold_off(self, seconds: float, now: float) -> bool:
        """Hold the limiter off for `seconds`; less than a microsecond ends a hold-off. Return False if
        nothing changes.
        """
        begin, end = max(now, self.held_until), now if seconds < ROUNDING / 2 else now + seconds
        if end <= begin and not now == end < begin:
            return False
        self.held += end - begin
        self.held_until = end
        return True

    def status(self, now: float) -> LimiterStatus:
        """The seconds for which the limiter is held off, and the bookings of each limit."""
        time = self.time(now)
        debts = [
            Debt(name, (booked.end - time) * booked.rate)
            for name, booked in sorted(self.booked.items())
            if booked.end > time
        ]
        waits = self.last_due + self.held - now if self.last_due > time + ROUNDING else 0.0
        return LimiterStatus(max(0.0, self.held_until - now), self.held, tuple(debts), waits)

    def _ahead(self, limit: RateLimit, time: float) -> float:
        """The seconds from `time` on for which a limit is booked, at its rate of today."""
        booked = self.booked.get(limit.name)
        if booked is None or booked.end <= time:
            return 0.0
        return min((booked.end - time) * (booked.rate / limit.rate), LONGEST)
