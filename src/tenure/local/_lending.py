"""The base of pools: how a resource is lent, checked, returned and closed.

A pool decides which resources are available at once, which task waits for what, and which gets what becomes free; the
rest is here.
"""

# The classes of this file are one idea.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractAsyncContextManager, suppress
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar

import anyio

from tenure.arguments import AsyncBlock, NotAwaited, Seconds, check_count
from tenure.errors import BulkheadFull, PoolTimeout
from tenure.local._limits import seconds
from tenure.local._pool_entry import Entry
from tenure.local._pool_lifecycle import PoolLifecycle
from tenure.local._pool_loans import Loans
from tenure.waiting import Expired, checkpoint, now, this_task

if TYPE_CHECKING:
    from types import TracebackType

    from tenure.local._pool_hooks import Hooks
    from tenure.local._pool_loans import Borrower, Leak
    from tenure.local._pool_state import PoolState
    from tenure.upkeep import Job

__all__ = ("SPOILT", "Lending", "Loan")

T = TypeVar("T")
W = TypeVar("W")
E = TypeVar("E", bound=Entry[Any])
SPOILT = -inf
"""The time at which a resource was last known to be good, when a body raised."""


class Lending(PoolLifecycle, Generic[T, W, E]):
    """A pool of resources of type T, kept as entries of type E, for which borrowers ask with a W."""

    def __init__(
        self,
        hooks: Hooks[T],
        state: PoolState[E],
        *,
        max_waiting: int | None,
        leak_after: Seconds | None,
    ) -> None:
        super().__init__(hooks.close_timeout, hooks.reporter)
        self._hooks = hooks
        self._state = state
        self._loans = Loans(seconds("leak_after", leak_after), hooks.reporter)
        self._max_waiting = None if max_waiting is None else check_count("max_waiting", max_waiting, least=0)
        self._reaper: Job | None = None
        self._last_error: Exception | None = None
        self._created: int = 0
        self._create_failures: int = 0
        self._closed = self._timeouts = self._refused = 0

    def leaks(self) -> tuple[Leak, ...]:
        """Describe the loans that last longer than `leak_after`: to which task, for how long, taken where."""
        return self._loans.leaks()

    # what a pool decides

    @abstractmethod
    def _take(self, want: W) -> E | None:
        """Lend a resource if one can be had at once."""

    @abstractmethod
    async def _stand_in_line(self, want: W, timeout: float) -> E:
        """Wait for an entry. Raises `Expired` after `timeout` seconds. Cancellation: nothing is taken."""

    @abstractmethod
    def _give_back(self, entry: E) -> None:
        """Hand a resource in order to the next waiter, or keep it."""

    @abstractmethod
    def _timed_out(self, want: W, timeout: float) -> str:
        """Describe why nothing could be had."""

    @abstractmethod
    def _slot_is_free(self, entry: E, reason: str) -> None:
        """Give the slot of a closed entry to the next task in need of it."""

    async def _before_closing(self, entry: E, reason: str) -> None:
        """Prepare the closing of an entry. Cancellation: passed on."""

    def _look_over_idle(self, time: float) -> None:
        """Begin to check the resources that are due for it."""

    # lending

    def _is_due(self, entry: E) -> bool:
        """True if an entry that was just taken has to be checked."""
        return entry.lent_at - entry.since >= self._hooks.check_after

    async def _obtain(self, want: W, entry: E | None, timeout: float) -> E:
        """Check the entry that was taken, or wait for another.

        Cancellation: nothing is taken.
        """
        remaining = timeout
        if entry is not None:
            # a limit of 0 is none for a check, or nothing that is due for one could ever be had so
            with anyio.move_on_after(timeout or inf) as limit:
                if checked := await self._checked(want, entry):
                    return checked
            remaining = timeout and max(0.0, limit.deadline - now())
        with suppress(Expired):
            return await self._stand_in_line(want, remaining)
        self._timeouts += 1
        task = this_task()
        held = sum(entry.held_by(task) for entry in self._state.lent)
        itself = f"; this task holds {held} of them itself" if held else ""
        raise PoolTimeout(f"{self._timed_out(want, timeout)}{itself}") from self._last_error

    async def _checked(self, want: W, entry: E | None) -> E | None:
        while entry is not None and self._is_due(entry):
            if await self._proved(want, entry):
                break
            entry = self._take(want)
        if entry is not None:
            try:
                await checkpoint()
            except BaseException:
                self._give_back(entry)
                raise
        return entry

    async def _proved(self, want: W, entry: E) -> bool:  # noqa: ARG002 - a pool may need it
        return await self._passes("check", entry, shield=False)

    async def _passes(self, hook: Literal["check", "reset"], entry: E, *, shield: bool) -> bool:
        """Call `check` or `reset` for a lent resource; close it if the call fails or is cancelled."""
        sound, reason = False, "cancelled"
        try:
            sound = await self._hooks.pass_over(hook, entry.resource, entry.fields, shield=shield)
            reason = "reset failed" if hook == "reset" else "unhealthy"
        finally:
            if sound:
                entry.since = now()
            else:
                self._drop(entry, reason)
        return sound

    async def _refuse(self, limit: int, summary: str) -> NoReturn:
        most = self._max_waiting
        assert most is not None
        self._refused += 1
        # so that a loop that tries again and again does not lock up the others
        await checkpoint()
        raise BulkheadFull(f"{most} tasks wait already: {summary}", limit=limit, waiting=most)

    # taking back

    def _come_back(self, entry: E) -> None:
        """Take back a resource that was used without a fault and needs no reset."""
        entry.since = entry.idle_from = now()
        self._give_back(entry)

    async def _come_back_from(self, want: W, entry: E, error: BaseException | None) -> None:  # noqa: ARG002
        """Take back a resource that needs a reset, or a body of which raised: it is `SPOILT` then.

        Cancellation: shielded; only asyncio's native cancellation reaches it, and then closes the resource.
        """
        hooks = self._hooks
        closing = self._phase == "closing"
        if error is not None:
            entry.since = SPOILT
        if hooks.reset is not None and not isinstance(error, GeneratorExit):  # that task must not await again
            if closing or await self._passes("reset", entry, shield=True):
                self._come_back(entry)
        elif not isinstance(error, Exception | None):
            self._drop(entry, "cancelled")
        elif entry.since == SPOILT and hooks.check is None:
            self._drop(entry, "unhealthy")
        elif entry.since > SPOILT or closing or await self._passes("check", entry, shield=True):
            self._come_back(entry)

    # closing, many at a time

    def _drop(self, entry: E, reason: str) -> None:
        """Close an entry; nothing happens if it was closed already, under its borrower's hands."""
        if self._state.drop(entry):
            self._start("pool closer", self._end, entry, reason)

    async def _end(self, entry: E, reason: str) -> None:
        try:
            if not self._is_of_parent:  # the parent uses it
                await self._before_closing(entry, reason)
                await self._hooks.end(entry.resource, entry.fields)
        finally:
            self._closed += 1
            self._state.closing -= 1
            self._slot_is_free(entry, reason)
            self._slot_freed()
        self._reporter.notice("pool.closed", **entry.fields, reason=reason, age=now() - entry.born)

    # as long as it is open

    def _slots(self) -> int:
        return self._state.size

    def _start_jobs(self) -> None:
        if self._next_look(0) < inf:
            self._reaper = self._start("pool reaper", self._reap)

    def _begin_closing(self) -> None:
        self._phase = "closing"
        if self._reaper is not None:
            self._reaper.cancel()

    def _close_lent(self) -> None:
        for entry in list(self._state.lent):
            self._drop(entry, "closed while lent")

    def _next_look(self, time: float) -> float:
        return min(self._state.next_look(time), self._loans.next_look(time))

    async def _reap(self) -> None:
        while True:
            time = now()
            for entry, reason in self._state.overdue(time):
                self._drop(entry, reason)
            self._look_over_idle(time)
            self._loans.report(time)
            await anyio.sleep_until(self._next_look(time))


