"""The rate limiter: spendings booked ahead in one round trip, and waited for here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import anyio
from anyio import current_effective_deadline

from tenure.engine import CAP, Hint, Operation, Refund, Spend, Spending, SpendRequest
from tenure.errors import OutcomeUnknown, StoreClosed, WouldExceedDeadline
from tenure.local._line import Line, Waiter
from tenure.store import Session, Store, Turns


class RateLimiter:
    """So many per so many seconds over all who use the store, with bursts.

    `rate` per `per` seconds on the long run; up to `burst` at once after a pause (`rate` by default, 1 at least). A
    spending is booked in one round trip, in the order in which callers come, costs included; who has to wait does so
    here, without asking again.

    Thread safety: none; a description, to be shared between tasks. Limiters of equal names should have equal rates: each
    booking follows the rate of the one who books. Source: the generic cell rate algorithm (ITU-T I.371); giving back as
    in Go's `rate.Reservation.CancelAt`.
    """

    __slots__ = ("_burst", "_key", "_rate", "_store", "name")

    def __init__(
        self, store: Store, name: str, *, rate: float, per: float = 1.0, burst: float | None = None
    ) -> None:
        _check_positive("rate", rate)
        _check_positive("per", per)
        self._store = store
        self._key = store.key("rate", name)
        self._rate = rate / per
        self._burst = float(max(1.0, rate) if burst is None else burst)
        if not 1 <= self._burst < inf:
            raise ValueError(f"burst must be a number, at least 1: {burst!r}")
        self.name = name

    def __repr__(self) -> str:
        return f"<RateLimiter {self.name!r} {self._rate:g}/s burst={self._burst:g}>"

    async def acquire(self, cost: float = 1, fail_fast: bool = False) -> None:  # noqa: FBT001, FBT002 the contract
        """Spend `cost` as soon as the rate allows it.

        A wait that the caller's deadline does not leave time for books nothing: by default it sleeps out its scope, with
        `fail_fast` it raises `WouldExceedDeadline` at once. Raises `ValueError` if the cost is above the burst,
        `OutcomeUnknown`, `StoreClosed`, `EngineError`.
        Cancellation: what was booked is given back, as far as later bookings have not overtaken it; what was
        booked while the caller was being cancelled is given back too.
        """
        spending = await self._spend(cost, current_effective_deadline() - anyio.current_time())
        if not spending.booked:
            if fail_fast:
                raise WouldExceedDeadline(self._key, spending.delay)
            await anyio.sleep_forever()
        if spending.delay > 0:
            try:
                await anyio.sleep(spending.delay)
            except BaseException:
                self._spender().refund(_Refund(cost, spending.booking, self._rate))
                raise

    async def try_acquire(self, cost: float = 1) -> bool:
        """Spend `cost` if the rate allows it at once; tells whether it did. Raises as `acquire` does.

        Cancellation: it may or may not be spent.
        """
        return (await self._spend(cost, 0.0)).booked

    async def _spend(self, cost: float, max_wait: float) -> Spending:
        _check_positive("cost", cost)
        if cost > self._burst:
            raise ValueError(f"cost must be at most the burst of {self._burst:g}: {cost!r}")
        request = SpendRequest(float(cost), None if max_wait == inf else max(0.0, max_wait))
        return await self._spender().spend(_Wish(request, self._rate, self._burst))

    def _spender(self) -> _Spender:
        return self._store.listen(self._key, lambda: _Spender(self._store, self._key))


@dataclass(frozen=True, slots=True)
class _Wish:
    request: SpendRequest
    rate: float
    burst: float


@dataclass(frozen=True, slots=True)
class _Refund:
    cost: float
    booking: float
    rate: float


class _Spender:
    """All of this process's spendings on one key: what comes while a batch is on its way forms the next."""

    def __init__(self, store: Store, key: str) -> None:
        self._key = key
        self._line: Line[_Wish, Spending] = Line(lambda _: None)
        self._turns = Turns(store, store.ttl, self)
        self._gathered: deque[Waiter[_Wish, Spending] | _Refund] = deque()
        self._sent: list[Waiter[_Wish, Spending] | _Refund] = []

    async def spend(self, wish: _Wish) -> Spending:
        waiter = self._line.join(wish)
        self._gathered.append(waiter)
        self._turns.kick()
        return await self._line.wait(waiter)

    def refund(self, refund: _Refund) -> None:
        self._gathered.append(refund)
        self._turns.kick()

    def next_operation(self, session: Session, n: int) -> Operation[Any] | None:
        self._sent = []
        terms: tuple[float, float] | None = None
        requests: list[SpendRequest] = []
        while self._gathered and len(requests) < CAP:
            first = self._gathered[0]
            if isinstance(first, _Refund):
                if not requests:
                    self._sent.append(self._gathered.popleft())
                    return Refund(session.id, n, self._key, first.cost, first.booking, first.rate)
                break
            wish = first.want
            if terms not in (None, (wish.rate, wish.burst)):
                break
            self._gathered.popleft()
            if first.waiting:
                terms = (wish.rate, wish.burst)
                requests.append(wish.request)
                self._sent.append(first)
        if terms is None:
            return None
        return Spend(session.id, n, self._key, tuple(requests), *terms)

    def on_answer(self, session: Session, answer: Any) -> None:
        del session
        waiters = [waiter for waiter in self._sent if isinstance(waiter, Waiter)]
        if waiters:
            for waiter, spending in zip(waiters, answer.answers, strict=True):
                if not self._line.grant(waiter, spending) and spending.booked:
                    wish = waiter.want
                    self._gathered.append(_Refund(wish.request.cost, spending.booking, wish.rate))
        self._go_on()

    def on_gone(self, *, resent: bool) -> None:
        if resent:
            self._fail(lambda: OutcomeUnknown(self._key, "spending"))
        else:
            self._gathered.extendleft(reversed(self._sent))
            self._go_on()

    def on_error(self, error: Exception) -> None:
        self._fail(lambda: type(error)(str(error)))

    def on_hint(self, hint: Hint) -> None:
        """Nobody sends any."""

    def close(self) -> None:
        self._line.fail_all(lambda: StoreClosed("the store was closed"))

    def _fail(self, make_error: Callable[[], Exception]) -> None:
        for waiter in self._sent or list(self._gathered):
            if isinstance(waiter, Waiter):
                self._line.fail(waiter, make_error())
        self._go_on()

    def _go_on(self) -> None:
        self._sent = []
        if self._gathered:
            self._turns.kick()


def _check_positive(name: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a number above 0: {value!r}")
