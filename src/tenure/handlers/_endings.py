"""The two endings of a handler by an exception: a failure concerns its task, an interruption goes on beyond it.

Interruptions are requested cancellations, exceptions that a signal's handler has raised, and the closing of the
coroutine. Everything else is a failure: a handler that calls `sys.exit()` must neither end its worker nor come back to
it for ever. A signal is known by the traceback: the exception passed through the function that is installed for the
signal. Python's own handler for SIGINT has no frame: there, the innermost frame does not stand at a `raise`.
"""

from __future__ import annotations

import signal
import threading
from functools import partial
from math import inf
from opcode import opmap
from types import CodeType, TracebackType
from typing import cast

import anyio

from tenure.waiting import this_task

_LATER = "trio._core."
"""The modules in which trio raises in its main task if the signal has met code of its own."""

_RAISES = {opmap[name] for name in ("RAISE_VARARGS", "RERAISE")}


class NotKept(Exception):
    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind: str = kind
        self.reason: str = reason


def split_failure(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """The failure and the interruption in what left a handler; of a group, the parts. Called in its task and scopes."""
    if isinstance(error, Exception):
        return error, None
    cancelled = anyio.get_cancelled_exc_class()
    requested = _is_cancelled()

    def interrupts(part: BaseException) -> bool:
        if isinstance(part, cancelled):
            return requested
        return not isinstance(part, BaseExceptionGroup) and (is_closing(part) or is_from_signal(part))

    if isinstance(error, BaseExceptionGroup):
        interruption, failure = cast("BaseExceptionGroup[BaseException]", error).split(interrupts)
        return failure, interruption
    if interrupts(error):
        return None, error
    if isinstance(error, cancelled):
        return RuntimeError("the handler ended as cancelled, although it was not cancelled"), None
    return error, None


def is_closing(error: BaseException) -> bool:
    """True if the coroutine is being closed, as opposed to a handler that raises `GeneratorExit`."""
    return isinstance(error, GeneratorExit) and not _is_raised(error)


def _is_cancelled() -> bool:
    cancelling = getattr(this_task(), "cancelling", None)
    return (cancelling is not None and cancelling() > 0) or anyio.current_effective_deadline() == -inf


def is_from_signal(error: BaseException) -> bool:
    """True if the handler of a signal has raised the exception, in the main thread. Called there."""
    if threading.current_thread() is not threading.main_thread():
        return False
    installed = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {code for handler in installed if (code := _code_of(handler)) is not None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    if not isinstance(error, KeyboardInterrupt):
        return False
    here = _innermost(error)
    if here is not None and here.tb_frame.f_globals.get("__name__", "").startswith(_LATER):
        return True
    return signal.default_int_handler in installed and not _is_raised(error)


def _code_of(handler: object) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not callable(handler):  # the signal is ignored, or left to the system
        return None
    method = getattr(type(handler), "__call__", None)  # noqa: B004 it is asked for its code
    return getattr(handler, "__code__", None) or getattr(method, "__code__", None)


def _is_raised(error: BaseException) -> bool:
    trace = _innermost(error)
    if trace is None:
        return True
    here = trace.tb_frame.f_code.co_code[trace.tb_lasti : trace.tb_lasti + 1]
    return bool(here) and here[0] in _RAISES


def _innermost(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace
