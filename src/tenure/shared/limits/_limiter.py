from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial
from math import inf

from anyio import current_effective_deadline

import tenure.engine as e
from tenure.arguments import LONGEST, AsyncBlock, Seconds, check_flag, check_seconds, hinted
from tenure.errors import WouldExceedDeadline
from tenure.limits import Cost, Limit, LimiterState, Limits, Spending, SpendingBlock
from tenure.store import Store, handle_of, read_pages

from ._lane import LanePlace
from ._spenders import Spenders


class RateLimiter(AsyncBlock):
    """Limits a rate over all processes that use the store, with bursts.

        limiter = RateLimiter(store, "llm", Limit(60, per=60), Limit(90_000, per=60, unit="tokens"))
        async with limiter.spend({"tokens": 500}) as spending:
            spending.correct({"tokens": await ask()})

    - Each of the `limits` lets `rate` per `per` seconds through on average, and up to `burst` at once after a pause. A
      cost is booked in all limits or in none.
    - A `cost` is a number of "requests" (or of the only unit), or a mapping of units to numbers, in which
      "requests" is 1 unless it is named, and other units 0.
    - `async with limiter` spends 1 before the block, and gives nothing back after it.

    Callers stand in a line of their process, first come, first served. The rates and bursts of another object of the
    same name count for its own bookings. Raises `TypeError` without a `Limit`, `ValueError` for two limits of the same
    unit and `per`.

    Source: the generic cell rate algorithm (ITU-T I.371).
    """

    __slots__ = ("_engine_limits", "_key", "_limits", "_spenders", "_store", "name")
    _instead = "tenure.blocking.RateLimiter"

    @hinted(rate="write Limit(100)")
    def __init__(self, store: Store, name: str, *limits: Limit) -> None:
        self._limits = Limits(limits)
        self._engine_limits = tuple(
            e.RateLimit(f"{limit.per!r} {unit}", limit.per_second, limit.most)
            for unit, limit in zip(self._limits.each, self._limits.all, strict=True)
        )
        self._store = handle = handle_of(store)
        self._key = handle.key("rate", name)
        self._spenders = handle.listen(handle.prefix("rate"), lambda: Spenders(handle))
        self.name: str = name

    def __repr__(self) -> str:
        return f"<RateLimiter {self.name!r} {self._limits!r}>"

    async def acquire(self, cost: Cost = 1, fail_fast: bool = False) -> None:
        """Spend `cost` as soon as the rate allows it.

        If the wait would outlast the caller's deadline, nothing is booked: the call sleeps until its scope ends, or
        with `fail_fast` raises `WouldExceedDeadline` at once. Raises `ValueError` if the cost is above the burst or
        has a unit without a limit, `OutcomeUnknown`, `StoreClosed`, `EngineError`.
        Cancellation: what was booked goes to the next in line, or back.
        """
        if fail_fast is not False:
            check_flag("fail_fast", fail_fast)
        await self._acquire(self._limits.amounts(cost), fail_fast)

    async def __aenter__(self) -> None:
        """Spend 1, as `acquire` does. Cancellation: as with that."""
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: a spent cost is not given back. No checkpoint."""

    def spend(self, cost: Cost = 1, fail_fast: bool = False) -> AbstractAsyncContextManager[Spending]:
        """Spend `cost` for a block, `async with limiter.spend({"tokens": 800}) as spending`.

        Entering waits and raises as `acquire` does. In the block, `spending.correct({"tokens": 655})` sets the real
        cost; without a correction it stays as booked. When the block ends, the difference is booked at once, also
        above the burst, or given back as far as time has not brought it back already. A correction that cannot be
        booked is reported as "limiter.correction_failed".
        Cancellation: while waiting, as `acquire`; of the block, a correction is booked nevertheless.
        """
        costs = self._limits.costs(cost)
        amounts = tuple(costs[unit] for unit in self._limits.each)
        book = partial(self._acquire, amounts, check_flag("fail_fast", fail_fast))
        return SpendingBlock(self._key, Spending(self._limits, costs), book, self._correct)

    async def try_acquire(self, cost: Cost = 1) -> bool:
        """Spend `cost` if the rate allows it at once; returns whether it did. Raises as `acquire` does.

        Cancellation: what was spent is given back, unless others have booked behind it.
        """
        place = LanePlace(self._engine_limits, self._limits.amounts(cost), -inf)
        return (await self._spenders.of(self._key).spend(place)).booked

    async def hold_off(self, seconds: Seconds) -> None:
        """Stop all callers in all processes for `seconds`, as after an answer 429 with Retry-After.

        Waiting callers go later by as much. The later end of several holds counts. 0 seconds end a hold at once. Raises
        `StoreClosed`, `EngineError`. Cancellation: the limiter may be held off or not.
        """
        seconds = check_seconds("seconds", seconds)
        await self._spenders.of(self._key).hold_off(max(seconds, e.ROUNDING) if seconds else 0.0)

    async def state(self) -> LimiterState:
        """Return the amounts that may be spent at once, and when some may, after the callers that wait here.

        Raises `StoreClosed`, `EngineError`.
        """
        (status,) = (await read_pages(self._store, e.Scan(e.LIMITER, self._key))).rows
        debts = {debt.name: debt.amount for debt in status.debts}
        for name, amount in self._spenders.wanted(self._key).items():
            debts[name] = debts.get(name, 0.0) + amount
        owed = (min(debts.get(limit.name, 0.0), limit.rate * LONGEST) for limit in self._engine_limits)
        return self._limits.state(tuple(owed), status.held_off)

    # inside

    def _correct(self, bookings: tuple[e.Booking, ...], back: tuple[float, ...]) -> None:
        self._spenders.correct(self._key, self._engine_limits, e.RefundRequest(bookings, back))

    async def _acquire(self, costs: tuple[float, ...], fail_fast: bool) -> tuple[e.Booking, ...]:
        while True:
            place = LanePlace(self._engine_limits, costs, current_effective_deadline())
            spending = await self._spenders.of(self._key).spend(place, fail_fast)
            if spending.booked:
                return spending.bookings
            if fail_fast:
                raise WouldExceedDeadline(self._key, spending.delay)
            # the scope ends here, unless its deadline is moved meanwhile
            await self._spenders.pause(place.left())
