"""Events as log records."""

from __future__ import annotations

import logging

_WARNINGS = frozenset(
    {
        *("lease.lost", "task.lost", "task.dead"),
        *("processor.exhaustion", "processor.failures", "processor.heartbeats_late", "processor.leases_lost"),
        *("processor.lock_timeouts", "processor.timeouts"),
    }
)


class LoggingObserver:
    """Logs each event: losses, dead tasks and what goes wrong in a processor as warnings, the rest for debugging.

    The fields stand in the message and, as `tenure_` attributes, on the record.

    Thread safety: as that of the logger.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("tenure")

    def notice(self, event: str, /, **fields: object) -> None:
        """Log the event."""
        level = logging.WARNING if event in _WARNINGS else logging.DEBUG
        if self._logger.isEnabledFor(level):
            text = " ".join(f"{name}={value!r}" for name, value in fields.items())
            self._logger.log(level, "%s %s", event, text, extra={f"tenure_{k}": v for k, v in fields.items()})
