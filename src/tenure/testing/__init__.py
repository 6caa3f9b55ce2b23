"""Tools for users to test their own concurrent code: schedules, cancellations, virtual time, faults."""

from ._cancellable import Cancellable, cancellable, newcomer
from ._checkpoints import assert_checkpoints, assert_no_checkpoints
from ._clock import VirtualClock, run, virtual_backend_options
from ._deadlock import DeadlockError
from ._everywhere import Cancellations, cancel_everywhere
from ._explore import Exploration, ScheduleFailed, explore, replay
from ._explored import explored
from ._faults import Fault, FaultyEngine, LeapingClock
from ._leaks import LeakCheck, LeakError, assert_no_leaks
from ._machine import Machine, at_rest, invariant, rule
from ._proxy import FaultProxy
from ._race import race
from ._waits import Wait

__all__ = (
    "Cancellable",
    "Cancellations",
    "DeadlockError",
    "Exploration",
    "Fault",
    "FaultProxy",
    "FaultyEngine",
    "LeakCheck",
    "LeakError",
    "LeapingClock",
    "Machine",
    "ScheduleFailed",
    "VirtualClock",
    "Wait",
    "assert_checkpoints",
    "assert_no_checkpoints",
    "assert_no_leaks",
    "at_rest",
    "cancel_everywhere",
    "cancellable",
    "explore",
    "explored",
    "invariant",
    "newcomer",
    "race",
    "replay",
    "rule",
    "run",
    "virtual_backend_options",
)

# They are known by the name under which they are imported.
for _name in __all__:
    globals()[_name].__module__ = __name__
