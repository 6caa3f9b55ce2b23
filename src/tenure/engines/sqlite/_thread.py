"""The thread of an engine: it runs functions one after another, and checks for hints in between.

A thread of our own is gone when the engine is closed, and faster: an empty call takes about 25 us on asyncio and 30 us
on trio, through `anyio.to_thread` 45 us and 50 us.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from socket import socket
from threading import Thread
from time import monotonic
from typing import Any, Generic, TypeVar, cast

import anyio

from tenure.waiting import loop_caller, on_readable, park, wake

from ._waking import listen, take_in

T = TypeVar("T")

SHORTEST, LONGEST = 0.001, 0.05
"""Seconds between two checks: while something happens of which others do not notify this process, and otherwise."""

_LIVELY = 0.25
"""Seconds after an event during which checks are frequent."""


class Pace:
    def __init__(self) -> None:
        self._wait = SHORTEST
        self._active = monotonic()

    def active(self) -> None:
        self._wait, self._active = SHORTEST, monotonic()

    def next(self) -> float:
        if monotonic() - self._active > _LIVELY:
            self._wait = min(2 * self._wait, LONGEST)
        return self._wait


class ThreadCall(Generic[T]):
    def __init__(self, function: Callable[[], T], on_end: Callable[[ThreadCall[T]], object]) -> None:
        self._function = function
        self._on_end = on_end
        self._result: T | None = None
        self._problem: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as problem:  # noqa: BLE001 `result` raises it
            self._problem = problem

    def finish(self) -> None:
        self._on_end(self)

    def result(self) -> T:
        if self._problem is not None:
            raise self._problem
        return cast("T", self._result)


class EngineThread:
    """`check` is called between jobs while `checking`; it returns whether something had happened.

    Thread safety: `poke` may be called from any thread, the rest belongs to the event loop that made it.
    """

    def __init__(self, name: str, check: Callable[[], bool]) -> None:
        self.call_soon = loop_caller()
        """Has a function called on the loop, from any thread."""
        self.checking = False
        self.woken = False
        """True if others wake this process: then it need not check often."""
        self._check = check
        self._poked = False
        self._jobs: SimpleQueue[ThreadCall[Any] | bool] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[[], T]) -> T:
        """Run a function on the thread. Cancellation: it is run all the same."""
        parked = park()
        job: ThreadCall[T] = ThreadCall(function, lambda _: wake(parked))
        self._jobs.put(job)
        await parked
        return job.result()

    def start(self, function: Callable[[], T], on_end: Callable[[ThreadCall[T]], object]) -> None:
        self._jobs.put(ThreadCall(function, on_end))

    async def tend(self, file: tuple[int, int], process: str) -> None:
        listening = listen(file, process)
        if listening is None:
            await anyio.sleep_forever()
            return
        with listening:
            self.woken = True
            await on_readable(listening, partial(self._on_datagram, listening))

    def poke(self) -> None:
        if not self._poked:
            self._poked = True
            self._jobs.put(True)

    async def end(self, function: Callable[[], object]) -> None:
        """Run a last function, and end the thread. Cancellation: not to be cancelled; shield it."""
        try:
            await self.call(function)
        finally:
            self._jobs.put(False)
            self._thread.join()  # it has nothing left to do

    def _on_datagram(self, listening: socket) -> None:
        take_in(listening)
        self.poke()

    def _run(self) -> None:
        pace = Pace()
        while True:
            try:
                job = self._jobs.get(timeout=pace.next() if self.checking else None)
            except Empty:
                if self._check():
                    pace.active()
                continue
            if job is False:
                return
            if not self.woken:
                pace.active()
            if job is True:
                self._poked = False  # before the check: what comes from now on needs another one
                self._check()
            else:
                job.run()
                self._answer(job.finish)

    def _answer(self, function: Callable[[], None]) -> None:
        # RuntimeError: the loop is closed, and no task waits
        with suppress(RuntimeError):
            self.call_soon(function)
