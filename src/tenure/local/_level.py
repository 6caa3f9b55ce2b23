"""The arithmetic of a bucket of one rate with a burst, without waiting and without a clock.

A `time` is `late` for tasks that were woken late, and find what fell due meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isfinite, ulp
from numbers import Real
from typing import Any, cast

from tenure.arguments import LONGEST
from tenure.limits import REQUESTS, Available, Cost, Limit, LimiterState, Limits

MADE_UP = 0.05
"""Seconds by which the loop may be late without a loss of what fell due while tasks waited. After more, the bucket has
what fits into it, or what fell due in that time if that is more.
"""

_ONE_UNIT = Limits((Limit(1e12),))


class Level:
    __slots__ = ("_full_at", "_slack", "burst", "per", "rate")

    none: Any = 0.0

    def __init__(self, rate: float | None, burst: float) -> None:
        _check_positive("rate", rate)
        _check_positive("burst", burst)
        self.burst = float(burst)
        self._full_at = -inf
        self._set(cast("float", rate))

    def __repr__(self) -> str:
        return f"{self.rate:g}/s, burst {self.burst:g}"

    def _set(self, rate: float) -> None:
        self.rate, self.per = float(rate), 1 / rate
        self._slack = slack_of(self.per, self.burst * self.per)

    def amount(self, n: Any) -> Any:
        """The amount that a caller names. Raises `TypeError`, and `ValueError` for more than the burst."""
        try:
            if 0 < n <= self.burst:
                return n + 0.0  # a number that adds to no float is refused below
        except TypeError:
            pass
        if isinstance(n, Mapping):
            n = _ONE_UNIT.costs(cast("Cost", n))[REQUESTS]
        elif not isinstance(n, Real):
            raise TypeError(f"n must be a number, or a mapping of units to numbers, not {n!r}")
        if not 0 < cast("float", n) <= self.burst:
            raise ValueError(f"n must be above 0 and at most the burst of {self.burst:g}, not {n!r}")
        return n

    def costs(self, cost: Cost) -> tuple[Limits, dict[str, float]]:
        costs = _ONE_UNIT.costs(cost)
        self.amount(costs[REQUESTS])
        return _ONE_UNIT, costs

    def take(self, n: float, time: float, late: bool) -> bool:
        full_at = self._full_at
        if full_at < time:
            full_at = max(full_at, time - self._slack) if late else time
        # `due` has the same sums, so that a due amount is never refused for a rounding error
        due = full_at + (n - self.burst) * self.per
        if due > time and due - rounding_of(self.burst, full_at) > time:
            return False
        self._full_at = full_at + n * self.per
        return True

    def due(self, n: float) -> float:
        return self._full_at + (n - self.burst) * self.per

    def due_behind(self, n: float, ahead: float, time: float, late: bool) -> float:
        return self._clamped(time, late) + (ahead + n - self.burst) * self.per

    def spend(self, n: float, time: float, held_until: float) -> None:
        """Take the amount of the next in line, as of the moment when it was due, unless that is long past."""
        del held_until
        if time - self.due(n) > MADE_UP:
            self._full_at = max(self._full_at, time - self._slack)  # what found no room meanwhile is lost
        self._full_at += n * self.per

    def book(self, n: float, time: float, late: bool) -> None:
        """Take the amount ahead of its time."""
        self._full_at = self._clamped(time, late) + n * self.per

    def give_back(self, n: float) -> None:
        self._full_at -= n * self.per

    def ends(self) -> list[float]:
        return [self._full_at]

    def correct(self, back: tuple[float, ...], ends: list[float], time: float, late: bool) -> None:
        """Give amounts back as far as time has not done so, from bookings with these ends; below zero, take more."""
        (amount,), (end,) = back, ends
        if amount > 0:
            self._full_at -= max(0.0, min(amount * self.per, end - time))
        else:
            # corrections add up: no debt lasts for longer than the longest duration
            self._full_at = min(self._clamped(time, late) - amount * self.per, time + LONGEST)

    def hold(self, seconds: float, time: float) -> None:
        """Let the time of the bucket stand still for so long from then on."""
        self._full_at = max(self._full_at, time) + seconds

    def set_rate(self, rate: float, time: Callable[[], float]) -> None:
        """Change the rate; the tokens in the bucket stay. Raises before it calls `time`."""
        _check_positive("rate", rate)
        at = time()
        missing = self.debt(at)
        self._set(rate)
        self._full_at = at + missing * self.per

    def debt(self, time: float) -> float:
        return max(0.0, self._full_at - time) * self.rate

    def state(self, ahead: float, time: float, late: bool, held_until: float) -> LimiterState:
        def wait_for(n: float) -> float:
            return max(self.due_behind(n, ahead, time, late), held_until) - time

        held_off = max(0.0, held_until - time)
        tokens = max(0.0, self.burst - max(0.0, wait_for(self.burst) - held_off) * self.rate)
        tokens = 0.0 if held_off else tokens
        wait = max(0.0, wait_for(min(1.0, self.burst)))
        return LimiterState(Available(tokens, {REQUESTS: tokens}), wait, held_off)

    def _clamped(self, time: float, late: bool) -> float:
        return max(self._full_at, time - self._slack if late else time)


def slack_of(per: float, fills_in: float) -> float:
    """The seconds by which a bucket may be overfull after it was emptied late: no more than the burst goes at once.

    A bucket that holds fewer tokens than fall due in `MADE_UP` may hold one token more.
    """
    return min(MADE_UP, MADE_UP - fills_in + per if fills_in < MADE_UP else per / 2)


def rounding_of(burst: float, full_at: float) -> float:
    """The seconds by which the sum of a burst, taken in single tokens, may be too large."""
    return (burst + 1) * ulp(full_at)


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not value > 0 or not isfinite(value):
        raise ValueError(f"{name} must be a number above zero, not {value!r}")
