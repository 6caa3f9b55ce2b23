"""The composed system: a queue and workers with claims, connections, a rate, locks, circuit breakers, and metrics."""

from __future__ import annotations

from ._adaptive import Adaptive
from ._context import Context
from ._fleet import Fleet, Member, Report
from ._metrics import Errors, Latencies, Latency, LockTimes, Metrics, Utilisation, Waits, times_of
from ._monitor import Monitor
from ._presets import PRESETS, Preset
from ._processor import Processor
from ._settings import Claims
from ._window import Tally

__all__ = (
    "PRESETS",
    "Adaptive",
    "Claims",
    "Context",
    "Errors",
    "Fleet",
    "Latencies",
    "Latency",
    "LockTimes",
    "Member",
    "Metrics",
    "Monitor",
    "Preset",
    "Processor",
    "Utilisation",
    "Waits",
)

for _name in __all__:
    if _name != "PRESETS":
        globals()[_name].__module__ = __name__
