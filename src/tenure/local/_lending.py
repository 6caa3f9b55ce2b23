"""The base of pools: how a resource is lent, shared, checked and taken back.

A resource that becomes free goes to the head of its key's line in the same step. So no waiter is bound to the creation
that it caused.
"""

# The classes of this file are one idea.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractAsyncContextManager, suppress
from math import inf
from typing import TYPE_CHECKING, TypeVar

import anyio

from tenure.arguments import AsyncBlock, NotAwaited, Seconds
from tenure.errors import BulkheadFull, PoolClosed, PoolTimeout
from tenure.local._limits import seconds
from tenure.local._pool_loans import Borrower, Wish
from tenure.local._pool_slots import Slots
from tenure.waiting import Expired, checkpoint, now, this_task

if TYPE_CHECKING:
    from types import TracebackType

    from tenure.local._subpool import PoolEntry, SubPool
    from tenure.waiting import Waiter

T = TypeVar("T")
NOT_OPEN = "the pool is not open: use it inside of its `async with` block"
SPOILT = -inf
"""The time at which a resource was last known to be good, when a body raised."""


class Lending(Slots[T]):
    """A pool of resources of type T by key; a `Pool` has a single key."""

    __slots__ = ()

    @abstractmethod
    def _summary(self) -> str:
        """Describe the state of the pool."""

    def _told(self, key: object, what: str = "") -> str:
        if not self._by_key:
            return f"{what}{self._summary()}"
        subpool = self._subpools.get(key)
        used = 0 if subpool is None else subpool.slots
        return f"{key!r}: {what}{used} of {self._max_per_key} slots of this key in use; {self._summary()}"

    def _check_open(self, _loan: object = None) -> None:
        if self._phase in {"new", "opening"}:
            raise RuntimeError(NOT_OPEN)
        if self._is_of_parent:
            raise PoolClosed(
                "the pool was opened before a fork, and its resources are the parent's: open one here"
            )
        if self._phase != "open":
            raise PoolClosed("the pool is closed")

    # lending

    def _take(self, loan: Wish) -> PoolEntry[T] | None:
        subpool = self._subpools.get(loan.key)
        if subpool is None or not (subpool.idle or subpool.shared) or (subpool.line.first and subpool.line):
            return None
        time = now()
        if not loan.exclusive and (entry := self._shared(subpool, time)) is not None:
            entry.users += 1
            return entry
        while subpool.idle:
            entry = subpool.idle[-1]  # the most recently used, so that unneeded ones grow idle
            if time >= entry.expires:
                self._drop(entry, entry.worn)
                continue
            subpool.idle.pop()
            if self._evicts:
                del self._idle[entry]
            entry.users = 1
            entry.lent_at = time
            if not (loan.exclusive or self._is_due(entry)):
                subpool.shared = entry
            return entry
        return None

    def _is_due(self, entry: PoolEntry[T]) -> bool:
        return entry.users == 1 and entry.lent_at - entry.since >= self._check_after

    async def _obtain(self, loan: Wish, entry: PoolEntry[T] | None, timeout: float) -> PoolEntry[T]:
        remaining = timeout
        if entry is not None:
            # a limit of 0 is none for a check, or nothing that is due for one could ever be had so
            with anyio.move_on_after(timeout or inf) as limit:
                if checked := await self._checked(loan, entry):
                    return checked
            remaining = timeout and max(0.0, limit.deadline - now())
        with suppress(Expired):
            return await self._stand_in_line(loan, remaining)
        self._counts["timeouts"] += 1
        task = this_task()
        held = sum(each.task is task for entry in self._entries() for each in entry.loans)
        itself = f"; this task holds {held} of them itself" if held else ""
        told = self._told(loan.key, f"no resource within {timeout:g} s: ")
        raise PoolTimeout(f"{told}{itself}") from self._last_error

    async def _checked(self, loan: Wish, entry: PoolEntry[T] | None) -> PoolEntry[T] | None:
        while entry is not None and self._is_due(entry):
            if await self._proved(loan, entry):
                break
            entry = self._take(loan)
        if entry is not None:
            await self._step(entry)
        return entry

    async def _step(self, entry: PoolEntry[T]) -> None:
        try:
            await checkpoint()
        except BaseException:
            self._give_back(entry, now())
            raise

    async def _proved(self, loan: Wish, entry: PoolEntry[T]) -> bool:
        subpool, share = entry.subpool, not loan.exclusive
        passed = False
        subpool.probing += share
        try:
            passed = await self._passes("check", entry, shield=False)
        finally:
            subpool.probing -= share
            if passed and share:
                subpool.shared = entry
                self._share(subpool)
            self._look_at(subpool)
        return passed

    async def _stand_in_line(self, loan: Wish, timeout: float) -> PoolEntry[T]:
        self._check_open()
        subpool = self._subpool(loan.key)
        if self._max_waiting is not None and self._is_crowded(subpool, loan.exclusive, self._max_waiting):
            told = self._told(loan.key)
            self._look_at(subpool)
            self._counts["refused"] += 1
            # so that a loop that tries again and again does not lock up the others
            await checkpoint()
            most = self._max_waiting
            waits = "task waits" if most == 1 else "tasks wait"
            raise BulkheadFull(f"{most} {waits} already: {told}", limit=self._max_per_key, waiting=most)
        self._home.bind()  # before the job of a creation begins here
        loan.number = next(self._numbers)
        waiter = subpool.line.join(loan)
        self._look_at(subpool)
        return await subpool.line.wait(waiter, timeout)

    def _is_crowded(self, subpool: SubPool[T], exclusive: bool, most: int) -> bool:
        wanting = self._slot_queue.wanting
        # slots that are not lent and not for others: they are free, or become free without a return
        free = self._max_total - self._slots + self._closing - len(wanting) + (subpool in wanting)
        free += subpool.creating + subpool.checking
        free += len(self._idle) if self._evicts else len(subpool.idle)
        slots = min(free, self._max_per_key - subpool.lent + subpool.checking)
        if len(subpool.line) - max(0, slots) < most:
            return False  # as fast as can be: even if none of them shared
        return subpool.held_up(slots, exclusive) >= most

    def _left(self, waiter: Waiter[Wish, PoolEntry[T]]) -> None:
        if waiter.granted:
            self._give_back(waiter.value, now())
        subpool = self._subpool(waiter.want.key)
        self._share(subpool)
        if self._by_key and subpool.creator is not None and not subpool.line:
            subpool.creator.cancel()
        self._look_at(subpool)

    def _give_back(self, entry: PoolEntry[T], time: float, *, used: bool = True) -> None:
        if entry.closed:
            return  # under its borrowers' hands
        if entry.users > 1:
            entry.users -= 1
            return
        subpool, queue = entry.subpool, self._slot_queue
        if subpool.shared is entry:
            subpool.shared = None
        head = subpool.line.head()
        if self._phase == "closing":
            self._drop(entry, "closed")
        elif time >= entry.expires:
            self._drop(entry, entry.worn)
        elif self._slots - self._closing > self._max_total:
            self._drop(entry, "resized")
        elif head is None:
            entry.users = 0
            if used:
                subpool.idle.append(entry)
            else:
                subpool.idle.insert(0, entry)
            if self._evicts:
                self._idle[entry] = None
            if queue.wanting:
                self._feed()
        elif queue.wanting and (turn := queue.first()) and turn[0] < head.want.number and self._makes_room():
            self._drop(entry, "room")
        else:
            subpool.line.grant(head, entry)
            if not head.want.exclusive:
                subpool.shared = entry
            if subpool.shared is not None:
                self._share(subpool)
            if subpool in queue.wanting:
                self._look_at(subpool)

    # sharing

    def _shared(self, subpool: SubPool[T], time: float) -> PoolEntry[T] | None:
        if subpool.shared is not None and time >= subpool.shared.expires:
            subpool.shared = None  # its users go on with it
        return subpool.shared

    def _share(self, subpool: SubPool[T]) -> None:
        shared = subpool.shared and self._shared(subpool, now())
        while shared is not None and (head := subpool.line.head()) is not None and not head.want.exclusive:
            shared.users += 1
            subpool.line.grant(head, shared)

    # taking back

    async def _come_back_from(self, loan: Wish, entry: PoolEntry[T], error: BaseException | None) -> None:
        """Take back a resource that needs a reset, or whose body raised: it is `SPOILT` then. In a shield."""
        subpool, closing = entry.subpool, self._phase == "closing"
        if error is not None:
            entry.since = SPOILT
        if not loan.exclusive:
            last = entry.users == 1
            unfit = entry.since == SPOILT and self._check is self._reset is None
            if subpool.shared is entry and (last or unfit):
                subpool.shared = None  # no further task joins
            if not last or entry.closed:
                self._give_back(entry, now())
                return
            if not isinstance(error, GeneratorExit):
                error = None  # a task that was cancelled may have been one of many
        if self._reset is not None and not isinstance(error, GeneratorExit):  # that task must not await again
            if closing or await self._passes("reset", entry, shield=True):
                self._come_back(entry)
        elif not isinstance(error, Exception | None):
            self._drop(entry, "cancelled")
        elif entry.since == SPOILT and self._check is None:
            self._drop(entry, "unhealthy")
        elif entry.since > SPOILT or closing or await self._passes("check", entry, shield=True):
            self._come_back(entry)

    def _come_back(self, entry: PoolEntry[T]) -> None:
        entry.since = entry.idle_from = time = now()
        self._give_back(entry, time)


