"""What the patterns report: everything to the observer, and what goes wrong to the log as well."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.observe import Observer

__all__ = ("News",)

_logger = logging.getLogger("tenure")


class News:
    """Where the events of one object go. What goes wrong is logged whether or not there is an observer.

    `LoggingObserver` leaves out what this has logged.

    Thread safety: as that of the observer.
    """

    __slots__ = ("_observer",)

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer

    def tell(self, event: str, /, **fields: object) -> None:
        """Report what is in order: to the observer alone."""
        if self._observer is not None:
            try:
                self._observer.notice(event, **fields)
            except Exception as error:  # noqa: BLE001 - an observer must not raise; whoever reports goes on
                _warn("the observer failed at", event, fields, error)

    def warn(self, event: str, /, **fields: object) -> None:
        """Report what is not in order."""
        _warn("", event, fields, None)
        self.tell(event, **fields)

    def failed(self, event: str, error: BaseException, /, **fields: object) -> None:
        """Report that a function of the user's has raised `error`: logged with its traceback."""
        _warn("", event, fields, error)
        self.tell(event, **fields, error=error)


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
