"""Events, figures and traces of tenure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.lazy import exports

if TYPE_CHECKING:
    from ._exposition import exposition
    from ._frames import is_ours, trimmed
    from ._logging import LoggingObserver
    from ._observer import Observer
    from ._observers import Observers
    from ._opentelemetry import OpenTelemetryObserver
    from ._printable import printable, printable_lines
    from ._prometheus import PrometheusObserver
    from ._reporter import Reporter, log
    from ._samples import Sample, Source
    from ._sketch import Sketch
    from ._tracing import Putting, TakenTask, Tracing, Trying
    from ._tracing_observer import TracingObserver

__all__ = (
    "LoggingObserver",
    "Observer",
    "Observers",
    "OpenTelemetryObserver",
    "PrometheusObserver",
    "Putting",
    "Sample",
    "Source",
    "TakenTask",
    "Tracing",
    "TracingObserver",
    "Trying",
    "exposition",
)

__getattr__: Callable[[str], Any] = exports(
    __name__,
    {
        "tenure.observe": {
            "_exposition": "exposition",
            "_frames": "is_ours trimmed",
            "_logging": "LoggingObserver",
            "_observer": "Observer",
            "_observers": "Observers",
            "_opentelemetry": "OpenTelemetryObserver",
            "_printable": "printable printable_lines",
            "_prometheus": "PrometheusObserver",
            "_reporter": "Reporter log",
            "_samples": "Sample Source",
            "_sketch": "Sketch",
            "_tracing": "Putting TakenTask Tracing Trying",
            "_tracing_observer": "TracingObserver",
        }
    },
)
