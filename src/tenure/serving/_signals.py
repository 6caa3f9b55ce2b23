"""SIGTERM, SIGHUP and SIGINT, received on the loop."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import FrameType
from typing import Any

import anyio

from tenure.upkeep import unwrapped_task_group
from tenure.waiting import loop_caller

_TURN = 0.5


@asynccontextmanager
async def signals_received(on_signal: Callable[[signal.Signals], None]) -> AsyncGenerator[None]:
    """A block in which the signals that end a process call a function on the loop; then they do again what they did
    before.

    Raises `RuntimeError` outside the main thread.
    Cancellation: as of the block.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "only the main thread can receive signals: call serve there, or pass signals=False and cancel it"
        )
    # not by anyio's receiver: on asyncio that leaves the default behind, whatever was there before
    receiver = _Receiver(on_signal)
    try:
        async with unwrapped_task_group() as group:
            group.start_soon(_turn_now_and_then)
            yield
            group.cancel_scope.cancel()
    finally:
        receiver.end()


def ending_signals() -> list[signal.Signals]:
    """SIGTERM, SIGINT, and SIGHUP unless the process ignores it, as under nohup, or the system has none."""
    hangup = getattr(signal, "SIGHUP", None)
    numbers = [signal.SIGTERM, signal.SIGINT]
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        numbers.append(hangup)
    return numbers


def is_hangup(number: int) -> bool:
    """True for SIGHUP, which never cancels: a terminal and its shell may both send it."""
    return number == getattr(signal, "SIGHUP", None)


class _Receiver:
    """The handler of these signals, until it has ended. Two may overlap, and end in any order."""

    def __init__(self, on_signal: Callable[[signal.Signals], None]) -> None:
        self._on_signal = on_signal
        self._on_loop = loop_caller()
        self.ended = False
        self.before = {number: signal.signal(number, self) for number in ending_signals()}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._on_loop(partial(self._on_signal, signal.Signals(number)))

    def end(self) -> None:
        """Put back the former handlers, unless another handler has come since, which then passes this one over."""
        self.ended = True
        for number in self.before:
            if signal.getsignal(number) is self:
                # None: it was not installed by Python, which cannot put it back
                signal.signal(number, self._replaced(number) or signal.SIG_DFL)

    def _replaced(self, number: signal.Signals) -> Any:
        old = self.before[number]
        return old._replaced(number) if isinstance(old, _Receiver) and old.ended else old


async def _turn_now_and_then() -> None:
    # asyncio may begin to wait just after a signal has come and before Python has called its handler
    while True:  # noqa: ASYNC110 - it waits for nothing
        await anyio.sleep(_TURN)
