"""Reports events of the patterns to the observer, and failures to the log as well."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.observe import Observer

__all__ = ("Reporter",)

_logger = logging.getLogger("tenure")


class Reporter:
    """Reports the events of one object. Failures are logged whether or not there is an observer.

    `LoggingObserver` leaves out what this has logged.

    Thread safety: as that of the observer.
    """

    __slots__ = ("_observer",)

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer

    def notice(self, event: str, /, **fields: object) -> None:
        """Report a normal event: to the observer alone."""
        if self._observer is not None:
            try:
                self._observer.notice(event, **fields)
            except Exception as error:  # noqa: BLE001 - an observer must not raise; the reporting code goes on
                _warn("the observer failed at", event, fields, error)

    def warn(self, event: str, /, **fields: object) -> None:
        """Report a problem."""
        _warn("", event, fields, None)
        self.notice(event, **fields)

    def failed(self, event: str, error: BaseException, /, **fields: object) -> None:
        """Report that a user's function raised `error`; the traceback is logged."""
        _warn("", event, fields, error)
        self.notice(event, **fields, error=error)


def _warn(prefix: str, event: str, fields: dict[str, object], error: BaseException | None) -> None:
    facts = [f"{name}={value}" for name, value in fields.items()]
    if error is not None:
        facts.append(f"error={error!r}")
    _logger.warning(
        "%s",
        " ".join([*filter(None, [prefix]), event, *facts]),
        exc_info=error,
        extra={f"tenure_{name}": value for name, value in fields.items()},
    )
