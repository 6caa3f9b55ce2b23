"""Reports events to the observer, and what an operator should see to the log as well."""

from __future__ import annotations

import logging

from ._observer import Observer

_logger = logging.getLogger("tenure")


class Reporter:
    """Reports the events of one object or store. Problems are logged whether or not there is an observer.

    `LoggingObserver` leaves out what this has logged. What an observer raises is logged and goes no further.

    Thread safety: as that of the observer.
    """

    __slots__ = ("observer",)

    def __init__(self, observer: Observer | None = None) -> None:
        self.observer = observer

    def notice(self, event: str, /, **fields: object) -> None:
        """Report a normal event: to the observer alone."""
        if self.observer is not None:
            try:
                self.observer.notice(event, **fields)
            except Exception as problem:  # noqa: BLE001 - an observer must not raise; the reporting code goes on
                _log(logging.WARNING, f"the observer failed at {event}", {**fields, "error": problem})

    def inform(self, event: str, /, **fields: object) -> None:
        """Report what an operator may want to know."""
        _log(logging.INFO, event, fields)
        self.notice(event, **fields)

    def warn(self, event: str, /, **fields: object) -> None:
        """Report a problem. If `error` has a traceback, it is logged."""
        _log(logging.WARNING, event, fields)
        self.notice(event, **fields)


def _log(level: int, event: str, fields: dict[str, object]) -> None:
    if not _logger.isEnabledFor(level):
        return
    error = fields.get("error")
    trace = error if isinstance(error, BaseException) and (error.__traceback__ or error.__cause__) else None
    facts = [f"{name}={_shown(value)}" for name, value in fields.items()]
    extra = {f"tenure_{name}": value for name, value in fields.items()}
    _logger.log(level, "%s", " ".join([event, *facts]), exc_info=trace, extra=extra)


def _shown(value: object) -> str:
    if not isinstance(value, BaseException):
        return str(value)
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - it is the user's own, and what it says must not hide what it is
        return type(value).__name__
