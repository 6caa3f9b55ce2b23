"""Rates with bursts: the generic cell rate algorithm, with a line of waiters."""

# The classes of this file are one idea.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from numbers import Real
from typing import Any, Self, cast, overload

import anyio
from anyio import CancelScope, WouldBlock

from tenure.arguments import LONGEST, AsyncBlock, check_flag, check_seconds
from tenure.errors import WouldExceedDeadline
from tenure.limits import REQUESTS, Available, Cost, Limit, LimiterState, Limits, Spending, SpendingBlock
from tenure.waiting import Line, Waiter, checkpoint, now

from ._levels import Amounts, Levels, slack_of

__all__ = ("Reservation", "TokenBucket", "TokenBucketStatistics")

MADE_UP = 0.05
"""Seconds: if the loop was late by no more than this, nothing that fell due while tasks waited is lost. After more,
the bucket has what fits into it, or what fell due in that time if that is more."""

TICK = 0.001
"""Seconds: the timekeeper sleeps no shorter, and then admits all that fell due. Loops spin for shorter sleeps."""


@dataclass(frozen=True, slots=True)
class TokenBucketStatistics:
    """The state of a token bucket at one moment."""

    rate: float
    """Tokens a second."""
    burst: float
    """The number of tokens that the bucket holds."""
    tokens: float
    """The number of tokens that are there now; below zero by the number that was reserved ahead."""
    tasks_waiting: int
    """The number of waiting tasks, and of reservations behind them; tasks cancelled in this turn of the loop may
    still count."""


class Reservation:
    """Tokens that are booked: act after `delay` seconds, or `cancel`.

    Thread safety: none; all on the thread of one loop.
    """

    __slots__ = ("_bucket", "_due", "_held", "_n", "_place")

    def __init__(self, bucket: TokenBucket, n: float, due: float) -> None:
        self._bucket = bucket
        self._n = n
        self._due = due
        self._held = bucket._held
        self._place: Waiter[_Request, bool] | None = None

    @property
    def delay(self) -> float:
        """Seconds from now until the tokens may be used; zero when they may.

        It was fixed when they were reserved, at the rate of that moment; only `hold_off` puts it off.
        """
        return max(0.0, self._time - now())

    @property
    def _time(self) -> float:
        return self._due + (self._bucket._held - self._held)

    def cancel(self) -> bool:
        """Give the tokens back, if their time has not come; later waiters get theirs sooner.

        Returns whether it did.
        """
        if not self._n or (self._place is None and self._time < now()):
            return False
        n, self._n = self._n, 0.0
        self._bucket._unreserve(n, self._place)
        return True

    def __repr__(self) -> str:
        return f"<Reservation of {self._n:g} in {self.delay:g} s>" if self._n else "<Reservation given back>"


class _Request:
    """A waiter's request; `booking` for a reservation, which has no task."""

    __slots__ = ("booking", "n")

    def __init__(self, n: float, booking: Reservation | None = None) -> None:
        self.n = n
        self.booking = booking


_HOLD = _Request(0.0)
"""Keeps the place of the timekeeper while the bucket is held off and no task waits; it may stay there after that."""

_ONE_UNIT = Limits((Limit(1e12),))
"""A bucket with a rate counts requests."""


