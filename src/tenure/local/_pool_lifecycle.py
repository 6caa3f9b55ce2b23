from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakSet

import anyio
from anyio import AsyncContextManagerMixin

from tenure.arguments import AsyncBlock
from tenure.errors import PoolClosed
from tenure.local._lending import NOT_OPEN, Lending
from tenure.local._pool_loans import Leak
from tenure.local._pool_slots import JITTER
from tenure.upkeep import Upkeep, in_one_task, unwrapped_task_group
from tenure.waiting import now

if TYPE_CHECKING:
    from tenure.local._pool_loans import Borrower
    from tenure.local._subpool import PoolEntry
    from tenure.upkeep import BackgroundTask

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    size: int
    """The number of slots in use."""
    idle: int
    """The number of idle resources."""
    lent: int
    """The number of resources that are lent, or are being checked or reset by a borrower."""
    creating: int
    """The number of resources that are being created: at most one for each key."""
    closing: int
    """The number of resources that are being closed."""
    tasks_waiting: int
    """The number of tasks that stand in a line."""
    created: int
    """The number of resources created since the pool was opened."""
    closed: int
    """The number of resources closed since then."""
    create_failures: int
    """The number of creations that have failed since then."""
    timeouts: int
    """The number of times that a `timeout` of acquire has run out since then."""
    refused: int
    """The number of tasks refused since then because `max_waiting` other tasks waited already."""
    leaked: int
    """The number of loans that have lasted longer than `leak_after`."""


class PoolLifecycle(AsyncBlock, AsyncContextManagerMixin, Lending[T]):
    _reaper: BackgroundTask | None = None

    @staticmethod
    def _after_fork() -> None:
        for pool in _opened:
            pool._is_of_parent = True
            pool._phase = "closing"
            # in place of the method, which need not ask each time
            pool.__dict__["_take"] = pool._check_open

    async def drain(self) -> None:
        """Lend nothing more, wait until all that is lent has come back, and close everything.

        From its first step on, waiting and later calls raise `PoolClosed`. Raises `RuntimeError` if the pool was never
        opened.

        Cancellation: ends the wait; the pool lends nothing more all the same.
        """
        if self._phase in {"new", "opening"}:
            raise RuntimeError(NOT_OPEN)
        self._home.bind()
        self._begin_closing()
        await self._emptied.wait()

    def leaks(self) -> tuple[Leak, ...]:
        """The loans that last longer than `leak_after`: to which task, for how long, taken where."""
        time = now()
        return tuple(borrower.leak(time) for borrower in self._overdue(time))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._phase}: {self._summary()}>"

    def _figures(self) -> dict[str, int]:
        subpools = self._subpools.values()
        return {
            "size": self._slots,
            "idle": sum(len(subpool.idle) for subpool in subpools),
            "lent": sum(subpool.lent for subpool in subpools),
            "creating": sum(subpool.creating for subpool in subpools),
            "closing": self._closing,
            "tasks_waiting": sum(len(subpool.line) for subpool in subpools),
            **self._counts,
            "leaked": len(self._overdue(now())),
        }

    # opening and closing

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        if self._phase != "new":
            raise RuntimeError("a pool can be opened only once; make a new one")
        self._phase = "opening"
        self._home.bind()
        _opened.add(self)
        try:
            async with in_one_task("pool"), unwrapped_task_group() as group:
                self._upkeep = Upkeep(group)
                try:
                    await self._begin()
                    yield self
                finally:
                    self._begin_closing()
                    try:
                        with anyio.move_on_after(self._close_timeout, shield=True):
                            await self._emptied.wait()
                    finally:
                        for entry in self._entries():
                            self._drop(entry, "closed while lent")
        finally:
            _opened.discard(self)
            self._reporter.settle()

    async def _begin(self) -> None:
        made = True
        while made and self._subpool(None).spare < 0:
            self._occupy(self._subpool(None))
            made = await self._make(self._subpool(None))
        self._phase = "open"
        self._look_at(self._subpool(None))
        if self._next_look(0) < inf:
            self._reaper = self._start("pool reaper", self._reap)

    def _begin_closing(self) -> None:
        self._phase = "closing"
        if self._reaper is not None:
            self._reaper.cancel()
        self._last_error = None  # its traceback holds this object: let go of it
        for subpool in list(self._subpools.values()):
            if subpool.creator is not None:
                subpool.creator.cancel()
            subpool.shared = None  # no more tasks join
            subpool.line.fail_all(lambda: PoolClosed("the pool was closed"))
            for entry in list(subpool.idle):
                self._drop(entry, "closed")
            self._look_at(subpool)
        if not self._slots:
            self._emptied.set()

    # as long as it is open

    def _overdue(self, time: float) -> list[Borrower]:
        if self._leak_after == inf:
            return []
        borrowers = [loan.borrower for entry in self._entries() for loan in entry.loans if loan.borrower]
        return sorted(
            (each for each in borrowers if time >= each.since + self._leak_after), key=lambda each: each.since
        )

    async def _reap(self) -> None:
        while True:
            time = now()
            for entry in [entry for subpool in self._subpools.values() for entry in subpool.idle]:
                if time >= entry.expires:
                    self._drop(entry, entry.worn)
                elif time >= entry.idle_from + self._idle_timeout and entry.subpool.spare > 0:
                    self._drop(entry, "idle")
                elif time >= entry.since + self._check_every:
                    entry.subpool.idle.remove(entry)
                    entry.subpool.checking += 1
                    entry.users = 1
                    self._start("pool checker", self._check_idle, entry)
            for borrower in self._overdue(time):
                borrower.report(time, self._reporter)
            await anyio.sleep_until(self._next_look(time))

    def _next_look(self, time: float) -> float:
        """The next time at which there can be something to do, whatever happens meanwhile; `inf` for never."""
        limits = (self._idle_timeout, self._max_lifetime * (1 - JITTER), self._check_every, self._leak_after)
        due = time + min(limits)
        for entry in self._entries():
            times = [entry.expires]
            times += [loan.borrower.since + self._leak_after for loan in entry.loans if loan.borrower]
            if not entry.users:
                times += entry.since + self._check_every, entry.idle_from + self._idle_timeout
            due = min([due, *(each for each in times if each > time)])
        return due

    async def _check_idle(self, entry: PoolEntry[T]) -> None:
        try:
            sound = await self._passes("check", entry, shield=False)
        finally:
            entry.subpool.checking -= 1
        if sound:
            self._give_back(entry, now(), used=False)


_opened: WeakSet[PoolLifecycle[Any]] = WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PoolLifecycle._after_fork)  # pyright: ignore[reportPrivateUsage]
