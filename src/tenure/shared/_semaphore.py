"""The semaphore: a hold of some of a number of permits."""

from __future__ import annotations

from types import TracebackType
from typing import cast

from tenure.arguments import check_count
from tenure.engine import Resize
from tenure.local._park import this_task
from tenure.store import Store, check_ttl

from ._lease import Hold, HoldWish, Lease
from ._lock import Who, who


class Semaphore:
    """So many permits over all who use the store, taken in weights, first come, first served.

    A holder that wants many permits is not overtaken by later ones that want few. Everybody must agree on the number of
    permits (`CapacityMismatch`); `resize` changes it for all. Permits of a holder that died come back after its `ttl`.

    Thread safety: none; a description, to be shared between tasks. Source: the weighted queue of tokio's
    `batch_semaphore`, on a server.
    """

    __slots__ = ("_key", "_store", "_ttl", "name", "permits")

    def __init__(self, store: Store, name: str, permits: int, *, ttl: float | None = None) -> None:
        self._store = store
        self._key = Store.key(store, "semaphore", name)
        self._ttl = store.ttl if ttl is None else check_ttl(ttl)
        self.name = name
        self.permits = check_count("permits", permits)

    def __repr__(self) -> str:
        return f"<Semaphore {self.name!r} permits={self.permits}>"

    def hold(self, permits: int = 1, timeout: float | None = None) -> Hold:
        """Hold that many permits for a block, all or none; gives a `Lease`.

        `timeout` in seconds limits the wait (None: for ever; 0: one try). Entering raises `AcquireTimeout`,
        `CapacityMismatch`, `StoreClosed`, `EngineError`; leaving raises `LeaseLost`.
        Cancellation: while waiting, no place is kept and nothing is held.
        """
        wish = HoldWish(self._key, self.permits, check_count("permits", permits, most=self.permits))
        return Hold(self._store, wish, ttl=self._ttl, timeout=timeout, exclusive=False)

    async def __aenter__(self) -> Lease:
        """Hold one permit. Cancellation: nothing is held."""
        hold = self.hold()
        lease = await hold.__aenter__()
        self._entered_here().append(hold)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back. Cancellation: see `Hold`."""
        holds = self._entered_here()
        hold = holds.pop() if holds else None
        if not holds:
            del self._store.entered[self._key, this_task()]
        if hold is None:
            raise RuntimeError(f"{self._key}: not held by this task")
        await hold.__aexit__(kind, error, trace)

    async def resize(self, permits: int) -> None:
        """Change the number of permits for everybody, for good; this object knows it at once.

        More permits are granted at once; fewer take effect as holders leave. Waiters that ask for more than there are
        now get `CapacityMismatch`, as do objects that were made with another number.
        Cancellation: it may or may not be applied.
        """
        permits = check_count("permits", permits)
        await self._store.call(Resize(self._key, permits))
        self.permits = permits

    async def holders(self) -> Who:
        """Who holds permits and who waits for some, since when. Cancellation: has no effect."""
        return await who(self._store, self._key)

    def _entered_here(self) -> list[Hold]:
        return cast("list[Hold]", self._store.entered.setdefault((self._key, this_task()), []))
