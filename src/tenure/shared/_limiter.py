"""The rate limiter: spendings booked ahead in one round trip, and waited for here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import anyio
from anyio import current_effective_deadline

from tenure.arguments import LONGEST, check_number, check_seconds
from tenure.engine import CAP, ROUNDING, Hint, Operation, Refund, SessionItem, Spend, Spending, SpendRequest
from tenure.errors import OutcomeUnknown, StoreClosed, WouldExceedDeadline
from tenure.store import Batcher, Session, Store
from tenure.waiting import Line, Waiter

_FASTEST = 1e12
"""Per second: engines count in microseconds, and cannot distinguish what comes faster."""


class RateLimiter:
    """So many per so many seconds over all processes that use the store, with bursts.

    `rate` per `per` seconds on the long run; up to `burst` at once after a pause (`rate` by default, 1 at least). A
    spending is booked in one round trip, in the order in which callers come, costs included; a caller that has to
    wait does so here, without asking again. `async with limiter` spends 1 before the block, and gives nothing back
    after it.

    Thread safety: none; a description, to be shared between tasks. Limiters of equal names should have equal rates:
    each booking follows the rate of the object that books. Source: the generic cell rate algorithm (ITU-T I.371);
    giving back as in Go's `rate.Reservation.CancelAt`.
    """

    __slots__ = ("_burst", "_key", "_rate", "_spenders", "name")

    def __init__(
        self, store: Store, name: str, *, rate: float, per: float = 1.0, burst: float | None = None
    ) -> None:
        rate, per = check_number("rate", rate), check_seconds("per", per, least=None)
        self._key = Store.key(store, "rate", name)
        self._spenders = store.listen(store.key("rate", "*")[:-1], lambda: _Spenders(store))
        self._rate = rate / per
        self._burst = max(1.0, rate) if burst is None else check_number("burst", burst, least=1)
        if not self._burst / LONGEST <= self._rate <= _FASTEST:
            raise ValueError(
                f"rate must be at most {_FASTEST:g} a second, and bring the burst of {self._burst:g} back within "
                f"{LONGEST:g} seconds, not {rate:g} per {per:g} s"
            )
        self.name: str = name

    def __repr__(self) -> str:
        return f"<RateLimiter {self.name!r} {self._rate:g}/s burst={self._burst:g}>"

    async def acquire(self, cost: float = 1, fail_fast: bool = False) -> None:
        """Spend `cost` as soon as the rate allows it.

        A wait that the caller's deadline does not leave time for books nothing: by default it sleeps out its scope,
        with `fail_fast` it raises `WouldExceedDeadline` at once. Raises `ValueError` if the cost is above the burst,
        `OutcomeUnknown`, `StoreClosed`, `EngineError`.
        Cancellation: what was booked is given back, as far as later bookings have not overtaken it.
        """
        cost = self._checked(cost)
        while True:
            left = max(0.0, current_effective_deadline() - anyio.current_time())
            spending = await self._spend(cost, left)
            if spending.booked:
                break
            if fail_fast:
                raise WouldExceedDeadline(self._key, spending.delay)
            # the scope ends here, unless its deadline is moved meanwhile
            await self._spenders.pause(left)
        if spending.delay > ROUNDING:
            try:
                await self._spenders.pause(spending.delay)
            except BaseException:
                self._spenders.refund(self._key, cost, self._rate, spending)
                raise

    async def __aenter__(self) -> None:
        """Spend 1, as `acquire` does. Cancellation: what was booked is given back, as with that."""
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        """Nothing: what was spent is not given back. No checkpoint."""

    async def try_acquire(self, cost: float = 1) -> bool:
        """Spend `cost` if the rate allows it at once; returns whether it did. Raises as `acquire` does.

        Cancellation: what was spent is given back, as far as later bookings have not overtaken it.
        """
        return (await self._spend(self._checked(cost), 0.0)).booked

    def _checked(self, cost: object) -> float:
        cost = check_number("cost", cost)
        if cost > self._burst:
            raise ValueError(f"cost must be at most the burst of {self._burst:g}, not {cost:g}")
        return cost

    async def _spend(self, cost: float, max_wait: float) -> Spending:
        request = _SpendRequest(
            cost, None if max_wait > LONGEST else max_wait + ROUNDING, self._rate, self._burst
        )
        return await self._spenders.spend(self._key, request)


@dataclass(frozen=True, slots=True)
class _SpendRequest:
    cost: float
    max_wait: float | None
    rate: float
    burst: float


class _Spenders:
    """The spenders of this process, as long as they have something to say: other keys take no memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_key: dict[str, _Spender] = {}
        self._pausing: Line[None, None] = Line(lambda _: None)
        self._closed = False

    async def spend(self, key: str, request: _SpendRequest) -> Spending:
        self._store.check_here()
        if self._closed:
            raise StoreClosed("the store is closed")
        return await self._of(key).spend(request)

    async def pause(self, seconds: float) -> None:
        """Sleep so long. Raises `StoreClosed` if the store closes meanwhile."""
        if self._closed:
            raise StoreClosed("the store was closed")
        with anyio.move_on_after(seconds):
            await self._pausing.wait(self._pausing.join(None))

    def refund(self, key: str, cost: float, rate: float, spending: Spending) -> None:
        if not self._closed:
            self._of(key).refund(cost, rate, spending)

    def on_hint(self, hint: Hint) -> None:
        """Nobody sends any."""

    def on_found(self, session: Session, one: SessionItem) -> None:
        """Nobody here has anything of a queue."""

    def close(self) -> None:
        """The store closes."""
        self._closed = True
        self._pausing.fail_all(lambda: StoreClosed("the store was closed"))
        for spender in list(self._by_key.values()):
            spender.close()

    def forget(self, key: str, spender: _Spender) -> None:
        if self._by_key.get(key) is spender:
            del self._by_key[key]

    def _of(self, key: str) -> _Spender:
        spender = self._by_key.get(key)
        if spender is None:
            spender = self._by_key[key] = _Spender(self._store, key, self)
        return spender


