"""The context that a handler gets beside its task."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tenure.arguments import Seconds
from tenure.errors import AcquireTimeout
from tenure.shared import Claim, Lease, Lock
from tenure.store import Store

from ._meter import Meter


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

    @asynccontextmanager
    async def lock(self, name: str, timeout: Seconds | None = None) -> AsyncGenerator[Lease]:
        """Hold the shared `Lock` of that name for a block: `async with context.lock("cache") as lease`.

        It is the lock that `Lock(store, name)` is everywhere else. `timeout` in seconds limits the wait (None: for
        ever). Entering and leaving raise as `Lock.hold` does.
        Cancellation: while waiting, no place is kept and nothing is held.
        """
        meter = self._meter
        async with AsyncExitStack() as stack:
            since = meter.lock_awaited(name)
            try:
                lease = await stack.enter_async_context(Lock(self._store, name).hold(timeout))
                since = meter.lock_entered(name, since)
            except AcquireTimeout as error:
                meter.report("lock_timeouts", lock=name, seconds=error.seconds)
                raise
            finally:
                meter.lock_no_longer_awaited(name)
            stack.callback(meter.lock_left, name, since)
            yield lease

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
