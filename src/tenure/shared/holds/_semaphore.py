from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType

import tenure.engine as e
from tenure.arguments import AsyncBlock, Seconds, check_count, hinted
from tenure.shared._lease import Hold, HoldRequest, Lease
from tenure.store import Store, check_ttl, handle_of
from tenure.waiting import this_task

from ._lock import Holdable


class Semaphore(Holdable, AsyncBlock):
    """A number of permits over all processes that use the store, taken in weights, first come, first served.

    A holder that wants many permits is not overtaken by later holders that want few. All processes must agree on the
    number of permits (`CapacityMismatch`); `resize` changes it for all. Permits of a holder that died come back after
    its `ttl` in seconds.

    Source: the weighted queue of tokio's `batch_semaphore`, on a server.
    """

    __slots__ = ("_entered", "_key", "_store", "_ttl", "name", "permits")
    _instead = "tenure.blocking.Semaphore"

    @hinted(timeout="write semaphore.hold(timeout=5)")
    def __init__(self, store: Store, name: str, permits: int, *, ttl: Seconds | None = None) -> None:
        self._store = handle_of(store)
        self._key = self._store.key("semaphore", name)
        self._ttl = store.ttl if ttl is None else check_ttl(ttl)
        self.name: str = name
        self.permits: int = check_count("permits", permits)
        self._entered: dict[object, list[Hold[Lease]]] = {}  # by task: the holds of `async with semaphore`

    def __repr__(self) -> str:
        return f"<Semaphore {self.name!r} permits={self.permits}>"

    def hold(
        self, permits: int = 1, timeout: Seconds | None = None
    ) -> AbstractAsyncContextManager[Lease, None]:
        """Hold `permits` for a block, all or none, `async with semaphore.hold(2) as lease`.

        `timeout` is as in `Lock.hold`. Entering raises `AcquireTimeout`, `CapacityMismatch`, `StoreClosed`,
        `EngineError`; leaving raises `LeaseLost`.
        Cancellation: while waiting, no place is kept and nothing is held.
        """
        return self._hold(permits, timeout)

    async def __aenter__(self) -> Lease:
        """Hold one permit. Cancellation: nothing is held."""
        hold = self._hold(1, None)
        lease = await hold.__aenter__()
        self._entered.setdefault(this_task(), []).append(hold)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the permit back. Raises `LeaseLost` if it was lost and the body raised nothing of its own.

        Cancellation: as in `Lock`, giving back goes on.
        """
        task = this_task()
        holds = self._entered.get(task)
        if not holds:
            raise RuntimeError(f"{self._key}: not held by this task")
        hold = holds.pop()
        if not holds:
            del self._entered[task]
        await hold.__aexit__(kind, error, trace)

    async def resize(self, permits: int) -> None:
        """Change the number of permits for all processes, for good.

        Additional permits are granted at once; fewer take effect as holders leave. Waiters that ask for more than the
        new number get `CapacityMismatch`, as do other objects that were made with another number. Cancellation: it may
        or may not be applied.
        """
        permits = check_count("permits", permits)
        await self._store.call(e.Resize(self._key, permits))
        self.permits = permits

    def _hold(self, permits: int, timeout: Seconds | None) -> Hold[Lease]:
        request = HoldRequest(self._key, self.permits, check_count("permits", permits, most=self.permits))
        return Hold(Lease, self._store, request, ttl=self._ttl, timeout=timeout)
