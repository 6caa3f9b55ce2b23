"""The portal: one event loop for the synchronous code of a process, in a thread of its own.

The first call that needs it starts it. It ends when the last store is closed, else with the process; a forked child
starts its own. The portal uses stores on its loop alone, without locks. Threads change shared state in one C call each.
"""

from __future__ import annotations

import atexit
import os
import threading
from _thread import LockType, allocate_lock, start_new_thread
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from threading import Thread, get_ident
from typing import Any, TypeVar

import anyio

from tenure.errors import LeaseLost, StoreClosed
from tenure.pages import doc_page
from tenure.store import Store
from tenure.upkeep import Upkeep, unwrapped_task_group
from tenure.waiting import Parked, loop_caller, park, wake

from ._link import Link
from ._request import CallerRef, PlainRequest, PortalEnded, Request, latch, pass_through

T = TypeVar("T")

_SWEEP = 0.25
"""The loop looks for freed callers with each request, and each time so many seconds have passed."""

_IDLE = 64
"""The number of idle tasks that are kept: to start a task costs more than all the rest of a short request."""

_ENDED = "the store is closed: the process is ending"
_FROM_THE_LOOP = (
    "this would wait for itself: it was called in the thread that runs tenure.blocking (from a codec?)"
)

_OF_PARENT = (
    "this was entered before the process was forked, and belongs to the parent, which still has it: see "
)


class Handle:
    """An object that a user opens and closes; as long as a handle is open, so is the portal that it has used."""

    closed = False


class Idle:
    __slots__ = ("parked", "request")
    request: Request

    def __init__(self) -> None:
        self.parked: Parked = park()


