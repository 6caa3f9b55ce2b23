"""Permits of a limit that holds over the whole fleet, for the workers of one kind.

A worker has a permit before it takes a task. A round trip for each task would be dear, so it keeps the permit from
task to task, under four rules:

1. After a second it gives the permit back when its task ends, and asks again, behind those that wait.
2. A worker that finds no task keeps the permit for a second if no worker waited when it was granted, else for a tenth.
3. A few workers of a kind ask at once: at first one, and twice as many with each task that comes. So a process with
   many workers has no longer turn in the line than one with few.
4. Of a kind that has found no task one worker goes on asking. If others wait, it stays away for a second first.

A permit that is lost cancels the worker's task, which is given back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from tenure.errors import AcquireTimeout, CapacityMismatch, LeaseLost
from tenure.shared import Lease, Semaphore
from tenure.waiting import now

from ._meter import Meter

_TURN = 1.0
"""Seconds after which a permit is given back, and those that a kind without tasks stays away."""
_IDLE_TIMEOUT = 0.1
"""Seconds that a worker without a task keeps what others wait for. The engine has to answer in that time."""
_AHEAD = 8
"""The largest number of workers of a kind that ask for a permit, or wait for a task with a permit, at once."""


async def agree_on(limit: Semaphore) -> None:
    """Raise `CapacityMismatch` if others use another number of permits; `StoreClosed`, `EngineError`."""
    try:
        async with limit.hold(timeout=0):
            pass
    except AcquireTimeout:
        pass


class Permits:
    """The permits of one kind in this process."""

    def __init__(self, limit: Semaphore, meter: Meter) -> None:
        self.ahead = 1
        """The number of workers without a task that may ask at present."""
        self._limit = limit
        self._meter = meter
        self._idle = False

    def found_task(self) -> None:
        """A worker with a permit has found a task."""
        self._idle = False
        self.ahead = min(_AHEAD, 2 * self.ahead)

    def found_none(self) -> None:
        """A worker with a permit has found no task."""
        self._idle = True
        self.ahead = 1

    @asynccontextmanager
    async def permit(self) -> AsyncGenerator[Permit]:
        """Hold a permit for a block, which is cancelled if it is lost. Raises `CapacityMismatch` and as a hold does."""
        try:
            async with AsyncExitStack() as stack:
                try:
                    permit = await self._obtain(stack)
                except CapacityMismatch:  # it may be being resized, and know of it in a moment
                    await anyio.sleep(_TURN)
                    permit = await self._obtain(stack)
                self._meter.change("permits", 1)
                stack.callback(self._meter.change, "permits", -1)
                yield permit
        except LeaseLost as lost:
            self._meter.report("leases_lost", key=lost.key, reason=lost.reason)

    async def _obtain(self, stack: AsyncExitStack) -> Permit:
        since, waited = now(), 0.0
        try:
            lease = await stack.enter_async_context(self._limit.hold(timeout=0))
            idle_for = _TURN
        except AcquireTimeout:
            waited, idle_for = now() - since, _IDLE_TIMEOUT
            if self._idle:
                await anyio.sleep(_TURN)
            since = now()
            lease = await stack.enter_async_context(self._limit.hold())
        self._meter.record("limit", since - waited)
        return Permit(lease, now() + _TURN, idle_for)


class Permit:
    """A permit: its lease, until when it is kept from task to task, and for how many seconds without one."""

    __slots__ = ("_idle_for", "_until", "lease")

    def __init__(self, lease: Lease, until: float, idle_for: float) -> None:
        self.lease = lease
        self._until = until
        self._idle_for = idle_for

    def time_limit(self) -> float | None:
        """The seconds to wait for a task; None: the permit is to be given back."""
        return self._idle_for if now() < self._until else None
