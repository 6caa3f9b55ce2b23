"""Limits of a rate, the meaning of a cost for each of them, and the amounts left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

from tenure.arguments import (
    LONGEST,
    AsyncBlock,
    NotAwaited,
    Seconds,
    check_name,
    check_number,
    check_seconds,
    seconds_of,
)

B = TypeVar("B")
"""The booking that a limiter keeps, to correct it."""

REQUESTS = "requests"
"""The usual unit. Every call costs 1 of it unless its cost names another amount."""

Cost = float | Mapping[str, float]
"""A cost: a number of the usual unit, or a number for each unit."""

_FASTEST = 1e12
"""The fastest rate per second: engines count in microseconds, and cannot distinguish faster rates."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit: on average at most `rate` of a unit in `per` seconds, and up to `burst` at once after a pause.

    `burst` is `rate` by default, 1 at least; `unit` is "requests".
    """

    rate: float
    per: Seconds = 1.0
    burst: float | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        rate, per = check_number("rate", self.rate), check_seconds("per", self.per, least=None)
        burst = max(1.0, rate) if self.burst is None else check_number("burst", self.burst, least=1)
        if not burst / LONGEST <= rate / per <= _FASTEST:
            raise ValueError(
                f"rate must be at most {_FASTEST:g} a second, and bring the burst of {burst:g} back within "
                f"{LONGEST:g} seconds, not {rate:g} per {per:g} s"
            )
        for name, value in (("rate", rate), ("per", per), ("burst", self.burst and burst)):
            object.__setattr__(self, name, value)
        check_name("unit", REQUESTS if self.unit is None else self.unit)

    @property
    def most(self) -> float:
        """The burst, also if it is the default."""
        return max(1.0, self.rate) if self.burst is None else self.burst

    @property
    def per_second(self) -> float:
        """The rate per second."""
        return self.rate / seconds_of(self.per)


class Available(float):
    """The amount that may be spent now, 0 while held off: a number of the usual unit.

    `available["tokens"]` is the amount of another unit.
    """

    __slots__ = ("_amounts",)

    _amounts: Mapping[str, float]

    def __new__(cls, amount: float, amounts: Mapping[str, float]) -> Self:
        """Make an amount from the amount of the usual unit and the amounts of all units."""
        self = super().__new__(cls, amount)
        self._amounts = amounts
        return self

    def __getitem__(self, unit: str) -> float:
        return self._amounts[unit]

    def __getnewargs__(self) -> Any:  # for copies and pickles
        return float(self), self._amounts

    def __repr__(self) -> str:
        return f"Available({float(self):g}, {dict(self._amounts)})"


class LimiterState(NamedTuple):
    """The state of a limiter at one moment."""

    available: Available
    """The number of calls of cost 1 that may start now, with a fraction. See `Available` for other units."""
    retry_after: float
    """Seconds until a call of cost 1 could start; 0 if it could start now."""
    held_off: float
    """Seconds for which the limiter is held off from now on; 0 if it is not."""


class Limits:
    """The limits of one limiter, each with a unit and a time of its own.

    A plain number is a cost in the usual unit: "requests", or the only unit.
    """

    def __init__(self, limits: Iterable[Limit]) -> None:
        self.all: tuple[Limit, ...] = tuple(limits)
        if not self.all:
            raise TypeError("a limiter must have a limit: write Limit(100)")
        for limit in self.all:
            if not isinstance(limit, Limit):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(
                    f"limits must be of tenure.Limit, not {type(limit).__name__}: write Limit(100)"
                )
        self.each: tuple[str, ...] = tuple(limit.unit or REQUESTS for limit in self.all)
        names = [(unit, limit.per) for unit, limit in zip(self.each, self.all, strict=True)]
        for unit, per in names:
            if names.count((unit, per)) > 1:
                raise ValueError(f"limits must not have two of {unit!r} per {per:g} s")
        self.units: tuple[str, ...] = tuple(dict.fromkeys(self.each))
        self._last: tuple[type, Cost, tuple[float, ...]] = (type(None), 0.0, ())
        self._usual = REQUESTS if REQUESTS in self.units else self.units[0] if len(self.units) == 1 else None

    def __repr__(self) -> str:
        return ", ".join(
            f"{limit.per_second:g}{'' if unit == REQUESTS else ' ' + unit}/s burst={limit.most:g}"
            for unit, limit in zip(self.each, self.all, strict=True)
        )

    def costs(self, cost: Cost) -> dict[str, float]:
        """The cost as an amount of each unit. Raises `ValueError` above a burst, and for a unit without a limit."""
        costs = dict.fromkeys(self.units, 0.0)
        if isinstance(cost, Mapping):
            if REQUESTS in costs:
                costs[REQUESTS] = 1.0
            costs.update(self.named(cost))
        else:
            costs[self._unit()] = check_number("cost", cost)
        for unit, limit in zip(self.each, self.all, strict=True):
            if costs[unit] > limit.most:
                raise ValueError(
                    f"cost must be at most the burst of {limit.most:g} {unit}, not {costs[unit]:g}"
                )
        return costs

    def amounts(self, cost: Cost) -> tuple[float, ...]:
        """The cost as an amount in each limit. Raises as `costs` does."""
        # most calls cost the same as the call before
        kind, last, amounts = self._last
        if type(cost) is kind and cost == last:
            return amounts
        costs = self.costs(cost)
        amounts = tuple(costs[unit] for unit in self.each)
        self._last = (type(cost), dict(cost) if isinstance(cost, Mapping) else cost, amounts)
        return amounts

    def named(self, cost: Cost) -> dict[str, float]:
        """The units that a cost names, with their amounts. Raises `ValueError` for a unit without a limit."""
        if not isinstance(cost, Mapping):
            return {self._unit(): check_number("cost", cost, least=0)}
        for unit in cast("Mapping[Any, Any]", cost):
            if unit not in self.units:
                raise ValueError(f"cost has the unit {unit!r}, for which there is no limit")
        return {unit: check_number(f"cost of {unit!r}", amount, least=0) for unit, amount in cost.items()}

    def state(self, debts: Sequence[float], held_off: float) -> LimiterState:
        """The state of a limiter in which this much of each limit is booked."""
        left = {unit: float("inf") for unit in self.units}
        wait = 0.0
        for unit, limit, debt in zip(self.each, self.all, debts, strict=True):
            left[unit] = min(left[unit], limit.most - debt)
            cost = 1.0 if unit == self._usual else 0.0
            if cost or self._usual is None:
                wait = max(wait, (debt + cost - limit.most) / limit.per_second)
        amounts = {unit: 0.0 if held_off > 0 else max(0.0, amount) for unit, amount in left.items()}
        usual = min(amounts.values()) if self._usual is None else amounts[self._usual]
        return LimiterState(Available(usual, amounts), held_off + wait, held_off)

    def _unit(self) -> str:
        if self._usual is None:
            raise ValueError(f"cost must name its units: there is no limit of {REQUESTS!r}")
        return self._usual


class Spending:
    """The booking of a `spend` block. Thread safety: any."""

    __slots__ = ("_booked", "_ended", "_limits", "_named")

    def __init__(self, limits: Limits, booked: Mapping[str, float]) -> None:
        self._limits = limits
        self._booked = booked
        self._named: Mapping[str, float] = {}
        self._ended = False

    def __repr__(self) -> str:
        return f"<Spending {dict(self.cost)}>"

    @property
    def cost(self) -> Mapping[str, float]:
        """The cost in each unit, as booked or as corrected."""
        return {**self._booked, **self._named}

    def correct(self, cost: Cost) -> None:
        """Set the real cost; units that are not named stay as booked. The last of several corrections counts.

        The difference is booked or given back when the block ends. A cost above the burst is allowed: later calls
        wait longer. Raises `ValueError` for a unit without a limit, and `RuntimeError` after the block.
        """
        if self._ended:
            raise RuntimeError("the block of this spending has ended: correct it in the block")
        self._named = self._limits.named(cost)

    def ended(self) -> tuple[float, ...]:
        """End the block. Returns how much too much was booked of each limit (negative: too little); empty if none."""
        self._ended = True
        back = tuple(self._booked[unit] - self.cost[unit] for unit in self._limits.each)
        return back if any(back) else ()


class SpendingBlock(AsyncBlock, NotAwaited, AbstractAsyncContextManager[Spending, None], Generic[B]):
    """The block of a `spend`, for one use: books on entering, and corrects the booking on leaving."""

    __slots__ = ("_book", "_booked", "_correct", "_entered", "_name", "_spending")

    def __init__(
        self,
        name: str,
        spending: Spending,
        book: Callable[[], Awaitable[B]],
        correct: Callable[[B, tuple[float, ...]], None],
    ) -> None:
        self._name = name
        self._spending = spending
        self._book = book
        self._correct = correct
        self._entered = False
        self._booked: tuple[B] | None = None

    async def __aenter__(self) -> Spending:
        if self._entered:
            raise RuntimeError(f"{self._name}: this block was entered before; make a new one")
        self._entered = True
        self._booked = (await self._book(),)
        return self._spending

    async def __aexit__(self, *_: object) -> None:
        """Book the difference, or give it back. No checkpoint."""
        if self._booked is None:
            raise RuntimeError(f"{self._name}: this block was not entered")
        if back := self._spending.ended():
            self._correct(*self._booked, back)
