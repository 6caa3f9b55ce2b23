from __future__ import annotations

import logging

from ._reporter import exc_info, rounded, write_record

_WARNINGS = frozenset(
    {
        *("processor.exhaustion", "processor.failures", "processor.heartbeats_late", "processor.leases_lost"),
        *("processor.lock_timeouts", "processor.timeouts"),
    }
)

# What tenure logs itself, as warnings of "tenure", whether or not there is an observer.
_LOGGED = frozenset(
    {
        *("claim.unmatched", "lease.lost", "lease.overran", "link.lost", "task.dead", "task.lost"),
        *("breaker.listener_failed", "breaker.matcher_failed", "pool.check_failed", "pool.close_failed"),
        *("pool.create_failed", "pool.leak", "pool.on_evict_failed", "pool.reset_failed"),
    }
)

# Likewise, as information.
_INFORMED = frozenset({"link.back", "operation.resent", "work.ended"})


class LoggingObserver:
    """Logs each event: losses, dead tasks and problems of a processor as warnings, the rest for debugging.

    The fields stand in the message and, as `tenure_` attributes, on the record. Lines that the library has logged to
    its logger "tenure" are not repeated. Thread safety: as of the logger.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("tenure")

    def notice(self, event: str, /, **fields: object) -> None:
        """Log the event."""
        logged = event in _LOGGED or (event == "session.lost" and fields.get("reason") == "gone")
        if (logged or event in _INFORMED) and f"{self._logger.name}.".startswith("tenure."):
            return
        level = logging.WARNING if logged or event in _WARNINGS else logging.DEBUG
        if self._logger.isEnabledFor(level):
            text = " ".join([event, *(f"{name}={rounded(value)!r}" for name, value in fields.items())])
            write_record(self._logger, level, text, fields, exc_info(fields.get("error")) if logged else None)
