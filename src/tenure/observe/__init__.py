"""Events and figures of tenure: one method, called with the name of an event and its fields; and samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.lazy import exports

if TYPE_CHECKING:
    from ._frames import is_ours
    from ._logging import LoggingObserver
    from ._observer import Observer
    from ._observers import Observers
    from ._opentelemetry import OpenTelemetryObserver
    from ._prometheus import PrometheusObserver
    from ._reporter import Reporter, log
    from ._samples import Sample, Source

__all__ = (
    "LoggingObserver",
    "Observer",
    "Observers",
    "OpenTelemetryObserver",
    "PrometheusObserver",
    "Reporter",
    "Sample",
    "Source",
    "is_ours",
    "log",
)

__getattr__ = exports(
    __name__,
    "tenure.observe",
    {
        "_frames": "is_ours",
        "_logging": "LoggingObserver",
        "_observer": "Observer",
        "_observers": "Observers",
        "_opentelemetry": "OpenTelemetryObserver",
        "_prometheus": "PrometheusObserver",
        "_reporter": "Reporter log",
        "_samples": "Sample Source",
    },
)


def __dir__() -> tuple[str, ...]:
    return __all__
