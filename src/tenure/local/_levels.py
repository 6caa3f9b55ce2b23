from __future__ import annotations

from collections.abc import Callable
from math import inf
from operator import add, sub
from typing import Any

from tenure.arguments import LONGEST
from tenure.limits import Cost, LimiterState, Limits

from ._level import MADE_UP, rounding_of, slack_of


class Amounts(tuple[float, ...]):
    __slots__ = ()

    def __add__(self, other: tuple[float, ...]) -> Amounts:  # type: ignore[override]
        return Amounts(map(add, self, other))

    def __sub__(self, other: tuple[float, ...]) -> Amounts:
        return Amounts(map(sub, self, other))

    def __format__(self, spec: str) -> str:
        return ", ".join(format(amount, spec) for amount in self)


class Levels:
    """As `Level`, for several limits: an amount is a number for each of them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        first = limits.all[0]
        self.rate: float = first.per_second
        self.burst: float = first.most
        self._per: list[float] = [1 / limit.per_second for limit in limits.all]
        self.per: float = min(self._per)
        self._fills_in: list[float] = [limit.most / limit.per_second for limit in limits.all]
        self._slack: list[float] = list(map(slack_of, self._per, self._fills_in))
        self._terms = list(zip(self._per, self._fills_in, self._slack, strict=True))
        self._full_at: list[float] = [-inf for _ in limits.all]
        """The time at which each bucket is full if no more is taken."""
        self.none: Any = Amounts([0.0 for _ in limits.all])

    def __repr__(self) -> str:
        return repr(self._limits)

    def amount(self, n: Cost) -> Any:
        return self._limits.amounts(n)

    def costs(self, cost: Cost) -> tuple[Limits, dict[str, float]]:
        return self._limits, self._limits.costs(cost)

    def take(self, n: tuple[float, ...], time: float, late: bool) -> bool:
        after: list[float] = []
        for amount, full_at, (per, fills_in, slack) in zip(n, self._full_at, self._terms, strict=True):
            least = time - slack if late else time
            # `due` has the same sums, so that a due amount is never refused for a rounding error
            least = max(least, full_at)
            then = least + amount * per
            due = then - fills_in
            if amount and due > time and due - rounding_of(fills_in / per, then) > time:
                return False
            after.append(then)
        self._full_at = after
        return True

    def due(self, n: tuple[float, ...]) -> float:
        due = -inf
        for amount, full_at, per, fills_in in zip(n, self._full_at, self._per, self._fills_in, strict=True):
            if amount and (when := full_at + amount * per - fills_in) > due:
                due = when
        return due

    def due_behind(self, n: tuple[float, ...], ahead: Amounts, time: float, late: bool) -> float:
        due = -inf
        for i, amount in enumerate(n):
            if amount:
                least = time - self._slack[i] if late else time
                full_at = self._full_at[i]
                full_at = max(full_at, least)
                when = full_at + (ahead[i] + amount) * self._per[i] - self._fills_in[i]
                due = max(due, when)
        return due

    def spend(self, n: tuple[float, ...], time: float, held_until: float) -> None:
        # what had no room before it was due is lost; what had none since then only if that is long past
        due = self.due(n)
        as_of = time if time - due > MADE_UP else max(due, held_until)
        full_at = self._full_at
        for i, amount in enumerate(n):
            least = as_of - self._slack[i]
            full_at[i] = (max(least, full_at[i])) + amount * self._per[i]

    def book(self, n: tuple[float, ...], time: float, late: bool) -> None:
        self._full_at = self._clamped(time, late)
        self._full_at = self._clamped(max(time, self.due(n)), late=False)
        self._add(n, 1)

    def give_back(self, n: tuple[float, ...]) -> None:
        self._add(n, -1)

    def ends(self) -> list[float]:
        return list(self._full_at)

    def correct(self, back: tuple[float, ...], ends: list[float], time: float, late: bool) -> None:
        del late
        for i, amount in enumerate(back):
            if amount > 0:
                self._full_at[i] -= max(0.0, min(amount * self._per[i], ends[i] - time))
            elif amount < 0:
                # corrections add up: no debt lasts for longer than the longest duration
                self._full_at[i] = min(max(self._full_at[i], time) - amount * self._per[i], time + LONGEST)

    def hold(self, seconds: float, time: float) -> None:
        self._full_at = [max(full_at, time) + seconds for full_at in self._full_at]

    def set_rate(self, rate: float, time: Callable[[], float]) -> None:
        del rate, time
        raise TypeError("a bucket with limits has no single rate")

    def debt(self, time: float) -> float:
        return self._debts(time)[0]

    def state(self, ahead: Amounts, time: float, late: bool, held_until: float) -> LimiterState:
        del late
        debts = map(add, self._debts(max(time, held_until)), ahead)
        return self._limits.state(list(debts), max(0.0, held_until - time))

    def _add(self, n: tuple[float, ...], sign: int) -> None:
        self._full_at = [
            full_at + sign * amount * per
            for full_at, amount, per in zip(self._full_at, n, self._per, strict=True)
        ]

    def _clamped(self, time: float, late: bool) -> list[float]:
        if not late:
            return [max(full_at, time) for full_at in self._full_at]
        return [max(full_at, time - slack) for full_at, slack in zip(self._full_at, self._slack, strict=True)]

    def _debts(self, time: float) -> list[float]:
        return [max(0.0, full_at - time) / per for full_at, per in zip(self._full_at, self._per, strict=True)]
