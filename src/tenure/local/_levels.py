"""Several limits at once, as one bucket sees them: when what fits into all, and what is left in each."""

from __future__ import annotations

from math import inf
from operator import add, sub

from tenure.arguments import LONGEST
from tenure.limits import Cost, Limit, Limits

__all__ = ("Amounts", "Levels")


class Amounts(tuple[float, ...]):
    """An amount for each limit; the sum of two has the sums."""

    __slots__ = ()

    def __add__(self, other: tuple[float, ...]) -> Amounts:  # type: ignore[override]
        return Amounts(map(add, self, other))

    def __sub__(self, other: tuple[float, ...]) -> Amounts:
        return Amounts(map(sub, self, other))

    def __format__(self, spec: str) -> str:
        return ", ".join(format(amount, spec) for amount in self)


class Levels:
    """A bucket for each limit; `slack` is for how many seconds each of them may be overfull for a while."""

    def __init__(self, limits: Limits, slack: list[float]) -> None:
        self.limits = limits
        self.per: list[float] = [1 / limit.per_second for limit in limits.all]
        self._burst: list[float] = [limit.most for limit in limits.all]
        self._fills_in: list[float] = [limit.most / limit.per_second for limit in limits.all]
        self._slack = slack
        self._terms = list(zip(self.per, self._fills_in, slack, strict=True))
        self.full_at: list[float] = [-inf for _ in limits.all]
        """The time at which each bucket is full if no more is taken."""
        self.none: Amounts = Amounts([0.0 for _ in limits.all])

    def amounts(self, cost: Cost) -> Amounts:
        """The amounts of a cost, one for each limit. Raises `ValueError` if the cost can never be met."""
        return Amounts(self.limits.amounts(cost))

    def take_at(self, amounts: tuple[float, ...], time: float, late: bool) -> bool:
        """Take them if all of them are there."""
        after: list[float] = []
        for amount, full_at, (per, fills_in, slack) in zip(amounts, self.full_at, self._terms, strict=True):
            least = time - slack if late else time
            # the sums are those of `due`, so that what is due is never refused for a rounding error
            least = max(least, full_at)
            then = least + amount * per
            if amount and then - fills_in > time:
                return False
            after.append(then)
        self.full_at = after
        return True

    def due(self, amounts: Amounts) -> float:
        """The time at which all amounts are there."""
        due = -inf
        for amount, full_at, per, fills_in in zip(
            amounts, self.full_at, self.per, self._fills_in, strict=True
        ):
            if amount and (when := full_at + amount * per - fills_in) > due:
                due = when
        return due

    def due_behind(self, amounts: Amounts, ahead: Amounts, time: float, late: bool) -> float:
        """The time at which all amounts are there for a caller that comes at `time`, behind the amounts ahead."""
        due = -inf
        for i, amount in enumerate(amounts):
            if amount:
                least = time - self._slack[i] if late else time
                full_at = self.full_at[i]
                full_at = max(full_at, least)
                when = full_at + (ahead[i] + amount) * self.per[i] - self._fills_in[i]
                due = max(due, when)
        return due

    def spend(self, amounts: Amounts, as_of: float) -> None:
        """Take them as of that time: what found no room before it is lost, but for the slack."""
        full_at = self.full_at
        for i, amount in enumerate(amounts):
            least = as_of - self._slack[i]
            full_at[i] = (max(least, full_at[i])) + amount * self.per[i]

    def clamped(self, time: float, late: bool) -> list[float]:
        """The time at which each bucket would be full, less the tokens that it has no room for."""
        if not late:
            return [max(full_at, time) for full_at in self.full_at]
        return [max(full_at, time - slack) for full_at, slack in zip(self.full_at, self._slack, strict=True)]

    def take(self, amounts: Amounts) -> None:
        """Take them; below zero they go back."""
        self.full_at = [
            full_at + amount * per
            for full_at, amount, per in zip(self.full_at, amounts, self.per, strict=True)
        ]

    def hold(self, seconds: float, time: float) -> None:
        """Let the time of the buckets stand still for so long from then on."""
        self.full_at = [max(full_at, time) + seconds for full_at in self.full_at]

    def correct(self, back: tuple[float, ...], ends: list[float], time: float) -> None:
        """Give amounts back as far as time has not done so, from bookings with these ends; below zero, take more."""
        for i, amount in enumerate(back):
            if amount > 0:
                self.full_at[i] -= max(0.0, min(amount * self.per[i], ends[i] - time))
            elif amount < 0:
                # corrections add up: no debt lasts for longer than the longest duration
                self.full_at[i] = min(max(self.full_at[i], time) - amount * self.per[i], time + LONGEST)

    def debts(self, time: float) -> list[float]:
        """The amount that each limit lacks."""
        return [max(0.0, full_at - time) / per for full_at, per in zip(self.full_at, self.per, strict=True)]


def slack_of(limit: Limit, made_up: float) -> float:
    """For how many seconds a bucket may be overfull, if it was emptied late."""
    per, fills_in = 1 / limit.per_second, limit.most / limit.per_second
    return min(made_up, made_up - fills_in + per if fills_in < made_up else per / 2)
