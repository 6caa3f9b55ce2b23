"""What tenure tells about itself: one method, called with the name of an event and its fields; and figures."""

from ._logging import LoggingObserver
from ._observer import Observer
from ._observers import Observers
from ._opentelemetry import OpenTelemetryObserver
from ._prometheus import PrometheusObserver
from ._samples import Sample, Source

__all__ = (
    "LoggingObserver",
    "Observer",
    "Observers",
    "OpenTelemetryObserver",
    "PrometheusObserver",
    "Sample",
    "Source",
)

for _name in __all__:
    globals()[_name].__module__ = __name__