class _Spender:
    """All of this process's spendings on one key: what comes while a batch is on its way forms the next."""

    def __init__(self, store: Store, key: str, all_of_them: _Spenders) -> None:
        self._key = key
        self._spenders = all_of_them
        self._line: Line[_SpendRequest, Spending] = Line(self._left)
        self._turns = Batcher(store, key, store.ttl, self)
        self._gathered: deque[Waiter[_SpendRequest, Spending]] = deque()
        self._sent: list[Waiter[_SpendRequest, Spending]] = []
        self._refunds: list[tuple[float, float, float]] = []  # (-booking, cost, rate)
        self._refunding: tuple[float, float, float] | None = None

    async def spend(self, request: _SpendRequest) -> Spending:
        self._turns.schedule()
        waiter = self._line.join(request)
        self._gathered.append(waiter)
        return await self._line.wait(waiter)

    def refund(self, cost: float, rate: float, spending: Spending) -> None:
        # the latest first: each uncovers the one before, where the other order would lose all but one
        heappush(self._refunds, (-spending.booking, cost, rate))
        self._turns.schedule()

    def close(self) -> None:
        self._line.fail_all(lambda: StoreClosed("the store was closed"))

    # what Turns asks

    def next_operation(self, session: Session, n: int) -> Operation[Any] | None:
        # refunds first: a booking before them waits for what nobody spends, and buries it
        self._refunding = heappop(self._refunds) if self._refunds else None
        if self._refunding is not None:
            booking, cost, rate = self._refunding
            return Refund(session.id, n, self._key, cost, -booking, rate)
        operation = self._next_spend(session, n)
        if operation is None:
            self._spenders.forget(self._key, self)
        return operation

    def _next_spend(self, session: Session, n: int) -> Spend | None:
        terms: tuple[float, float] | None = None
        while self._gathered and len(self._sent) < CAP:
            waiter = self._gathered[0]
            request = waiter.want
            if waiter.waiting:
                if terms not in (None, (request.rate, request.burst)):
                    break
                terms = (request.rate, request.burst)
                self._sent.append(waiter)
            self._gathered.popleft()
        if terms is None:
            return None
        requests = tuple(SpendRequest(waiter.want.cost, waiter.want.max_wait) for waiter in self._sent)
        return Spend(session.id, n, self._key, requests, *terms)

    def on_answer(self, session: Session, answer: Any) -> None:
        del session
        sent, self._sent = self._sent, []
        if sent:
            for waiter, spending in zip(sent, answer.answers, strict=True):
                if not self._line.grant(waiter, spending):
                    self._take_back(waiter.want, spending)
        self._turns.schedule()

    def on_session_lost(self, *, resent: bool) -> None:
        if resent:
            self._fail(lambda: OutcomeUnknown(self._key, "spending"))
            return
        self._gathered.extendleft(reversed(self._sent))
        self._sent = []
        if self._refunding is not None:
            heappush(self._refunds, self._refunding)
        self._turns.schedule()

    def on_error(self, error: Exception, session: Session | None) -> None:
        if session is None:
            self._sent.extend(self._gathered)
            self._gathered.clear()
            self._refunds.clear()
        self._fail(lambda: type(error)(*error.args))

    # inside

    def _left(self, waiter: Waiter[_SpendRequest, Spending]) -> None:
        if waiter.granted:
            self._take_back(waiter.want, waiter.value)

    def _take_back(self, request: _SpendRequest, spending: Spending) -> None:
        if spending.booked:  # by way of all of them: this one may have been replaced meanwhile
            self._spenders.refund(self._key, request.cost, request.rate, spending)

    def _fail(self, make_error: Callable[[], Exception]) -> None:
        sent, self._sent = self._sent, []
        for waiter in sent:
            self._line.fail(waiter, make_error())
        if self._gathered or self._refunds:
            self._turns.schedule()
        else:
            self._spenders.forget(self._key, self)
