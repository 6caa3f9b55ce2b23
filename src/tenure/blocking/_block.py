"""The block of synchronous code: an asynchronous block, entered and left by a task of the portal.

Nothing can cancel the body in the caller's thread. So the task holds on until the body has ended, even if its hold is
lost meanwhile: `check` raises that in the body, and so does leaving the block.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager
from functools import partial
from threading import Thread, current_thread
from types import TracebackType
from typing import Any

import anyio
import anyio.lowlevel

from tenure.arguments import NotAwaited, SyncBlock
from tenure.errors import LeaseLost
from tenure.handlers import is_from_signal
from tenure.shared import Lease, Task
from tenure.store import Store as AsyncStore
from tenure.waiting import Parked, new_scope, park, wake

from ._portal import Caller, Portal, ask
from ._request import Request, latch, pass_through
from ._store import Store

Make = Callable[[AsyncStore], AbstractAsyncContextManager[Any, Any]]
Wrap = Callable[[Any, Portal], Any]


class HoldRequest(Request):
    def __init__(
        self,
        portal: Portal,
        store: Store,
        make: Make,
        exclusive: tuple[Hashable, ...],
        thread: Thread,
        timeout: float | None,
    ) -> None:
        super().__init__()
        self.answered = latch()
        self.finished = False
        """True once the thread has left its body; else the block ends as by an interruption."""
        self.swallows: bool | None = None
        self._portal = portal
        self._store = store
        self._make = make
        self._timeout = timeout
        self._exclusive = exclusive
        self._entry = (exclusive, thread)
        self._leave: Parked | None = None
        self._error: BaseException | None = None

    async def _do(self) -> None:
        if self._exclusive and self._portal.entered.setdefault(self._entry, self) is not self:
            raise RuntimeError(
                f"{self._exclusive[-1]}: this thread holds it already and would wait for itself"
            )

        async def enter(store: AsyncStore) -> tuple[AbstractAsyncContextManager[Any, Any], Any]:
            block = self._make(store)
            return block, await block.__aenter__()

        block, held = await self._store._call_within(self._portal, enter, self._timeout)
        if not self._scope.cancel_called:
            self.state, self.value = "held", held
            self._leave = park()
            self.answered.release()
            # a loss cancels this, but ends nothing in the thread
            with new_scope() as shield:
                shield.shield = True
                await self._leave
        if self.finished:
            error = self._error
            trace = None if error is None else error.__traceback__
            self.swallows = await block.__aexit__(None if error is None else type(error), error, trace)
            return
        # as the body of an asynchronous block is cancelled from outside
        self._scope.cancel("the body was interrupted")
        try:
            await anyio.lowlevel.checkpoint()
        except BaseException as cancellation:
            await block.__aexit__(type(cancellation), cancellation, cancellation.__traceback__)
            raise

    def leave(self, error: BaseException | None, finished: bool) -> None:
        if self._leave is not None and self.state == "held":
            self.state, self._error, self.finished = "leaving", error, finished
            self._disclaim()
            wake(self._leave)

    def withdraw(self) -> None:
        self.leave(None, finished=False)
        self._disclaim()
        super().withdraw()

    def _open(self) -> None:
        self._disclaim()
        super()._open()
        if self._leave is None:
            self.answered.release()

    def _disclaim(self) -> None:
        if self._portal.entered.get(self._entry) is self:
            del self._portal.entered[self._entry]


class Block(SyncBlock, NotAwaited, Caller):
    """A context manager whose body runs for as long as something is held. For one use.

    `make` makes the asynchronous block over the open store, `wrap` converts its value for the body (None: as it is). A
    thread must not enter an `exclusive` block twice.
    """

    def __init__(
        self,
        store: Store,
        make: Make,
        wrap: Wrap | None,
        exclusive: tuple[Hashable, ...],
        timeout: float | None,
    ) -> None:
        self._store = store
        self._timeout = timeout
        self._make = make
        self._wrap = wrap
        self._exclusive = exclusive
        self._entered = False
        self._left = False

    def __enter__(self) -> Any:
        """Obtain the hold. Raises what the asynchronous block raises.

        If this thread is interrupted meanwhile, nothing is held and no place is kept.
        """
        if self.request is not None:
            raise RuntimeError("this block was entered before; make a new one")
        thread = current_thread()
        try:
            while True:
                held = ask(
                    self._store,
                    self,
                    lambda portal: HoldRequest(
                        portal, self._store, self._make, self._exclusive, thread, self._timeout
                    ),
                )
                wrapped = held if self._wrap is None else self._wrap(held, self._portal)
                # another thread may have kept this one from running for longer than the lease lasts
                if not (isinstance(held, (Lease, Task)) and held._is_over()):
                    break
                self.withdraw()
        except BaseException:
            self.withdraw()
            raise
        # no handler runs between here and the body: Python calls them after calls, and where functions and loops begin
        self._entered = True
        return wrapped

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Give the hold back. Raises `LeaseLost` if it was lost and the body did not raise an error of its own."""
        hold = self.request
        if not isinstance(hold, HoldRequest) or not self._entered or self._left:
            raise RuntimeError(f"this block was {'left before' if self._left else 'not entered'}")
        try:
            if error is not None and self._portal.is_of_parent:
                return None
            self._portal.check()
            # only this thread can know about a signal
            interrupted = not (error is None or isinstance(error, Exception)) and is_from_signal(error)
            self._left = True
            self._portal.send(partial(hold.leave, error, not interrupted))
            pass_through(hold.over)
        except BaseException:
            self.withdraw()
            raise
        if not (hold.finished or interrupted):
            # it was given back before the body had ended
            if error is None and hold.value is not None:
                raise LeaseLost(getattr(hold.value, "key", None) or repr(hold.value), "closed")
        elif (problem := hold.problem) is not None and problem is not error:
            try:
                raise problem
            finally:
                del hold.problem, problem  # its traceback knows this frame
        return hold.swallows
