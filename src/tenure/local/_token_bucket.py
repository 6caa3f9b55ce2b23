# The classes of this file are one idea.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Self

import anyio
from anyio import CancelScope, WouldBlock

from tenure.arguments import AsyncBlock, Seconds, check_flag, check_seconds
from tenure.errors import WouldExceedDeadline
from tenure.limits import Cost, Limit, LimiterState, Limits, Spending, SpendingBlock
from tenure.waiting import Line, Waiter, checkpoint, loop_time, steady

from ._level import MADE_UP, Level
from ._levels import Levels

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
    """The number of waiting tasks, and of reservations behind them."""


class Reservation:
    """Tokens that are booked: act after `delay` seconds, or `cancel`."""

    __slots__ = ("_bucket", "_due", "_held", "_n", "_place")

    def __init__(self, bucket: TokenBucket, n: Any, due: float) -> None:
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
        return max(0.0, self._time - steady())

    @property
    def _time(self) -> float:
        return self._due + (self._bucket._held - self._held)

    def cancel(self) -> bool:
        """Give the tokens back, if their time has not come, and return whether it did. Later waiters go sooner."""
        if not self._n or (self._place is None and self._time < steady()):
            return False
        n, self._n = self._n, 0.0
        self._bucket._unreserve(n, self._place)
        return True

    def __repr__(self) -> str:
        return f"<Reservation of {self._n:g} in {self.delay:g} s>" if self._n else "<Reservation given back>"


class _Request:
    __slots__ = ("booking", "n")

    def __init__(self, n: Any, booking: Reservation | None = None) -> None:
        self.n = n
        self.booking = booking


_HOLD = _Request(0.0)
"""Keeps the place of the timekeeper while the bucket is held off and no task waits; it may stay there after that."""