class Loan(AsyncBlock, NotAwaited, AbstractAsyncContextManager[T]):
    """The return value of `acquire`: a block with a resource."""

    __slots__ = ("_borrower", "_entered", "_entry", "_pool", "_timeout", "_want")

    def __init__(self, pool: Lending[T, W, Any], want: W, timeout: float) -> None:
        self._pool: Lending[T, Any, Any] = pool
        self._want = want
        self._timeout = timeout
        self._entered = False
        self._entry: Entry[T] | None = None
        self._borrower: Borrower | None = None

    async def __aenter__(self) -> T:
        """Borrow a resource. Cancellation: nothing is borrowed."""
        if self._entered:
            raise RuntimeError("the result of acquire() is for one block: call it again for another")
        self._entered = True
        pool = self._pool
        entry = pool._take(self._want)
        if entry is None or pool._is_due(entry):
            entry = await pool._obtain(self._want, entry, self._timeout)
        else:
            try:
                await checkpoint()
            except BaseException:
                pool._give_back(entry)
                raise
        self._entry = entry
        entry.task = this_task()
        if pool._loans.noted:
            self._borrower = pool._loans.begin(entry.fields)
        return entry.resource

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the resource back. Cancellation: not cancelled, but see the pool's `acquire`."""
        entry, self._entry = self._entry, None
        if entry is None:
            raise RuntimeError("nothing was borrowed by this block, or it was left already")
        entry.task = None
        pool = self._pool
        if self._borrower is not None:
            pool._loans.end(self._borrower)
        if error is None and pool._hooks.reset is None and entry.since > SPOILT:
            entry.since = entry.idle_from = now()  # `_come_back`, without the call
            pool._give_back(entry)
        else:
            await pool._come_back_from(self._want, entry, error)
