"""The portal: one event loop for the synchronous code of a process, in a thread of its own.

It is started by the first call that needs it. It ends when the last store is closed, else with the process. A forked
child has none, and its first call starts one. All that the portal does with stores is done on its loop, so that needs
no locks; a lock only guards who uses which portal.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Awaitable, Callable, Generator, Hashable
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from threading import RLock, Thread, get_ident
from typing import Any, Generic, TypeVar, cast

import anyio
from anyio import CancelScope, RunFinishedError
from anyio.from_thread import BlockingPortal, run_sync
from anyio.lowlevel import EventLoopToken, current_token

from tenure.errors import StoreClosed
from tenure.store import Store
from tenure.upkeep import Upkeep, unwrapped_task_group

from ._link import Link

T = TypeVar("T")

_ENDED = "the store is closed: the process is ending"
_FROM_THE_LOOP = (
    "this would wait for itself: it was called in the thread that runs tenure.blocking (from a codec?)"
)

_OF_PARENT = (
    "this was entered before the process was forked, and belongs to the parent, which still has it: "
    "see docs/how-to/use-from-synchronous-code.md"
)


class Handle:
    """What a user opens and closes; as long as one is open, so is the portal that it has used."""

    closed = False


class Portal:
    """A thread with an event loop, and the stores that are open there.

    Thread safety: `call`, `call_plain`, `start` and `end` are for other threads, the rest is for the loop's.
    """

    def __init__(self) -> None:
        self.users: set[Handle] = set()
        """The handles that have used it and are open."""
        self.calls = 0
        """How many threads are using it at this moment."""
        self.entered: dict[Hashable, object] = {}
        """The blocks that hold something exclusively, or are about to."""
        self._ending: anyio.Event
        self._leaves: set[anyio.Event] = set()  # one for each body that runs
        self._links: dict[Hashable, Link] = {}
        self._upkeep: Upkeep
        self._calls: BlockingPortal
        self._token: EventLoopToken
        self._ready: Future[None] = Future()
        self._thread = Thread(target=self._run, name="tenure.blocking", daemon=True)
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            if not self._ready.cancel():
                self.end()
            raise

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call an async function on the loop, and wait for what it returns. Raises what it raises, `StoreClosed`.

        If this thread is interrupted meanwhile, the call is cancelled and has ended when the interruption goes on.
        """
        self.check_thread()
        call = Call(function)
        future: Future[None] | None = None
        try:
            future = self.start(call.run)
            future.result()
        except (CancelledError, StoreClosed):
            raise StoreClosed(_ENDED) from None
        except BaseException:
            with suppress(StoreClosed):
                self.call_plain(call.withdraw)
            if future is not None:
                with suppress(CancelledError):
                    future.result()
            raise
        return call.result()

    def start(self, function: Callable[[], Awaitable[None]]) -> Future[None]:
        """Call an async function on the loop, without waiting for it."""
        try:
            return self._calls.start_task_soon(function)
        except RuntimeError:
            raise StoreClosed(_ENDED) from None

    def call_plain(self, function: Callable[[], T]) -> T:
        """Call a plain function on the loop. Raises what it raises, `StoreClosed`."""
        self.check_thread()
        try:
            return run_sync(function, token=self._token)
        except RunFinishedError:
            raise StoreClosed(_ENDED) from None

    def check_thread(self) -> None:
        """Raise `RuntimeError` in the thread of the loop."""
        if get_ident() == self._thread.ident:
            raise RuntimeError(_FROM_THE_LOOP)

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Close the stores that are open, and end the thread."""
        with suppress(StoreClosed):
            self.call_plain(self._end)
        self._thread.join()

    # on the loop

    async def opened(self, key: Hashable, handle: Handle, make: Callable[[], Store]) -> Store:
        """The store that the handles of this key share, opened if it is not open yet. Raises as opening does."""
        if handle.closed:
            raise StoreClosed("the store is closed")
        link = self._links.get(key)
        if link is None or link.ended:
            link = self._links[key] = Link(make)
            self._upkeep.start("store", link.run)
        link.handles.add(handle)
        return await link.opened()

    async def leave(self, key: Hashable, handle: Handle) -> None:
        """Close the store of this key, unless another handle uses it. Raises what ends its block."""
        link = self._links.get(key)
        if link is not None:
            link.handles.discard(handle)
            if not link.handles:
                if self._links.get(key) is link:
                    del self._links[key]
                await link.close()

    async def wait_for(self, leave: anyio.Event) -> None:
        """Wait until a body is left, or the portal ends, which does not wait for bodies."""
        self._leaves.add(leave)
        if not self._ending.is_set():
            await leave.wait()
        self._leaves.discard(leave)

    def _end(self) -> None:
        self._ending.set()
        for leave in self._leaves:
            leave.set()

    def _run(self) -> None:
        try:
            anyio.run(self._main)
        except BaseException as problem:
            if self._ready.done():
                raise
            self._ready.set_exception(problem)

    async def _main(self) -> None:
        self._token = current_token()
        self._ending = anyio.Event()
        async with BlockingPortal() as self._calls, unwrapped_task_group() as group:
            self._upkeep = Upkeep(group)
            if self._ready.set_running_or_notify_cancel():
                self._ready.set_result(None)
                await self._ending.wait()
                for link in list(self._links.values()):
                    with suppress(Exception):
                        await link.close()
            self._upkeep.cancel()
            await self._calls.stop(cancel_remaining=True)


class Call(Generic[T]):
    """A call on the loop for a thread that waits for it.

    What the function raises is handed over to the thread: a `SystemExit` would end the loop.
    """

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._scope: CancelScope | None = None
        self._withdrawn = False
        self._value: T | None = None
        self._problem: BaseException | None = None

    async def run(self) -> None:
        """On the loop: call the function."""
        if self._withdrawn:
            return
        with CancelScope() as self._scope:
            try:
                self._value = await self._function()
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as problem:  # noqa: BLE001 `result` raises it
                self._problem = problem

    def withdraw(self) -> None:
        """On the loop: cancel the call."""
        self._withdrawn = True
        if self._scope is not None:
            self._scope.cancel("the thread that waits was interrupted")

    def result(self) -> T:
        """What the function returned. Raises what it raised."""
        if (problem := self._problem) is not None:
            try:
                raise problem
            finally:
                del self._problem, problem  # its traceback knows this frame
        return cast("T", self._value)


class _Process:
    """The portal of this process, and the lock that is held to look at it."""

    def __init__(self) -> None:
        # a handler of a signal that calls us may have interrupted the one that holds it
        self.lock = RLock()
        self.portal: Portal | None = None
        self.over = False


_process = _Process()
_of_parents: list[Any] = []
"""Portals of parents: a child must not finalize what is in them, such as connections."""


@contextmanager
def portal_for(handle: Handle) -> Generator[Portal]:
    """The portal of this process, started if there is none, for a call of this handle. Raises `StoreClosed`."""
    with _process.lock:
        if handle.closed or _process.over:
            raise StoreClosed("the store is closed" if handle.closed else _ENDED)
        portal = _process.portal
        if portal is None or not portal.alive:
            portal = _process.portal = Portal()
        portal.users.add(handle)
        portal.calls += 1
    try:
        yield portal
    finally:
        _leave(portal)


@contextmanager
def closing(handle: Handle) -> Generator[Portal | None]:
    """Close the handle. The portal of this process if the handle has used it: it ends after its last handle."""
    with _process.lock:
        handle.closed = True
        portal = _process.portal
        if portal is None or handle not in portal.users:
            portal = None
        else:
            portal.users.discard(handle)
            portal.calls += 1
    try:
        yield portal
    finally:
        if portal is not None:
            _leave(portal)


def is_of_parent(portal: Portal) -> bool:
    """Whether this process is a child that was forked while its parent used this portal."""
    return portal in _of_parents


@contextmanager
def still_there(portal: Portal) -> Generator[bool]:
    """Whether the portal has not ended; it does not meanwhile. Raises `RuntimeError` for one of the parent."""
    with _process.lock:
        if portal in _of_parents:
            raise RuntimeError(_OF_PARENT)
        there = portal is _process.portal
        portal.calls += there
    try:
        yield there
    finally:
        if there:
            _leave(portal)


def _leave(portal: Portal) -> None:
    with _process.lock:
        portal.calls -= 1
        idle = _process.portal is portal and not portal.calls and not portal.users
        if idle:
            _process.portal = None
    if idle:
        portal.end()


def _end() -> None:
    with _process.lock:
        _process.over = True
        portal, _process.portal = _process.portal, None
    if portal is not None:
        portal.end()


def _acquire() -> None:
    _process.lock.acquire()  # a child gets another one: it is looked up each time


def _release() -> None:
    _process.lock.release()


def _forget() -> None:
    """In a child: begin anew. The threads of the parent are not here, and may have held the lock."""
    if _process.portal is not None:
        _of_parents.append(_process.portal)
    _process.__init__()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    # with the lock, so that the child does not inherit a portal that is half started
    os.register_at_fork(
        before=_acquire,
        after_in_parent=_release,
        after_in_child=_forget,
    )
