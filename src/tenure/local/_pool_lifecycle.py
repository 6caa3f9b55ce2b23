"""The lifecycle of a pool: opening, emptying and closing."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self
from weakref import WeakSet

import anyio
from anyio import AsyncContextManagerMixin

from tenure.arguments import AsyncBlock
from tenure.errors import PoolClosed
from tenure.observe import Reporter
from tenure.upkeep import Job, Upkeep, in_one_task, unwrapped_task_group
from tenure.waiting import Home, Line, Waiter, checkpoint

__all__ = ("PoolLifecycle",)

_NOT_OPEN = "the pool is not open: use it inside of its `async with` block"


class PoolLifecycle(AsyncBlock, AsyncContextManagerMixin):
    """The states of a pool (new, opening, open, closing) and the jobs that run while it is open.

    Thread safety: none; all on the thread of one loop.
    """

    def __init__(self, close_timeout: float, reporter: Reporter) -> None:
        self._close_timeout = close_timeout
        self._reporter = reporter
        self._phase = "new"
        self._is_of_parent = False
        self._upkeep: Upkeep | None = None
        self._home = Home(self)
        self._emptied: Line[None, None] = Line(_nothing, self._home)

    @staticmethod
    def after_fork() -> None:
        """In the child: lend and close nothing that the parent uses."""
        for pool in _opened:
            pool._is_of_parent = True
            pool._phase = "closing"
            # in place of the method, which need not ask each time
            pool.__dict__["_take"] = pool._refuse_child

    async def drain(self) -> None:
        """Lend nothing more, wait until all that is lent has come back, and close everything.

        From its first step on, waiting and later calls raise `PoolClosed`. RuntimeError if the pool was never opened.

        Cancellation: ends the wait; the pool lends nothing more all the same.
        """
        if self._phase in {"new", "opening"}:
            raise RuntimeError(_NOT_OPEN)
        self._begin_closing()
        await self._until_empty()

    # what a pool says of itself

    @abstractmethod
    def _slots(self) -> int:
        """The number of slots in use."""

    @abstractmethod
    async def _begin(self) -> None:
        """Prepare the pool before any task may borrow. Cancellation: passed on."""

    @abstractmethod
    def _start_jobs(self) -> None:
        """Start the jobs that run as long as the pool is open."""

    @abstractmethod
    def _begin_closing(self) -> None:
        """Stop creating, fail the waiting tasks, close idle resources; the state is "closing" then."""

    @abstractmethod
    def _close_lent(self) -> None:
        """Close the lent resources under their borrowers' hands."""

    # what it gets for that

    def _check_open(self) -> None:
        if self._phase in {"new", "opening"}:
            raise RuntimeError(_NOT_OPEN)
        if self._is_of_parent:
            raise PoolClosed(
                "the pool was opened before a fork, and its resources are the parent's: open one here"
            )
        if self._phase != "open":
            raise PoolClosed("the pool is closed")

    def _refuse_child(self, _want: object) -> None:
        self._check_open()

    def _start(self, name: str, function: Callable[..., Any], *args: Any) -> Job:
        assert self._upkeep is not None
        return self._upkeep.start(name, function, *args)

    def _slot_freed(self) -> None:
        if not self._slots():
            while (waiter := self._emptied.head()) is not None:
                self._emptied.grant(waiter, None)

    async def _until_empty(self) -> None:
        if self._slots():
            await self._emptied.wait(self._emptied.join(None))
        else:
            await checkpoint()

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
                    self._phase = "open"
                    self._start_jobs()
                    yield self
                finally:
                    self._begin_closing()
                    try:
                        with anyio.move_on_after(self._close_timeout, shield=True):
                            await self._until_empty()
                    finally:
                        self._close_lent()
        finally:
            _opened.discard(self)
            self._reporter.settle()


def _nothing(_: Waiter[None, None]) -> None: ...


_opened: WeakSet[PoolLifecycle] = WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PoolLifecycle.after_fork)