class TokenBucket(AsyncBlock):
    """Lets `rate` tokens a second through, and at most `burst` at once after a pause; several limits: `TokenBucket.of`.

    First come, first served, whatever the weights. When a task gives up, or a reservation is cancelled, later tasks go
    sooner. Tokens that fell due while tasks waited are not lost by waking late (up to 50 ms), so the rate is exact.
    After a longer stop of the loop, they are there as far as they fit into the bucket.

    ``async with bucket:`` takes one token before the block, and gives nothing back after it.

    Cancellation: see `acquire`. Source: GCRA (ITU-T I.371).
    """

    def __init__(self, rate: float, burst: float = 1) -> None:
        self._level: Level | Levels = Level(rate, burst)
        # until then it may be overfull by the slack: tasks that were woken late come back, and find what fell due
        self._late_until = -inf
        self._waiting: Any = self._level.none
        self._line: Line[_Request, bool] = Line(self._left)
        # the timekeeper: the head of the line, taken out of it; there is one while any task waits
        self._keeper: _Request | None = None
        self._alarm: CancelScope | None = None
        self._no_sooner = -inf
        # until when the bucket is held off, and for how long it was held off in all
        self._held_until = -inf
        self._held = 0.0
        # those that the scopes around them do not let wait: they look again when a hold ends early
        self._asleep: set[CancelScope] = set()

    @classmethod
    def of(cls, *limits: Limit) -> Self:
        """Make a bucket of several limits at once, also of several units: an amount is taken from all or from none.

        `n` may then be a mapping of units to numbers, as the `cost` of a `RateLimiter`. `rate`, `burst` and
        `statistics` belong to the first limit.
        """
        levels = Levels(Limits(limits))
        bucket = cls(1)
        bucket._level = levels
        bucket._waiting = levels.none
        return bucket

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self._level.rate

    @property
    def burst(self) -> float:
        """The number of tokens that the bucket holds."""
        return self._level.burst

    # taking

    def acquire_nowait(self, n: Cost = 1) -> None:
        """Take `n` tokens now, or raise `anyio.WouldBlock`. Raises `ValueError` for more than the burst."""
        if not self._take(self._level.amount(n), steady()):
            raise WouldBlock

    async def acquire(self, n: Cost = 1, fail_fast: bool = False) -> None:
        """Take `n` tokens; waits, first come first served, until they are there. Always a checkpoint.

        If the wait would outlast the deadline of the scopes around it, nothing is taken: with `fail_fast` the call
        raises `WouldExceedDeadline` at once, else it sleeps until the scope ends it. Raises `ValueError` for more than
        the burst.

        Cancellation: nothing is taken and the place in the line is lost; later waiters go sooner.
        """
        if fail_fast is not False:
            check_flag("fail_fast", fail_fast)
        n = self._level.amount(n)
        if self._take(n, steady()):
            try:
                await checkpoint()
            except BaseException:
                self._give_back(n)
                raise
            return
        self._line.home.bind()
        while loop_time(due := self._due_at(n)) > (deadline := anyio.current_effective_deadline()):
            if fail_fast:
                raise WouldExceedDeadline("token bucket", due - steady())
            with CancelScope() as scope:
                self._asleep.add(scope)
                try:
                    await anyio.sleep_until(deadline)
                finally:
                    self._asleep.discard(scope)
        request = _Request(n)
        if self._keeper is None or self._keeper is _HOLD:
            self._keeper = request
            await self._keep_time(request)
            return
        self._waiting += n
        if not await self._line.wait(self._line.join(request)):
            await self._keep_time(request)

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: a token is not given back. No checkpoint."""

    def _take(self, n: Any, time: float) -> bool:
        if self._keeper is not None and self._is_kept(time):
            return False
        return self._level.take(n, time, time <= self._late_until)

    def _is_kept(self, time: float) -> bool:
        if self._keeper is _HOLD and time >= self._held_until:
            self._keeper = None
        return self._keeper is not None

    # waiting

    def _due_at(self, n: Any) -> float:
        time = steady()
        return max(self._level.due_behind(n, self._ahead(), time, time <= self._late_until), self._held_until)

    def _ahead(self) -> Any:
        if self._keeper is None or self._keeper is _HOLD:
            return self._waiting
        return self._waiting + self._keeper.n

    async def _keep_time(self, request: _Request) -> None:
        """Sleep until this task may take its tokens. Then admit all that is due, and hand the timekeeping on."""
        self._no_sooner = steady() + TICK if self._level.per < TICK else -inf
        try:
            with CancelScope(deadline=loop_time(self._next_alarm(request.n))) as self._alarm:
                await anyio.sleep_forever()
            time = steady()
            self._late_until = time + min(time - self._level.due(request.n), MADE_UP) + TICK
            self._level.spend(request.n, time, self._held_until)
        finally:
            self._alarm = None
            self._keeper = None
            self._let_in(steady())

    def _next_alarm(self, n: Any) -> float:
        return max(self._level.due(n), self._no_sooner, self._held_until)

    def _let_in(self, time: float) -> None:
        line = self._line
        while self._keeper is None and (waiter := line.head()) is not None:
            request = waiter.want
            self._waiting -= request.n
            if request.booking is not None or (
                self._level.due(request.n) <= time and self._held_until <= time
            ):
                # a reservation needs no waking: its owner sleeps by itself
                self._level.spend(request.n, time, self._held_until)
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
        self._let_in(steady())

    def _give_back(self, n: Any) -> None:
        self._level.give_back(n)
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None and self._keeper is not None:
            self._alarm.deadline = loop_time(self._next_alarm(self._keeper.n))

    # reserving

    def reserve(self, n: Cost = 1) -> Reservation:
        """Book `n` tokens ahead, behind all waiting tasks: act after the reservation's `delay`, or cancel it.

        Raises `ValueError` for more than the burst.
        """
        amount = self._level.none + self._level.amount(n)
        time = steady()
        reservation = Reservation(self, amount, max(time, self._due_at(amount)))
        if self._keeper is None or self._keeper is _HOLD:
            self._level.book(amount, time, time <= self._late_until)
        else:
            self._waiting += amount
            reservation._place = self._line.join(_Request(amount, reservation))
        return reservation

    def _unreserve(self, n: Any, place: Waiter[_Request, bool] | None) -> None:
        if place is None:
            self._give_back(n)
        else:
            self._line.leave(place)

    # spending

    def spend(self, cost: Cost = 1, fail_fast: bool = False) -> AbstractAsyncContextManager[Spending]:
        """Take `cost` for a block, `async with bucket.spend({"tokens": 800}) as spending`, as `RateLimiter.spend` does.

        Cancellation: while waiting, nothing is taken; in the block, a correction counts nevertheless.
        """
        limits, costs = self._level.costs(cost)
        book = partial(self._acquire_spending, costs, check_flag("fail_fast", fail_fast))
        return SpendingBlock("token bucket", Spending(limits, costs), book, self._correct_spending)

    async def _acquire_spending(self, n: Any, fail_fast: bool) -> tuple[list[float], float]:
        await self.acquire(n, fail_fast)
        return self._level.ends(), self._held

    def _correct_spending(self, taken: tuple[list[float], float], back: tuple[float, ...]) -> None:
        ends, held = taken
        time = max(steady(), self._held_until)
        ends = [end + (self._held - held) for end in ends]
        self._level.correct(back, ends, time, time <= self._late_until)
        self._set_alarm()

    # holding off

    async def hold_off(self, seconds: Seconds) -> None:
        """Stop all callers for `seconds`, as after an answer 429 with Retry-After.

        Waiting tasks and reservations go later by as much. The later end of several holds counts. 0 seconds end a hold
        at once.
        """
        seconds = check_seconds("seconds", seconds)
        await checkpoint()
        time = steady()
        begin, end = max(time, self._held_until), time + seconds
        if end > begin or not seconds:
            self._level.hold(end - begin, begin)
            self._held += end - begin
            self._held_until = end
            if self._keeper is None and end > begin:
                self._keeper = _HOLD
            self._set_alarm()
            for scope in self._asleep if end < begin else ():
                scope.cancel("the hold has ended")

    async def state(self) -> LimiterState:
        """The amounts that may be taken at once, and when some may, after the tasks that wait. A checkpoint."""
        await checkpoint()
        time = steady()
        return self._level.state(self._ahead(), time, time <= self._late_until, self._held_until)

    # the rate

    def set_rate(self, rate: float) -> None:
        """Change the rate; waiting tasks use the new rate from now on. The tokens in the bucket stay."""
        self._level.set_rate(rate, lambda: max(steady(), self._held_until))
        self._set_alarm()

    # looking

    def statistics(self) -> TokenBucketStatistics:
        """The current state."""
        rate, burst = self._level.rate, self._level.burst
        tokens = burst - self._level.debt(max(steady(), self._held_until))
        return TokenBucketStatistics(rate, burst, tokens, self._tasks_waiting())

    def _tasks_waiting(self) -> int:
        return len(self._line) + (self._keeper is not None and self._keeper is not _HOLD)

    def __repr__(self) -> str:
        return f"<TokenBucket {self._level!r}, {self._tasks_waiting()} waiting>"
