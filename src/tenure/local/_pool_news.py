"""What pools tell: to the observer, or what somebody ought to know to the log if there is none."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.observe import Observer

__all__ = ("News",)

_logger = logging.getLogger("tenure.local")


class News:
    """Where the events of one pool go.

    Thread safety: as that of the observer.
    """

    __slots__ = ("_observer",)

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer

    def tell(self, event: str, /, **fields: object) -> None:
        """Tell what is all in order."""
        if self._observer is not None:
            self._observer.notice(event, **fields)

    def warn(self, event: str, /, **fields: object) -> None:
        """Tell what is not."""
        if self._observer is not None:
            self._observer.notice(event, **fields)
        else:
            _logger.warning("%s %s", event, " ".join(f"{name}={value}" for name, value in fields.items()))
