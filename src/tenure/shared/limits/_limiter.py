"""The rate limiter: spendings booked ahead in one round trip, and waited for here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import overload

import anyio
from anyio import current_effective_deadline

from tenure.arguments import LONGEST, AsyncBlock, check_flag, check_seconds, hinted
from tenure.engine import LIMITER, ROUNDING, Booking, RateLimit, RefundRequest, Scan, SpendRequest
from tenure.errors import WouldExceedDeadline
from tenure.limits import Cost, Limit, LimiterState, Spending, SpendingBlock, limits_of
from tenure.store import Store, read_pages

from ._spenders import Spenders


class RateLimiter(AsyncBlock):
    """Limits a rate over all processes that use the store, with bursts.

    On average `rate` per `per` seconds, and up to `burst` at once after a pause (`rate` by default, 1 at least).
    `limits` are several such limits at once, also of several units: a cost is booked in all of them or in none. A
    `cost` is a number of "requests" (or of the only unit that there is), or a mapping of units to numbers, in which
    "requests" is 1 unless it is named, and other units 0.

    A spending is booked in one round trip, in the order in which callers arrive. A caller that has to wait sleeps in
    its own process, and does not ask again. A call that costs nothing in a limit does not wait for that limit.
    `async with limiter` spends 1 before the block, and gives nothing back after it.

    Limits are distinguished by their unit and `per`. Another object of the same name may have other rates and bursts:
    they count from its next booking on. Amounts that were spent stay spent, and waiting callers keep their bookings.

    Thread safety: none; a description, to be shared between tasks. Source: the generic cell rate algorithm (ITU-T
    I.371); giving back as in Go's `rate.Reservation.CancelAt`.
    """

    __slots__ = ("_engine_limits", "_key", "_limits", "_spenders", "_store", "name")
    _instead = "tenure.blocking.RateLimiter"

    @overload
    def __init__(
        self, store: Store, name: str, *, rate: float, per: float = 1.0, burst: float | None = None
    ) -> None: ...

    @overload
    def __init__(self, store: Store, name: str, *, limits: Sequence[Limit]) -> None: ...

    @hinted(positional="write rate=100")
    def __init__(
        self,
        store: Store,
        name: str,
        *,
        rate: float | None = None,
        per: float = 1.0,
        burst: float | None = None,
        limits: Sequence[Limit] | None = None,
    ) -> None:
        self._limits = limits_of(rate, per, burst, limits)
        self._engine_limits = tuple(
            RateLimit(f"{limit.per!r} {limit.unit}", limit.per_second, limit.most)
            for limit in self._limits.all
        )
        self._key = Store.key(store, "rate", name)
        self._store = store
        self._spenders = store.listen(store.prefix("rate"), lambda: Spenders(store))
        self.name: str = name

    def __repr__(self) -> str:
        return f"<RateLimiter {self.name!r} {self._limits!r}>"

    async def acquire(self, cost: Cost = 1, fail_fast: bool = False) -> None:
        """Spend `cost` as soon as the rate allows it.

        If the wait would outlast the caller's deadline, nothing is booked: by default the call sleeps until its scope
        ends, with `fail_fast` it raises `WouldExceedDeadline` at once. Raises `ValueError` if the cost is above the
        burst or has a unit without a limit, `OutcomeUnknown`, `StoreClosed`, `EngineError`.
        Cancellation: what was booked is given back, as far as later bookings have not overtaken it.
        """
        await self._acquire(self._limits.amounts(cost), check_flag("fail_fast", fail_fast))

    async def __aenter__(self) -> None:
        """Spend 1, as `acquire` does. Cancellation: what was booked is given back, as with that."""
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: a spent cost is not given back. No checkpoint."""

    def spend(self, cost: Cost = 1, fail_fast: bool = False) -> AbstractAsyncContextManager[Spending]:
        """Spend `cost` for a block, `async with limiter.spend({"tokens": 800}) as spending`.

        Entering waits as `acquire` does, and raises the same. In the block, `spending.correct({"tokens": 655})` sets
        what it really cost. When the block ends, the difference is booked at once, also above the burst, or given back
        as far as time has not brought it back already. Without a correction it stays as booked, also if the block
        raises. Leaving the block does not wait for the correction. If it cannot be booked, that is logged and reported
        as "limiter.correction_failed".
        Cancellation: while waiting, as `acquire`; of the block, a correction is booked nevertheless.
        """
        costs = self._limits.costs(cost)
        amounts = tuple(costs[limit.unit] for limit in self._limits.all)
        book = partial(self._acquire, amounts, check_flag("fail_fast", fail_fast))
        return SpendingBlock(self._key, Spending(self._limits, costs), book, self._correct)

    async def try_acquire(self, cost: Cost = 1) -> bool:
        """Spend `cost` if the rate allows it at once; returns whether it did. Raises as `acquire` does.

        Cancellation: what was spent is given back, as far as later bookings have not overtaken it.
        """
        request = SpendRequest(self._limits.amounts(cost), 0.0)
        return (await self._spenders.spend(self._key, self._engine_limits, request, prompt=True)).booked

    async def hold_off(self, seconds: float) -> None:
        """Stop all callers in all processes for so many seconds, as after an answer 429 with Retry-After.

        Callers that wait already go later by as much. If the limiter is held off already, the later end counts. 0
        seconds end a hold at once: callers go as the rate lets them.
        Raises `StoreClosed`, `EngineError`.
        Cancellation: the limiter may be held off or not.
        """
        seconds = check_seconds("seconds", seconds)
        await self._spenders.hold_off(self._key, max(seconds, ROUNDING) if seconds else 0.0)

    async def look(self) -> LimiterState:
        """Return the amounts that may be spent at once, and when some may. Raises `StoreClosed`, `EngineError`."""
        (status,) = (await read_pages(self._store, Scan(LIMITER, self._key))).rows
        debts = {debt.name: debt.amount for debt in status.debts}
        owed = (min(debts.get(limit.name, 0.0), limit.rate * LONGEST) for limit in self._engine_limits)
        return self._limits.state(tuple(owed), status.held_off)

    # inside

    def _correct(self, bookings: tuple[Booking, ...], back: tuple[float, ...]) -> None:
        self._spenders.refund(self._key, self._engine_limits, RefundRequest(bookings, back))

    async def _acquire(self, costs: tuple[float, ...], fail_fast: bool) -> tuple[Booking, ...]:
        while True:
            left = max(0.0, current_effective_deadline() - anyio.current_time())
            request = SpendRequest(costs, None if left > LONGEST else left)
            spending = await self._spenders.spend(self._key, self._engine_limits, request, prompt=fail_fast)
            if spending.booked:
                return spending.bookings
            if fail_fast:
                raise WouldExceedDeadline(self._key, spending.delay)
            # the scope ends here, unless its deadline is moved meanwhile
            await self._spenders.pause(left)
