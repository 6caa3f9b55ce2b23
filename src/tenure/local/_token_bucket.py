"""A rate with bursts: the generic cell rate algorithm, with a line of waiters."""

# The classes of this file are one idea.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

import anyio
from anyio import CancelScope, WouldBlock

from tenure.errors import WouldExceedDeadline
from tenure.waiting import Line, Waiter, checkpoint, now

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
    """How many tokens the bucket holds."""
    tokens: float
    """How many are there now; below zero by what was reserved ahead."""
    tasks_waiting: int
    """How many tasks wait, or reservations behind them; those cancelled in this turn of the loop may still count."""


class Reservation:
    """Tokens that are booked: act after `delay` seconds, or `cancel`.

    Thread safety: none; all on the thread of one loop.
    """

    __slots__ = ("_bucket", "_due", "_n", "_place")

    def __init__(self, bucket: TokenBucket, n: float, due: float) -> None:
        self._bucket = bucket
        self._n = n
        self._due = due
        self._place: Waiter[_Request, bool] | None = None

    @property
    def delay(self) -> float:
        """Seconds from now until the tokens may be used; zero when they may.

        It was fixed when they were reserved, at the rate of that moment.
        """
        return max(0.0, self._due - now())

    def cancel(self) -> bool:
        """Give the tokens back, if their time has not come; those that wait behind get theirs sooner.

        Returns whether it did.
        """
        if not self._n or (self._place is None and self._due < now()):
            return False
        n, self._n = self._n, 0.0
        self._bucket._unreserve(n, self._place)
        return True

    def __repr__(self) -> str:
        return f"<Reservation of {self._n:g} in {self.delay:g} s>" if self._n else "<Reservation given back>"


class _Request:
    """What a waiter wants; `booking` for one that has no task, but a reservation."""

    __slots__ = ("booking", "n")

    def __init__(self, n: float, booking: Reservation | None = None) -> None:
        self.n = n
        self.booking = booking


class TokenBucket:
    """Lets `rate` tokens a second through, and at most `burst` at once after a pause.

    First come, first served, whatever the weights: a task that wants many holds up those behind, and is not overtaken.
    Waiting takes no lock; one task of the line keeps the time for all. When a task gives up, or a
    reservation is cancelled, those behind go sooner. Tokens that fell due while tasks waited are not lost by waking
    late (up to 50 ms), so the rate is exact. After a longer stop of the loop all that fell due is there, as far as it
    fits into the bucket: up to `burst` go at once (or as many as fall due in 50 ms, if a high rate makes that more).

    The algorithm is GCRA (ITU-T I.371): one number, the theoretical arrival time.

    ``async with bucket:`` takes one token before the block, and gives nothing back after it.

    Cancellation: see `acquire`.

    Thread safety: none; all on the thread of one loop.
    """

    def __init__(self, rate: float, burst: float = 1) -> None:
        """Make a full bucket; outside a running loop too."""
        _check_positive("rate", rate)
        _check_positive("burst", burst)
        self._burst = float(burst)
        self._set(rate)
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

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self._rate

    @property
    def burst(self) -> float:
        """How many tokens the bucket holds."""
        return self._burst

    # taking

    def acquire_nowait(self, n: float = 1) -> None:
        """Take `n` tokens now, or raise `anyio.WouldBlock`. ValueError for more than the burst."""
        self._check(n)
        if not self._take(n, now()):
            raise WouldBlock

    async def acquire(self, n: float = 1, fail_fast: bool = False) -> None:
        """Take `n` tokens; waits, first come first served, until they are there. Always a checkpoint.

        A wait that the scopes around it do not allow (`anyio.current_effective_deadline`) takes nothing and holds no
        place: with `fail_fast` it raises `WouldExceedDeadline` at once, else it sleeps until the scope ends it.
        ValueError for more than the burst.

        Cancellation: nothing is taken and the place in the line is lost; those behind go sooner.
        """
        if not 0 < n <= self._burst:
            self._check(n)
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
        if self._keeper is None:
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
        """Nothing: a token is not given back. No checkpoint."""

    def _take(self, n: float, time: float) -> bool:
        """Take the tokens, if they are there and no task waits for them."""
        # the sums are those of `_due_of`, so that what is due is never refused for a rounding error
        full_at = self._clamped(time)
        if self._keeper is not None or full_at + (n - self._burst) * self._per > time:
            return False
        self._full_at = full_at + n * self._per
        return True

    def _clamped(self, time: float) -> float:
        """When the bucket would be full, less the tokens that it has no room for."""
        return max(self._full_at, time if time > self._late_until else time - self._slack)

    # waiting

    def _due_of(self, n: float) -> float:
        """When the next in line may have `n` tokens."""
        return self._full_at + (n - self._burst) * self._per

    def _due_at(self, n: float) -> float:
        """When one that joins the line now may have `n` tokens."""
        ahead = self._waiting + (0.0 if self._keeper is None else self._keeper.n)
        return self._clamped(now()) + (ahead + n - self._burst) * self._per

    async def _keep_time(self, request: _Request) -> None:
        """Sleep until this task may have its tokens; then let in all whose time has come, and hand on the clock."""
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
        return max(self._due_of(n), self._no_sooner)

    def _spend(self, n: float, time: float) -> None:
        """Take the tokens of the next in line, as of the moment when they were due, unless that is long past."""
        if time - self._due_of(n) > MADE_UP:
            self._full_at = max(self._full_at, time - self._slack)  # what found no room meanwhile is lost
        self._full_at += n * self._per

    def _let_in(self, time: float) -> None:
        """Grant whatever is due, and make the first that is not due the timekeeper."""
        line = self._line
        while self._keeper is None and (waiter := line.head()) is not None:
            request = waiter.want
            self._waiting -= request.n
            if request.booking is not None or self._due_of(request.n) <= time:
                # a reservation needs no waking: its owner knows its time
                self._spend(request.n, time)
                if request.booking is not None:
                    request.booking._place = None
                line.grant(waiter, True)
            else:
                self._keeper = request
                line.grant(waiter, False)

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

    def reserve(self, n: float = 1) -> Reservation:
        """Book `n` tokens ahead, behind all waiting tasks: act after the reservation's `delay`, or cancel it.

        ValueError for more than the burst.
        """
        self._check(n)
        time = now()
        reservation = Reservation(self, n, max(time, self._due_at(n)))
        if self._keeper is None:
            self._full_at = self._clamped(time) + n * self._per
        else:
            self._waiting += n
            reservation._place = self._line.join(_Request(n, reservation))
        return reservation

    def _unreserve(self, n: float, place: Waiter[_Request, bool] | None) -> None:
        if place is None:
            self._give_back(n)
        else:
            self._line.leave(place)

    # the rate

    def set_rate(self, rate: float) -> None:
        """Change the rate; waiting tasks use the new one from now on. What is in the bucket stays."""
        _check_positive("rate", rate)
        time = now()
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
        tokens = self._burst - max(0.0, self._full_at - now()) * self._rate
        return TokenBucketStatistics(self._rate, self._burst, tokens, self._tasks_waiting())

    def _tasks_waiting(self) -> int:
        return len(self._line) + (self._keeper is not None)

    def __repr__(self) -> str:
        return f"<TokenBucket {self._rate:g}/s, burst {self._burst:g}, {self._tasks_waiting()} waiting>"

    def _check(self, n: float) -> None:
        if not 0 < n <= self._burst:
            raise ValueError(f"n must be above 0 and at most the burst of {self._burst:g}, not {n!r}")


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not value > 0 or not isfinite(value):
        raise ValueError(f"{name} must be a number above zero, not {value!r}")