class TokenBucket(AsyncBlock):
    """Lets `rate` tokens a second through, and at most `burst` at once after a pause.

    First come, first served, whatever the weights: a task that wants many tokens delays later ones, and is not
    overtaken. Waiting takes no lock; one task of the line keeps the time for all. When a task gives up, or a
    reservation is cancelled, later tasks go sooner. Tokens that fell due while tasks waited are not lost by waking
    late (up to 50 ms), so the rate is exact. After a longer stop of the loop all that fell due is there, as far as it
    fits into the bucket: up to `burst` go at once (or as many as fall due in 50 ms, if a high rate makes that more).

    The algorithm is GCRA (ITU-T I.371): one number, the theoretical arrival time.

    With `limits=` there are several limits at once, also of several units: an amount is taken from all of them or
    from none. `n` may then be a mapping of units to numbers, as the `cost` of a `RateLimiter`.
    `rate`, `burst` and `statistics` are those of the first limit.

    ``async with bucket:`` takes one token before the block, and gives nothing back after it.

    Cancellation: see `acquire`.

    Thread safety: none; all on the thread of one loop.
    """

    def __new__(
        cls, rate: float | None = None, burst: float = 1, *, limits: Sequence[Limit] | None = None
    ) -> Self:
        """Make one with a rate, or one with limits."""
        del rate, burst
        of_limits = limits is not None and cls is TokenBucket
        return super().__new__(cast("type[Self]", _OfLimits) if of_limits else cls)

    @overload
    def __init__(self, rate: float, burst: float = 1) -> None: ...

    @overload
    def __init__(self, *, limits: Sequence[Limit]) -> None: ...

    def __init__(
        self, rate: float | None = None, burst: float = 1, *, limits: Sequence[Limit] | None = None
    ) -> None:
        """Make a full bucket; outside a running loop too."""
        if limits is not None:
            raise TypeError("give either a rate or limits")
        _check_positive("rate", rate)
        _check_positive("burst", burst)
        self._burst = float(burst)
        self._set(cast("float", rate))
        # when the bucket would be full if no more were taken
        self._full_at = -inf
        # until then it may be overfull by the slack: tasks that were woken late come back, and find what fell due
        self._late_until = -inf
        self._waiting = 0.0
        self._line: Line[_Request, bool] = Line(self._left)
        # the timekeeper: the head of the line, taken out of it; there is one while any task waits
        self._keeper: _Request | None = None
        self._alarm: CancelScope | None = None
        self._no_sooner = -inf
        # until when the bucket is held off, and for how long it was held off in all
        self._held_until = -inf
        self._held = 0.0

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self._rate

    @property
    def burst(self) -> float:
        """The number of tokens that the bucket holds."""
        return self._burst

    # taking

    @overload
    def acquire_nowait(self, n: float = 1) -> None: ...

    @overload
    def acquire_nowait(self, n: Mapping[str, float]) -> None: ...

    def acquire_nowait(self, n: Any = 1) -> None:
        """Take `n` tokens now, or raise `anyio.WouldBlock`. ValueError for more than the burst."""
        if not self._take(self._check(n), now()):
            raise WouldBlock

    @overload
    async def acquire(self, n: float = 1, fail_fast: bool = False) -> None: ...

    @overload
    async def acquire(self, n: Mapping[str, float], fail_fast: bool = False) -> None: ...

    async def acquire(self, n: Any = 1, fail_fast: bool = False) -> None:
        """Take `n` tokens; waits, first come first served, until they are there. Always a checkpoint.

        A wait that the scopes around it do not allow (`anyio.current_effective_deadline`) takes nothing and holds no
        place: with `fail_fast` it raises `WouldExceedDeadline` at once, else it sleeps until the scope ends it.
        ValueError for more than the burst.

        Cancellation: nothing is taken and the place in the line is lost; later waiters go sooner.
        """
        if fail_fast is not False:
            check_flag("fail_fast", fail_fast)
        try:
            fits = 0 < n <= self._burst
        except TypeError:
            fits = False
        if not fits:
            n = self._check(n)
        if self._keeper is None:
            # what `_take` does, without the calls
            time = now()
            full_at = self._full_at
            if full_at < time:
                full_at = time if time > self._late_until else max(full_at, time - self._slack)
            if full_at + (n - self._burst) * self._per <= time:
                self._full_at = full_at + n * self._per
                try:
                    await checkpoint()
                except BaseException:
                    self._give_back(n)
                    raise
                return
        while (due := self._due_at(n)) > (deadline := anyio.current_effective_deadline()):
            if fail_fast:
                raise WouldExceedDeadline("token bucket", due - now())
            await anyio.sleep_until(deadline)
        request = _Request(n)
        if self._keeper is None or self._keeper is _HOLD:
            self._keeper = request
            await self._keep_time(request)
            return
        self._waiting += n
        if not await self._line.wait(self._line.join(request)):
            await self._keep_time(request)

    async def __aenter__(self) -> None:
        """Take one token, as `acquire` does. Cancellation: nothing is taken."""
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: a token is not given back. No checkpoint."""

    def _take(self, n: float, time: float) -> bool:
        """Take the tokens, if they are there and no task waits for them."""
        # the sums are those of `_due_of`, so that what is due is never refused for a rounding error
        full_at = self._clamped(time)
        if (self._keeper is not None and self._is_kept(time)) or full_at + (
            n - self._burst
        ) * self._per > time:
            return False
        self._full_at = full_at + n * self._per
        return True

    def _is_kept(self, time: float) -> bool:
        """True if a task keeps the time, or the bucket is held off."""
        if self._keeper is _HOLD and time >= self._held_until:
            self._keeper = None
        return self._keeper is not None

    def _clamped(self, time: float) -> float:
        """The time at which the bucket would be full, less the tokens that it has no room for."""
        return max(self._full_at, time if time > self._late_until else time - self._slack)

    # waiting

    def _due_of(self, n: float) -> float:
        """The time at which the next waiter in line may have `n` tokens."""
        return self._full_at + (n - self._burst) * self._per

    def _due_at(self, n: float) -> float:
        """The time at which a task that joins the line now may have `n` tokens."""
        ahead = self._waiting + (0.0 if self._keeper is None else self._keeper.n)
        due = self._clamped(now()) + (ahead + n - self._burst) * self._per
        return max(due, self._held_until)

    async def _keep_time(self, request: _Request) -> None:
        """Sleep until this task may take its tokens. Then admit all that is due, and hand the timekeeping on."""
        self._no_sooner = now() + TICK if self._per < TICK else -inf
        try:
            with CancelScope(deadline=self._next_alarm(request.n)) as self._alarm:
                await anyio.sleep_forever()
            time = now()
            self._late_until = time + min(time - self._due_of(request.n), MADE_UP) + TICK
            self._spend(request.n, time)
        finally:
            self._alarm = None
            self._keeper = None
            self._let_in(now())

    def _next_alarm(self, n: float) -> float:
        return max(self._due_of(n), self._no_sooner, self._held_until)

    def _spend(self, n: float, time: float) -> None:
        """Take the tokens of the next in line, as of the moment when they were due, unless that is long past."""
        if time - self._due_of(n) > MADE_UP:
            self._full_at = max(self._full_at, time - self._slack)  # what found no room meanwhile is lost
        self._full_at += n * self._per

    def _let_in(self, time: float) -> None:
        """Grant all that is due, and make the first request that is not due the timekeeper."""
        line = self._line
        while self._keeper is None and (waiter := line.head()) is not None:
            request = waiter.want
            self._waiting -= request.n
            if request.booking is not None or (self._due_of(request.n) <= time and self._held_until <= time):
                # a reservation needs no waking: its owner sleeps by itself
                self._spend(request.n, time)
                if request.booking is not None:
                    request.booking._place = None
                line.grant(waiter, True)
            else:
                self._keeper = request
                line.grant(waiter, False)
        if self._keeper is None and self._held_until > time:
            self._keeper = _HOLD

    def _left(self, waiter: Waiter[_Request, bool]) -> None:
        request = waiter.want
        if not waiter.granted:
            self._waiting -= request.n
        elif waiter.value:
            self._give_back(request.n)
        else:
            self._keeper = None
        self._let_in(now())

    def _give_back(self, n: float) -> None:
        self._full_at -= n * self._per
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None and self._keeper is not None:
            self._alarm.deadline = self._next_alarm(self._keeper.n)

    # reserving

    @overload
    def reserve(self, n: float = 1) -> Reservation: ...

    @overload
    def reserve(self, n: Mapping[str, float]) -> Reservation: ...

    def reserve(self, n: Any = 1) -> Reservation:
        """Book `n` tokens ahead, behind all waiting tasks: act after the reservation's `delay`, or cancel it.

        ValueError for more than the burst.
        """
        n = self._check(n)
        time = now()
        reservation = Reservation(self, n, max(time, self._due_at(n)))
        if self._keeper is None or self._keeper is _HOLD:
            self._book(n, time)
        else:
            self._waiting += n
            reservation._place = self._line.join(_Request(n, reservation))
        return reservation

    def _book(self, n: float, time: float) -> None:
        self._full_at = self._clamped(time) + n * self._per

    def _unreserve(self, n: float, place: Waiter[_Request, bool] | None) -> None:
        if place is None:
            self._give_back(n)
        else:
            self._line.leave(place)

    # spending

    def spend(self, cost: Cost = 1, fail_fast: bool = False) -> AbstractAsyncContextManager[Spending]:
        """Take `cost` for a block, `async with bucket.spend({"tokens": 800}) as spending`.

        Entering waits as `acquire` does, and raises the same. In the block, `spending.correct({"tokens": 655})` sets
        what it really cost. When the block ends, the difference is taken, also above the burst, or given back as far as
        time has not brought it back already. Without a correction it stays as it was, also if the block raises.
        Cancellation: while waiting, nothing is taken; in the block, a correction counts nevertheless.
        """
        limits, costs = self._costs(cost)
        n = costs if isinstance(self, _OfLimits) else costs[REQUESTS]
        book = partial(self._acquire_spending, n, check_flag("fail_fast", fail_fast))
        return SpendingBlock("token bucket", Spending(limits, costs), book, self._correct_spending)

    def _costs(self, cost: Cost) -> tuple[Limits, dict[str, float]]:
        costs = _ONE_UNIT.costs(cost)
        self._check(costs[REQUESTS])
        return _ONE_UNIT, costs

    async def _acquire_spending(self, n: Any, fail_fast: bool) -> tuple[list[float], float]:
        """Take `n`. Returns when it will be back, in each limit, and for how long the bucket was held off so far."""
        await self.acquire(n, fail_fast)
        return self._ends(), self._held

    def _correct_spending(self, taken: tuple[list[float], float], back: tuple[float, ...]) -> None:
        ends, held = taken
        self._correct(back, [end + (self._held - held) for end in ends])
        self._set_alarm()

    def _ends(self) -> list[float]:
        """The time at which the last taken tokens will be back, in each limit."""
        return [self._full_at]

    def _correct(self, back: tuple[float, ...], ends: list[float]) -> None:
        time = max(now(), self._held_until)
        (amount,), (end,) = back, ends
        if amount > 0:
            self._full_at -= max(0.0, min(amount * self._per, end - time))
        else:
            # corrections add up: no debt lasts for longer than the longest duration
            self._full_at = min(self._clamped(time) - amount * self._per, time + LONGEST)

    # holding off

    async def hold_off(self, seconds: float) -> None:
        """Stop all callers for so many seconds, as after an answer 429 with Retry-After.

        Tasks that wait already, and reservations, go later by as much. If the bucket is held off already, the later
        end counts. Cancellation: it is not held off.
        """
        seconds = check_seconds("seconds", seconds)
        await checkpoint()
        time = now()
        begin, end = max(time, self._held_until), time + seconds
        if end > begin:
            self._hold(end - begin, begin)
            self._held += end - begin
            self._held_until = end
            if self._keeper is None:
                self._keeper = _HOLD
            self._set_alarm()

    def _hold(self, seconds: float, time: float) -> None:
        """Let the time of the bucket stand still for so long."""
        self._full_at = max(self._full_at, time) + seconds

    async def look(self) -> LimiterState:
        """Return what may be taken at once, and when something may; tasks that wait come first. A checkpoint."""
        await checkpoint()
        time = now()
        held_off = max(0.0, self._held_until - time)
        tokens = self._burst - max(0.0, self._due_at(self._burst) - time - held_off) * self._rate
        tokens = 0.0 if held_off else max(0.0, tokens)
        wait = max(0.0, self._due_at(min(1.0, self._burst)) - time)
        return LimiterState(Available(tokens, {REQUESTS: tokens}), wait, held_off)

    # the rate

    def set_rate(self, rate: float) -> None:
        """Change the rate; waiting tasks use the new one from now on. What is in the bucket stays."""
        _check_positive("rate", rate)
        time = max(now(), self._held_until)
        missing = (self._full_at - time) * self._rate if self._full_at > time else 0.0
        self._set(rate)
        self._full_at = time + missing * self._per
        self._set_alarm()

    def _set(self, rate: float) -> None:
        self._rate, self._per = float(rate), 1 / rate
        # seconds by which the bucket may be overfull: one token more than falls due in `MADE_UP`, if it does not hold
        # that much; else a part of a token, so that no more than the burst goes at once
        fills_in = self._burst * self._per
        more = MADE_UP - fills_in + self._per if fills_in < MADE_UP else self._per / 2
        self._slack = min(MADE_UP, more)

    # looking

    def statistics(self) -> TokenBucketStatistics:
        """Return the current state."""
        tokens = self._burst - max(0.0, self._full_at - max(now(), self._held_until)) * self._rate
        return TokenBucketStatistics(self._rate, self._burst, tokens, self._tasks_waiting())

    def _tasks_waiting(self) -> int:
        return len(self._line) + (self._keeper is not None and self._keeper is not _HOLD)

    def __repr__(self) -> str:
        return f"<TokenBucket {self._rate:g}/s, burst {self._burst:g}, {self._tasks_waiting()} waiting>"

    def _check(self, n: Any) -> Any:
        """The number of tokens. Raises `TypeError` for anything else, `ValueError` for more than the burst."""
        if isinstance(n, Mapping):
            n = _ONE_UNIT.costs(cast("Cost", n))[REQUESTS]
        elif not isinstance(n, Real):
            raise TypeError(f"n must be a number, or a mapping of units to numbers, not {n!r}")
        if not 0 < cast("float", n) <= self._burst:
            raise ValueError(f"n must be above 0 and at most the burst of {self._burst:g}, not {n!r}")
        return n


class _OfLimits(TokenBucket):
    """A bucket of several limits. What is a number in the other is an amount for each limit here."""

    def __init__(
        self, rate: float | None = None, burst: float = 1, *, limits: Sequence[Limit] | None = None
    ) -> None:
        if rate is not None or burst != 1 or limits is None:
            raise TypeError("give either a rate or limits")
        self._limits = Limits(limits)
        first = self._limits.all[0]
        super().__init__(first.per_second, first.most)
        self._levels = Levels(self._limits, [slack_of(limit, MADE_UP) for limit in self._limits.all])
        self._per = min(self._levels.per)  # for the tick
        self._waiting = cast("Any", self._levels.none)

    def acquire_nowait(self, n: Any = 1) -> None:
        if not self._take(self._limits.amounts(n), now()):
            raise WouldBlock

    async def acquire(self, n: Any = 1, fail_fast: bool = False) -> None:
        taken = self._limits.amounts(n)
        if self._take(taken, now()):
            try:
                await checkpoint()
            except BaseException:
                self._give_back(taken)
                raise
            return
        amounts: Any = Amounts(taken)
        while (due := self._due_at(amounts)) > (deadline := anyio.current_effective_deadline()):
            if fail_fast:
                raise WouldExceedDeadline("token bucket", due - now())
            await anyio.sleep_until(deadline)
        request = _Request(amounts)
        if self._keeper is None or self._keeper is _HOLD:
            self._keeper = request
            await self._keep_time(request)
            return
        self._waiting += amounts
        if not await self._line.wait(self._line.join(request)):
            await self._keep_time(request)

    def reserve(self, n: Any = 1) -> Reservation:
        return super().reserve(cast("Any", self._levels.amounts(n)))

    def set_rate(self, rate: float) -> None:
        del rate
        raise TypeError("a bucket with limits has no single rate")

    def statistics(self) -> TokenBucketStatistics:
        (debt, *_) = self._levels.debts(max(now(), self._held_until))
        return TokenBucketStatistics(self._rate, self._burst, self._burst - debt, self._tasks_waiting())

    async def look(self) -> LimiterState:
        await checkpoint()
        time = now()
        held_off = max(0.0, self._held_until - time)
        levels, ahead = self._levels, self._ahead()
        debts = [
            debt + amount
            for debt, amount in zip(levels.debts(max(time, self._held_until)), ahead, strict=True)
        ]
        return self._limits.state(debts, held_off)

    def __repr__(self) -> str:
        return f"<TokenBucket {self._limits!r}, {self._tasks_waiting()} waiting>"

    # the arithmetic

    def _take(self, n: Any, time: float) -> bool:
        if self._keeper is not None and self._is_kept(time):
            return False
        return self._levels.take_at(n, time, time <= self._late_until)

    def _clamp(self, time: float) -> None:
        self._levels.full_at = self._levels.clamped(time, late=time <= self._late_until)

    def _ahead(self) -> Amounts:
        keeper: Any = self._keeper
        waiting = cast("Amounts", self._waiting)
        return waiting if keeper is None or keeper is _HOLD else waiting + keeper.n

    def _due_of(self, n: Any) -> float:
        return self._levels.due(n)

    def _due_at(self, n: Any) -> float:
        time = now()
        due = self._levels.due_behind(n, self._ahead(), time, time <= self._late_until)
        return max(due, self._held_until)

    def _spend(self, n: Any, time: float) -> None:
        # what had no room before it was due is lost; what had none since then only if that is long past
        due = self._levels.due(n)
        as_of = time if time - due > MADE_UP else max(due, self._held_until)
        self._levels.spend(n, as_of)

    def _give_back(self, n: Any) -> None:
        self._levels.take(self._levels.none - n)
        self._set_alarm()

    def _book(self, n: Any, time: float) -> None:
        self._clamp(time)
        due = max(time, self._levels.due(n))
        self._levels.full_at = self._levels.clamped(due, late=False)
        self._levels.take(n)

    def _costs(self, cost: Cost) -> tuple[Limits, dict[str, float]]:
        return self._limits, self._limits.costs(cost)

    def _ends(self) -> list[float]:
        return list(self._levels.full_at)

    def _correct(self, back: tuple[float, ...], ends: list[float]) -> None:
        self._levels.correct(back, ends, max(now(), self._held_until))

    def _hold(self, seconds: float, time: float) -> None:
        self._levels.hold(seconds, time)

    def _check(self, n: Any) -> Any:
        """The amounts were checked when they were made."""
        return n


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not value > 0 or not isfinite(value):
        raise ValueError(f"{name} must be a number above zero, not {value!r}")
