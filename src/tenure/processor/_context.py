"""The context that a handler gets beside its task."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from tenure.arguments import AsyncBlock, NotAwaited
from tenure.errors import AcquireTimeout
from tenure.shared import Claim, Lease, Lock
from tenure.store import Store

from ._meter import Meter


class MeasuredLock(AsyncBlock, NotAwaited):
    """A shared lock for a block, which receives its `Lease`. For one use: `async with context.lock(name) as lease`."""

    __slots__ = ("_hold", "_meter", "_name", "_since")

    def __init__(self, hold: AbstractAsyncContextManager[Lease, None], name: str, meter: Meter) -> None:
        self._hold = hold
        self._name = name
        self._meter = meter
        self._since = 0.0

    async def __aenter__(self) -> Lease:
        """Hold the lock. Raises `AcquireTimeout`, `RuntimeError` if this task holds it already, `StoreClosed`,
        `EngineError`. Cancellation: nothing is held and no place is kept.
        """
        meter, name = self._meter, self._name
        since = meter.lock_awaited(name)
        try:
            lease = await self._hold.__aenter__()
            self._since = meter.lock_entered(name, since)
        except AcquireTimeout as error:
            meter.report("lock_timeouts", lock=name, seconds=error.seconds)
            raise
        finally:
            meter.lock_no_longer_awaited(name)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back. Raises `LeaseLost` if it was lost and the body did not raise something of its own.

        Cancellation: giving back goes on by itself; only the wait for its acknowledgement ends.
        """
        self._meter.lock_left(self._name, self._since)
        await self._hold.__aexit__(kind, error, trace)


class Context:
    """A handler's context for as long as it runs: `claim`, `connection`, and named locks."""

    __slots__ = ("_claim", "_connection", "_meter", "_store", "kind")

    def __init__(self, store: Store, kind: str | None, meter: Meter) -> None:
        self._store = store
        self._meter = meter
        self._claim: Claim | None = None
        self._connection: tuple[Any, ...] = ()
        self.kind: str | None = kind

    @property
    def claim(self) -> Claim:
        """The claimed resource. Raises `RuntimeError` if the processor was given no `claims`."""
        if self._claim is None:
            raise RuntimeError("context.claim: this processor was made without claims=")
        return self._claim

    @property
    def connection(self) -> Any:
        """The connection. Raises `RuntimeError` if the processor was given no `pool`."""
        if not self._connection:
            raise RuntimeError("context.connection: this processor was made without pool=")
        return self._connection[0]

    def lock(self, name: str, timeout: float | None = None) -> AbstractAsyncContextManager[Lease, None]:
        """Hold the shared `Lock` of that name for a block: `async with context.lock("cache") as lease`.

        It is the lock that `Lock(store, name)` is everywhere else. `timeout` in seconds limits the wait (None: for
        ever). Entering and leaving raise as `Lock.hold` does.
        Cancellation: while waiting, no place is kept and nothing is held.
        """
        return MeasuredLock(Lock(self._store, name).hold(timeout), name, self._meter)

    def check(self) -> None:
        """Raise `LeaseLost` if the time of the claim has passed. For the processor alone."""
        if self._claim is not None:
            self._claim.check()

    def has(self, claim: Claim) -> None:
        """The claim was obtained. For the processor alone."""
        self._claim = claim

    def has_connection(self, connection: Any) -> None:
        """A connection was obtained. For the processor alone."""
        self._connection = (connection,)