class Portal:
    """A thread with an event loop, and the stores that are open there.

    Thread safety: the methods before "on the loop" are for other threads, the rest is for the loop's.
    """

    def __init__(self) -> None:
        self.ended: bool = False
        """True once the portal takes no more requests."""
        self._drained = False
        self._returned = False
        """True once only the loop is left to be closed."""
        self.gone: deque[CallerRef] = deque()
        """References to callers that were freed before their requests were over."""
        self.entered: dict[Hashable, object] = {}
        """The requests that hold something exclusively, or are about to."""
        self._pid = os.getpid()
        self._inbox: deque[Callable[[], object]] = deque()
        self._refusal: BaseException | None = None
        self._started = allocate_lock()
        self._ready = latch()
        self._over = latch()
        self._thread: Thread | None = None
        self._ident: int | None = None
        # of the loop
        self._wake: Callable[[], None] | None = None
        self._requests: set[Request] = set()
        self._sweeping = False
        self._links: dict[Hashable, Link] = {}
        self._open = 0
        self._ending: anyio.Event | None = None
        self._idle: list[Idle] = []
        self._upkeep: Upkeep
        self._spawn: Callable[..., object]
        self._context: Context

    def start(self) -> None:
        if self._thread is None and not self.ended:
            # `Thread.start` waits in Python code: a thread in which no handler runs calls it
            start_new_thread(self._start, ())

    def wait_until_ready(self) -> None:
        self.start()
        pass_through(self._ready)

    def send(self, function: Callable[[], object]) -> bool:
        """Have the loop call a plain function. False in the thread of the loop and in a child, which must not wait."""
        if self.is_of_parent:
            return False
        self._inbox.append(function)
        if self._wake is not None:
            try:
                self._wake()
            except RuntimeError:
                if not self.ended:
                    raise
        if self._drained:  # the loop does not look again
            self._take_in()
        return get_ident() != self._ident

    def call(self, function: Callable[[], Awaitable[T]], check: Callable[[], object] = bool) -> T:
        """Call an async function on the loop, and wait for what it returns. Raises what it raises, `PortalEnded`.

        `check` raises `LeaseLost` once the hold that the function uses is lost. Then the call raises it, too. If this
        thread is interrupted meanwhile, the call is cancelled and has ended when the interruption goes on.
        """
        return Caller().ask(self, Request(function, check))

    def call_plain(self, function: Callable[[], T]) -> T:
        return Caller().ask(self, PlainRequest(function))

    def check(self) -> None:
        if get_ident() == self._ident:
            raise RuntimeError(_FROM_THE_LOOP)
        if self.is_of_parent:
            raise RuntimeError(_OF_PARENT + doc_page("how-to/use-from-synchronous-code"))

    @property
    def is_of_parent(self) -> bool:
        return self._pid != os.getpid()

    def refusal(self) -> BaseException:
        return self._refusal or PortalEnded()

    def end(self) -> None:
        if self._started.acquire(blocking=False):  # it was not started, and now never will be
            self._finish(None)
            return
        if not self.ended:
            self.send(self._end)
        self.join()

    def join(self) -> None:
        pass_through(self._over)
        if self._thread is not None:
            self._thread.join()

    # on the loop

    def begin(self, request: Request) -> None:
        if self.ended:
            request.refuse(self.refusal())
            return
        request.start(self._hand_over, self._requests.discard)
        if request.state != "over":
            self._requests.add(request)
        if self._requests and not self._sweeping:
            self._sweeping = True
            self._upkeep.start("sweep", self._sweep)

    def _hand_over(self, request: Request) -> None:
        while self._idle:
            idle = self._idle.pop()
            idle.request = request
            if wake(idle.parked):  # else the loop ends, and has cancelled this task
                return
        self._spawn(self._work, request)

    async def _work(self, request: Request) -> None:
        while True:
            await request.run()
            del request  # an idle task keeps nothing of it
            if len(self._idle) >= _IDLE:
                break
            idle = Idle()
            self._idle.append(idle)
            await idle.parked
            request = idle.request
            del idle

    def stop_waiting(self) -> None:
        """End the waits of all threads, but no bodies, nor calls that use their holds until the portal ends."""
        for request in list(self._requests):
            if request.check is None or self.ended:
                request.refuse(StoreClosed(_ENDED))

    async def opened(self, key: Hashable, handle: Handle, make: Callable[[], Store]) -> Store:
        if handle.closed:
            raise StoreClosed("the store is closed")
        if self.ended:  # since the request was sent
            raise PortalEnded
        link = self._links.get(key)
        if link is None or link.ended:
            link = self._links[key] = Link(make)
            self._open += 1
            # not in the context of the call that happens to open it: the store's jobs would keep that
            self._context.run(self._upkeep.start, "store", self._keep, link)
        link.handles.add(handle)
        return await link.opened()

    async def leave(self, key: Hashable, handle: Handle) -> None:
        """Close the store of this key, unless another handle uses it. Raises what ends its block.

        Cancellation: it is closed all the same.
        """
        link = self._links.get(key)
        if link is not None:
            link.handles.discard(handle)
            if not link.handles:
                del self._links[key]
                await link.close()
        self._end_if_idle()

    async def _keep(self, link: Link) -> None:
        try:
            await link.run()
        finally:
            self._open -= 1
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._links and not self._open:
            self._end()

    def _end(self) -> None:
        self.ended = True
        if self._ending is not None:
            self._ending.set()

    def _take_in(self) -> None:
        # once the loop has ended, several threads may be here
        with suppress(IndexError):
            while True:
                self.gone.popleft().request.withdraw()
        while True:
            try:
                function = self._inbox.popleft()
            except IndexError:
                break
            function()

    async def _sweep(self) -> None:
        # it outlasts the request for which it was started: a task for each request would double the cost of a short one
        while True:
            await anyio.sleep(_SWEEP)
            self._take_in()
            for request in list(self._requests):
                if request.check is not None:
                    try:
                        request.check()
                    except LeaseLost as loss:  # the engine may be away for long
                        request.refuse(loss)
            request = None  # this task keeps no request
            if not self._requests:
                break
        self._sweeping = False

    def _start(self) -> None:
        if self._started.acquire(blocking=False):
            try:
                Thread(target=self._run, name="tenure.blocking", daemon=True).start()
            except BaseException as problem:  # noqa: BLE001 the threads that wait raise it
                self._finish(problem)

    def _run(self) -> None:
        self._thread, self._ident = threading.current_thread(), get_ident()
        problem = None
        try:
            anyio.run(self._main, **_loop())
        except BaseException as fault:
            problem = fault
            # asyncio ends the threads that resolve names in another thread, and Python starts none at its end, by when
            # they have ended
            if self._wake is not None and not (self._returned and _process.over):
                raise
        finally:
            self._finish(problem)

    def _finish(self, problem: BaseException | None) -> None:
        self.ended = True
        if self._wake is None:
            self._refusal = problem
            self._ready.release()
        for request in list(self._requests):  # their tasks were cancelled before the first step
            request.finish(StoreClosed(_ENDED))
        # before the inbox is emptied for the last time: a thread that appends behind that empties it itself
        self._drained = True
        self._take_in()
        self._ident = None  # another thread may get the number
        self._over.release()

    async def _main(self) -> None:
        ending = self._ending = anyio.Event()
        async with unwrapped_task_group() as group:
            self._upkeep = Upkeep(group)
            self._spawn = group.start_soon
            self._context = copy_context()
            self._wake = partial(loop_caller(), partial(self._context.run, self._take_in))
            self._ready.release()
            self._take_in()
            await ending.wait()
            self.stop_waiting()
            for request in list(self._requests):  # it does not wait for bodies
                request.withdraw()
            for link in list(self._links.values()):
                with suppress(Exception):
                    await link.close()
            self._upkeep.cancel()
            group.cancel_scope.cancel("the portal has ended")
        self._returned = True


def _loop() -> dict[str, Any]:
    name = os.environ.get("TENURE_BLOCKING_LOOP") or ("uvloop" if find_spec("uvloop") else "asyncio")
    if name not in ("asyncio", "uvloop", "trio"):
        raise ValueError(f"TENURE_BLOCKING_LOOP must be asyncio, uvloop or trio, not {name!r}")
    if name == "uvloop":
        return {"backend_options": {"use_uvloop": True}}
    return {"backend": name}


class Caller:
    """The thread's side of a request. Only the thread refers to it: when it is freed, the request is withdrawn."""

    _portal: Portal
    request: Request | None = None

    def ask(self, portal: Portal, request: Request) -> Any:
        """Send a request, wait for its answer, and return that. Raises its problem, `PortalEnded`, `RuntimeError`.

        If this thread is interrupted meanwhile, the request is withdrawn, and over when the interruption goes on.
        """
        portal.check()
        portal.start()
        self._portal, self.request = portal, request
        request.watch = CallerRef(self, portal.gone.append)
        request.watch.request = request
        try:
            if not portal.send(partial(portal.begin, request)):
                raise portal.refusal()
            if request.check is None and _is_over():  # `stop_waiting` may have come before the request
                portal.send(partial(request.refuse, StoreClosed(_ENDED)))
            pass_through(request.answered)
            if (problem := request.problem) is not None:
                try:
                    raise problem
                finally:
                    del request.problem, problem  # its traceback knows this frame
        except BaseException:
            self.withdraw()
            raise
        return request.value

    def withdraw(self) -> None:
        request = self.request
        if request is not None and request.over.locked() and self._portal.send(request.withdraw):
            pass_through(request.over)


class _Process:
    def __init__(self) -> None:
        self.portal: Portal = Portal()
        self.portal.end()  # it only has a successor
        self.main_is_over = False
        self.over = False


_process = _Process()
_of_parents: list[Any] = []
"""Portals of parents: a child must not finalize their contents, such as connections."""


def portal_for(handle: Handle) -> Portal:
    """The portal of this process, started if there is none, for a call of this handle. Raises `StoreClosed`."""
    if handle.closed:
        raise StoreClosed("the store is closed")
    if _is_over():
        raise StoreClosed(_ENDED)
    portal = _process.portal
    while portal.ended:
        # No lock: Python 3.14 may raise behind the entry of its `with`, and it would stay locked. Each portal has one
        # successor, which the first of several threads makes: `setdefault` is one C call.
        portal = _process.portal = vars(portal).setdefault("successor", Portal())
    if _is_over():  # since it was asked above
        raise StoreClosed(_ENDED)
    return portal


def _is_over() -> bool:
    # once the main thread is over, Python waits for the others; functions of `atexit` may still call
    return _process.over or (_process.main_is_over and get_ident() != threading.main_thread().ident)


def ask(handle: Handle, caller: Caller, make: Callable[[Portal], Request]) -> Any:
    while True:
        portal = portal_for(handle)
        try:
            return caller.ask(portal, make(portal))
        except PortalEnded:
            pass


def close(handle: Handle, key: Hashable) -> None:
    """Close a handle, and what it was the last to use. Raises what ends the block of the store."""
    handle.closed = True
    portal = _process.portal
    with suppress(PortalEnded, StoreClosed):  # then the portal closes the store
        portal.call(partial(portal.leave, key, handle))
    if portal.ended:
        portal.join()


def _on_end_of_main_thread() -> None:
    _process.main_is_over = True
    _process.portal.send(_process.portal.stop_waiting)


def _end() -> None:
    _process.over = True
    _process.portal.end()


_forking: dict[int, LockType] = {}
"""The latches that keep the loop still, by the threads that fork."""
_STILL = 5.0
"""Seconds for which a fork waits until the loop stands still: its codec may wait for a lock that this thread has."""


def _before_fork() -> None:
    """Have the loop stand still: a module that its thread is importing would stay half imported in the child."""
    portal, thread = _process.portal, get_ident()
    portal.wait_until_ready()
    still, forked = latch(), _forking.setdefault(thread, latch())
    if portal.send(partial(_stand_still, thread, still, forked)):
        still.acquire(timeout=_STILL)


def _stand_still(thread: int, still: LockType, forked: LockType) -> None:
    still.release()
    # a portal that has ended has the thread itself call this
    if get_ident() != thread:
        pass_through(forked)


def _after_fork() -> None:
    if (forked := _forking.pop(get_ident(), None)) is not None:
        forked.release()


def _forget() -> None:
    _of_parents.append(_process.portal)
    _forking.clear()
    _process.__init__()


atexit.register(_end)
# Python calls this before it joins threads. It is private: without it, a thread that waits keeps the process, unless it
# is a daemon. The function that is registered last is called first, and the function of `concurrent.futures` joins its
# workers.
if register := getattr(threading, "_register_atexit", None):
    import_module("concurrent.futures.thread")
    register(_on_end_of_main_thread)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forget)
