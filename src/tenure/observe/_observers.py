"""Several observers as one."""

from __future__ import annotations

from ._observer import Observer


class Observers:
    """Notifies several observers, in their order: `Observers(LoggingObserver(), PrometheusObserver())`.

    Thread safety: as that of the observers.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def notice(self, event: str, /, **fields: object) -> None:
        """Notify them."""
        for observer in self._observers:
            observer.notice(event, **fields)
