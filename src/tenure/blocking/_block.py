"""The block of synchronous code: an asynchronous block, entered and left by a task of the portal.

The body runs in the caller's thread, where nothing can cancel it. So the task holds on until the body has ended, even
if what it holds is lost meanwhile. `check` raises that in the body, and leaving the block does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, suppress
from threading import Thread, current_thread
from types import TracebackType
from typing import Any

import anyio
import anyio.lowlevel
from anyio import CancelScope

from tenure.errors import LeaseLost, StoreClosed
from tenure.handlers import is_from_signal
from tenure.store import Store as AsyncStore

from ._portal import Portal, is_of_parent, portal_for, still_there
from ._store import Store

Make = Callable[[AsyncStore], AbstractAsyncContextManager[Any, Any]]
Wrap = Callable[[Any, Portal], Any]


class Block:
    """A context manager whose body runs for as long as something is held. For one use.

    `make` makes the asynchronous block over the open store, `wrap` makes what the body gets of what that hands over.
    `exclusive` says what a thread must not enter twice.
    """

    def __init__(self, store: Store, make: Make, wrap: Wrap, exclusive: tuple[Hashable, ...] = ()) -> None:
        self._store = store
        self._make = make
        self._wrap = wrap
        self._exclusive = exclusive
        self._thread: Thread | None = None
        self._portal: Portal
        self._entry: tuple[Hashable, Thread] | None = None
        self._entered: Future[Any] = Future()
        self._held: Any = None
        self._left: Future[None] | None = None
        self._swallows: bool | None = None
        self._problem: BaseException | None = None
        # of the task
        self._withdrawn = False
        self._entering: CancelScope | None = None
        self._leave: anyio.Event | None = None
        self._finished = False  # the thread has left its body; else this ends by an interruption
        self._error: BaseException | None = None

    def __enter__(self) -> Any:
        """Obtain it. Raises what the asynchronous block raises.

        If this thread is interrupted meanwhile, nothing is held and no place is kept.
        """
        if self._thread is not None:
            raise RuntimeError("this block was entered before; make a new one")
        self._thread = current_thread()
        with portal_for(self._store) as portal:
            portal.check_thread()
            self._portal = portal
            self._claim(portal)
            try:
                self._left = portal.start(self._run)
                held = self._entered.result()
            except BaseException:
                self._withdraw()
                self._disclaim()
                raise
            if self._problem is not None:
                self._disclaim()
                raise self._problem
            self._held = held
            return self._wrap(held, portal)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Give it back. Raises `LeaseLost` if it was lost and the body did not raise something of its own."""
        if self._left is None:
            raise RuntimeError("this block was not entered")
        if error is not None and is_of_parent(self._portal):
            return None
        self._error = error
        # only this thread can know about a signal
        interrupted = not (error is None or isinstance(error, Exception)) and is_from_signal(error)
        self._disclaim()
        try:
            with still_there(self._portal) as there:
                if there:
                    self._finished = not interrupted
                    self._portal.call_plain(self._set_left)
                self._left.result()
        except (StoreClosed, CancelledError):
            pass  # the portal has ended meanwhile
        except BaseException:
            self._withdraw()
            raise
        if not (self._finished or interrupted):
            # it was given back before the body had ended
            if error is None and self._held is not None:
                raise LeaseLost(getattr(self._held, "key", None) or repr(self._held), "closed")
        elif self._problem is not None and self._problem is not error:
            raise self._problem
        return self._swallows

    def _withdraw(self) -> None:
        """Give it back, or up, for a thread that was interrupted."""
        with suppress(StoreClosed, CancelledError), still_there(self._portal) as there:
            if there:
                self._portal.call_plain(self._set_withdrawn)
            if self._left is not None:
                self._left.result()

    # what a thread must not enter twice: it would wait for itself

    def _claim(self, portal: Portal) -> None:
        if not self._exclusive:
            return
        self._entry = entry = (self._exclusive, current_thread())
        if portal.entered.setdefault(entry, self) is not self:
            self._entry = None
            raise RuntimeError(
                f"{self._exclusive[-1]}: this thread holds it already and would wait for itself"
            )

    def _disclaim(self) -> None:
        if self._entry is not None:
            self._portal.entered.pop(self._entry, None)

    # on the loop

    async def _run(self) -> None:
        if self._withdrawn:
            return
        try:
            with CancelScope() as self._entering:
                await self._enter_and_leave()
        except anyio.get_cancelled_exc_class():
            self._problem = StoreClosed("the store is closed")
            raise
        except BaseException as problem:  # noqa: BLE001 the thread raises it
            self._problem = problem
        finally:
            if not self._entered.done():
                self._entered.set_result(None)

    async def _enter_and_leave(self) -> None:
        block = self._make(await self._store.opened(self._portal))
        held = await block.__aenter__()
        self._leave = anyio.Event()
        if not self._withdrawn:
            self._entered.set_result(held)
            # a loss cancels this, but ends nothing in the thread
            with CancelScope(shield=True):
                await self._portal.wait_for(self._leave)
        if self._finished:
            error = self._error
            trace = None if error is None else error.__traceback__
            self._swallows = await block.__aexit__(None if error is None else type(error), error, trace)
            return
        # as the body of an asynchronous block is cancelled from outside
        assert self._entering is not None
        self._entering.cancel("the body was interrupted")
        try:
            await anyio.lowlevel.checkpoint()
        except BaseException as cancellation:
            await block.__aexit__(type(cancellation), cancellation, cancellation.__traceback__)
            raise

    def _set_left(self) -> None:
        if self._leave is not None:
            self._leave.set()

    def _set_withdrawn(self) -> None:
        self._withdrawn = True
        if self._leave is not None:
            self._leave.set()
        elif self._entering is not None:
            self._entering.cancel("the thread that waits was interrupted")
