from __future__ import annotations

import logging
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import ParamSpec, TypeVar

from ._frames import trimmed
from ._observer import Observer, check_observer
from ._printable import printable, printable_lines
from ._rate import Rate
from ._tracing import Tracing, tracing_of

P = ParamSpec("P")
T = TypeVar("T")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

_logger = logging.getLogger("tenure")


class Reporter:
    """Reports the events of one object or store. Problems are logged whether or not there is an observer.

    The same event (of the same queue) is logged ten times at once at most, and then once a second on average, or once
    in four minutes if it lasts. A line says how many were left out: with `later(function)` about a second later,
    otherwise with the next line, at `settle`, or when this object goes. Errors of an observer are logged, errors of the
    user's logging printed to stderr.
    """

    __slots__ = ("__weakref__", "_later", "_left_out", "_rate", "_waits", "observer", "tracing")

    def __init__(
        self,
        observer: Observer | None = None,
        *,
        later: Callable[[Callable[[], None]], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.observer: Observer | None = check_observer(observer)
        self.tracing: Tracing | None = tracing_of(observer)
        self._later = later
        self._rate = Rate(clock, _left_out)
        self._waits = False
        self._left_out = False

    def notice(self, event: str, /, **fields: object) -> None:
        if self.observer is not None:
            try:
                self.observer.notice(event, **fields)
            except Exception as problem:  # noqa: BLE001 - an observer must not raise; the reporting code goes on
                self._log(logging.WARNING, f"the observer failed at {event}", {**fields, "error": problem})

    def attempt(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T | None:
        """The return value of a function of the observer's tracing; None if it raises. In any thread."""
        try:
            return function(*args, **options)
        except Exception as problem:  # noqa: BLE001 - as for a notice
            name = getattr(function, "__name__", repr(function))
            # in a thread of the user's, which may put in a transaction, nothing can be done later
            with suppress(RuntimeError):
                self._log(logging.WARNING, f"the observer failed at {name}", {"error": problem})
            return None

    def inform(self, event: str, /, **fields: object) -> None:
        self._log(logging.INFO, event, fields)
        self.notice(event, **fields)

    def warn(self, event: str, /, **fields: object) -> None:
        """Report a problem. If `error` has a traceback, it is logged."""
        self._log(logging.WARNING, event, fields)
        self.notice(event, **fields)

    def warn_briefly(self, event: str, /, **fields: object) -> None:
        """Report a problem that may last in one line, and rarely; with the traceback at the level DEBUG."""
        self._log(logging.WARNING, event, fields, lasts=True)
        self.notice(event, **fields)

    def settle(self) -> None:
        self._waits = False
        self._rate.settle()

    def _log(self, level: int, event: str, fields: Mapping[str, object], *, lasts: bool = False) -> None:
        if not _logger.isEnabledFor(level):
            return
        kind = f"{event} queue={fields['queue']}" if "queue" in fields else event
        if self._rate.allows(kind, lasts=lasts):
            _write(level, event, fields, brief=lasts and not _logger.isEnabledFor(logging.DEBUG))
        elif not self._waits:
            self._waits = True
            if self._later is not None:
                self._later(self.settle)
            if not self._left_out:
                self._left_out = True
                weakref.finalize(self, self._rate.settle)


def _write(level: int, event: str, fields: Mapping[str, object], *, brief: bool = False) -> None:
    facts = [f"{name}={_shown(value)}" for name, value in fields.items()]
    log(level, " ".join([event, *facts]), fields, brief=brief)


def _left_out(kind: str, count: int) -> None:
    event, _, queue = kind.partition(" queue=")
    fields = {"queue": queue} if queue else {}
    _write(logging.WARNING, event, {**fields, "left_out": count})


def log(
    level: int,
    text: str,
    fields: Mapping[str, object] = MappingProxyType({}),
    *,
    stack: str = "",
    brief: bool = False,
) -> None:
    """Log a line of tenure, without the traceback of the error if `brief`. Raises nothing."""
    try:
        problem = None if brief else exc_info(fields.get("error"))
        write_record(_logger, level, text, fields, problem, stack)
    except Exception:  # noqa: BLE001 - printed, as `logging` does itself where a handler lets it
        stderr = sys.stderr
        # a service may have none, or a closed one
        if logging.raiseExceptions and stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
            with suppress(OSError, ValueError):
                stderr.write(f"--- tenure could not log {printable(text)} ---\n")
                stderr.write(f"{printable_lines(traceback.format_exc())}\n")


def write_record(
    logger: logging.Logger,
    level: int,
    text: str,
    fields: Mapping[str, object],
    problem: ExcInfo | None,
    stack: str = "",
) -> None:
    """Log a line, with the traceback of a problem or a stack below it. The record has the fields as attributes.

    Names and errors may come from strangers, so the line and the traceback are escaped: `logging.Formatter` takes
    `exc_text` as it is. Other handlers find the error in `exc_info`.
    """
    if not logger.isEnabledFor(level):
        return
    path, number, function, _ = logger.findCaller()
    extra = {f"tenure_{name}": value for name, value in fields.items()}
    below = printable_lines(stack) if stack else None
    arguments = path, number, printable(text), (), problem, function, extra, below
    record = logger.makeRecord(logger.name, level, *arguments)
    if problem is not None:
        record.exc_text = printable_lines("".join(traceback.format_exception(*problem)))
    logger.handle(record)


def exc_info(error: object) -> ExcInfo | None:
    if not isinstance(error, BaseException) or not (error.__traceback__ or error.__cause__):
        return None
    return type(error), error, trimmed(error.__traceback__)


def rounded(value: object) -> object:
    return round(value, 6) if isinstance(value, float) else value


def _shown(value: object) -> str:
    try:
        return repr(value) if isinstance(value, BaseException) else str(rounded(value))
    except Exception:  # noqa: BLE001 - it is the user's own, and what it says must not hide what it is
        return type(value).__name__
