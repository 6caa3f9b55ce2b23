"""Requests of threads to the loop, which an exception may interrupt at any moment.

The handler of a signal may raise between any two instructions of the main thread. Three rules follow:

- A thread waits in one C call, `pass_through(latch)`, and sends by `deque.append`. `Future`, `Condition`, `Event` and
  `Thread.start` are Python code: interrupted in the middle, they never release a lock that the loop needs.
- The loop decides who holds what. It carries out each request to the end, and it opens each latch once.
- An interrupted thread withdraws its request before the exception goes on. A second exception may interrupt the
  withdrawal, and an exception at the first instruction of `__exit__` leaves no time for it. Then Python frees the
  `Caller` of the request, at the latest with the exception, and the loop withdraws the request. No handler runs in the
  callback of the weak reference, which is a C function.

The loop takes a request through these states:

| state   | start                    | done                    | leave   | withdraw, `Caller` freed, end of the loop |
|---------|--------------------------|-------------------------|---------|-------------------------------------------|
| new     | running: a task gets it  |                         |         | over                                      |
| running |                          | held; for a call: over  |         | running, cancelled; then over             |
| held    |                          |                         | leaving | leaving, as from an interrupted body      |
| leaving |                          | over: it was given back |         | leaving                                   |
| over    | over                     |                         | over    | over                                      |

The latch `answered` opens with "held" or "over", the latch `over` with "over".
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from operator import call
from typing import Any
from weakref import ref

import anyio
from anyio import CancelScope

from tenure.errors import StoreClosed
from tenure.waiting import new_scope, within


class PortalEnded(Exception):
    """The portal has ended without beginning the request."""


def latch() -> LockType:
    """A locked lock. Once it is released, `pass_through` goes on, in any number of threads."""
    lock = allocate_lock()
    lock.acquire()
    return lock


def pass_through(latch: LockType) -> None:
    """Wait until a latch is open, and leave it open.

    Both calls are made by C code. Python 3.14 calls the handlers of signals behind the entry of a `with` too, and an
    exception there would leave the latch locked for ever.
    """
    deque(map(call, (latch.acquire, latch.release)), maxlen=0)


class CallerRef(ref[Any]):
    __slots__ = ("request",)
    request: Request


class Request:
    def __init__(self, function: Callable[[], Awaitable[Any]] | None = None, check: Any = None) -> None:
        self.state: str = "new"
        self.over: LockType = latch()
        self.answered: LockType = self.over
        self.watch: CallerRef | None = None
        self.value: Any = None
        self.problem: BaseException | None = None
        self.check: Callable[[], object] | None = check
        """Raises `LeaseLost` once the hold of the request is lost; None: it has none, and ends with the main thread."""
        self._function = function
        self._context = copy_context()
        self._scope: CancelScope
        self._on_over: Callable[[Request], object] | None = None

    def start(self, hand_over: Callable[[Request], object], on_over: Callable[[Request], object], /) -> None:
        if self.state == "new":
            self.state = "running"
            self._scope = new_scope()
            self._on_over = on_over
            hand_over(self)

    def run(self) -> Awaitable[None]:
        """Call the function. What it raises is for the thread: a `SystemExit` would end the loop."""
        return within(self._context, self._run())

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._do()
        except anyio.get_cancelled_exc_class():
            self.finish(StoreClosed("the event loop of tenure.blocking has ended"))
            raise
        except BaseException as problem:  # noqa: BLE001 the thread raises it
            self.problem = problem
        finally:
            self.finish()

    async def _do(self) -> None:
        assert self._function is not None
        self.value = await self._function()

    def withdraw(self) -> None:
        if self.state == "new":
            self.finish()
        elif self.state == "running":
            self._scope.cancel("the thread that waits was interrupted")

    def refuse(self, problem: BaseException) -> None:
        if self.state in ("new", "running"):
            self.problem = problem
            self.withdraw()

    def finish(self, problem: BaseException | None = None) -> None:
        if self.state != "over":
            self.state = "over"
            self.problem = self.problem or problem
            self.watch = None
            if self._on_over is not None:
                self._on_over(self)
            self._open()

    def _open(self) -> None:
        self.over.release()


class PlainRequest(Request):
    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self._plain = function

    def start(self, *_: object) -> None:
        if self.state == "new":
            try:
                self.value = self._plain()
            except BaseException as problem:  # noqa: BLE001 the thread raises it
                self.problem = problem
            self.finish()