class Loan(AsyncBlock, NotAwaited, Wish, AbstractAsyncContextManager[T]):
    __slots__ = ("_entered", "_entry", "_pool", "_timeout")

    def __init__(
        self, pool: Lending[T], key: object, timeout: Seconds | None, *, exclusive: bool = True
    ) -> None:
        self._pool = pool
        self._timeout = seconds("timeout", timeout, zero=True)
        self._entered = False
        self._entry: PoolEntry[T] | None = None
        self.borrower = None
        self.key = key
        self.exclusive = exclusive
        self.number = 0
        self.task = None

    async def __aenter__(self) -> T:
        if self._entered:
            raise RuntimeError("the result of acquire() is for one block: call it again for another")
        self._entered = True
        pool = self._pool
        entry = pool._take(self)
        if entry is None or pool._is_due(entry):
            entry = await pool._obtain(self, entry, self._timeout)
        else:
            await pool._step(entry)
        self._entry = entry
        self.task = this_task()
        entry.loans.append(self)
        if pool._leak_after < inf:
            self.borrower = Borrower(entry.subpool.fields)
        return entry.resource

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry, self._entry = self._entry, None
        if entry is None:
            raise RuntimeError("nothing was borrowed by this block, or it was left already")
        entry.loans.remove(self)
        pool = self._pool
        if error is None and pool._reset is None and entry.since > SPOILT:
            pool._come_back(entry)
        else:
            await pool._come_back_from(self, entry, error)
