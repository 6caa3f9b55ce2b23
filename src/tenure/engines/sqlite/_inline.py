"""The engine's thread for tests in virtual time: functions run at once, on the loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio
from anyio.lowlevel import checkpoint

from tenure.waiting import loop_caller

from ._thread import SHORTEST, ThreadCall

T = TypeVar("T")

_LONGEST = 1.0
"""Seconds between two checks while nothing happens: in virtual time each of them is a step of the clock."""


class Inline:
    """Does what `EngineThread` does, without a thread; a function that `call` or `end` runs cannot be cancelled.

    Thread safety: `poke` may be called from any thread, the rest belongs to the event loop that made it.
    """

    def __init__(self, check: Callable[[], bool]) -> None:
        self.call_soon = loop_caller()
        self.checking = False
        self.woken = False
        self._check = check

    async def call(self, function: Callable[[], T]) -> T:
        result = function()
        await checkpoint()
        return result

    def start(self, function: Callable[[], T], on_end: Callable[[ThreadCall[T]], object]) -> None:
        job = ThreadCall(function, on_end)
        job.run()
        job.finish()

    async def tend(self, file: tuple[int, int], process: str) -> None:
        del file, process  # no datagrams: they come in real time
        wait = SHORTEST
        while True:
            await anyio.sleep(wait)
            wait = SHORTEST if self._check() else min(2 * wait, _LONGEST)

    def poke(self) -> None:
        # RuntimeError: the loop is closed, and no hints are wanted
        with suppress(RuntimeError):
            self.call_soon(self._check_once)

    async def end(self, function: Callable[[], object]) -> None:
        await self.call(function)

    def _check_once(self) -> None:
        self._check()
