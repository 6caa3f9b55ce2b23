from __future__ import annotations

from ._observer import Observer
from ._tracing import Tracing, tracing_of


class Observers:
    """Notifies several observers, in their order: `Observers(LoggingObserver(), PrometheusObserver())`.

    Only one of them may trace, such as a `TracingObserver` (`ValueError`). Thread safety: as of the observers.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        tracing = [offered for each in observers if (offered := tracing_of(each)) is not None]
        if len(tracing) > 1:
            raise ValueError(f"observers: one of them may trace, not {len(tracing)}")
        self.tracing: Tracing | None = tracing[0] if tracing else None
        """The `tracing` of the first observer that has it."""

    def notice(self, event: str, /, **fields: object) -> None:
        """Notify the observers."""
        for observer in self._observers:
            observer.notice(event, **fields)
