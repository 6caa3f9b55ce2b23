from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tenure.arguments import Seconds
from tenure.errors import AcquireTimeout
from tenure.shared import Claim, Lease, Lock
from tenure.store import Store
from tenure.waiting import now

from ._meter import Meter


class Context:
    """A handler's context for as long as it runs: `claim`, `connection`, and named locks."""

    __slots__ = ("_held", "_meter", "_store", "kind")

    def __init__(self, store: Store, meter: Meter, held: Mapping[str, Any]) -> None:
        self._store = store
        self._meter = meter
        self._held = held
        self.kind: str | None = meter.kind

    @property
    def claim(self) -> Claim:
        """The claimed resource. Raises `RuntimeError` if the processor was given no `claims`."""
        return self._get("claims", "context.claim: this processor was made without claims=")

    @property
    def connection(self) -> Any:
        """The connection. Raises `RuntimeError` if the processor was given no `pool`."""
        return self._get("connections", "context.connection: this processor was made without pool=")

    def _get(self, name: str, problem: str) -> Any:
        if name not in self._held:
            raise RuntimeError(problem)
        return self._held[name]

    @asynccontextmanager
    async def lock(self, name: str, timeout: Seconds | None = None) -> AsyncGenerator[Lease]:
        """Hold the `Lock` of that name in the store, for a block: `async with context.lock("cache") as lease`.

        `timeout` in seconds limits the wait (None: for ever). Raises as `Lock.hold` does.
        Cancellation: while waiting, no place is kept and nothing is held.
        """
        meter, use, since = self._meter, self._meter.lock(name), now()
        async with AsyncExitStack() as stack:
            try:
                lease = await stack.enter_async_context(Lock(self._store, name).hold(timeout))
            except AcquireTimeout as error:
                meter.report("lock_timeouts", lock=name, seconds=error.seconds)
                raise
            since = meter.lock_entered(use, since)
            try:
                yield lease
            finally:
                use.left = meter.lasted("hold", since)
