"""Tools for users to test their own concurrent code: schedules, cancellations, virtual time, faults, referees."""

from typing import TYPE_CHECKING, Any

from ._cancellable import Cancellable, cancellable, newcomer
from ._checkpoints import assert_checkpoints, assert_no_checkpoints
from ._clock import VirtualClock, run, virtual_backend_options
from ._deadlock import DeadlockError
from ._everywhere import Cancellations, cancel_everywhere
from ._explore import Exploration, ScheduleFailed, explore, replay
from ._explored import explored
from ._faults import Fault, FaultyEngine, LeapingClock
from ._history import Call, Event, History
from ._leaks import LeakCheck, LeakError, assert_no_leaks
from ._machine import Machine, at_rest, invariant, rule
from ._proxy import FaultProxy
from ._race import race
from ._referee_barrier import Generations, agreement
from ._referee_families import Families, structured
from ._referee_groups import fair, in_order
from ._referee_holds import Holds, capacity, mutual_exclusion, one_leader
from ._referee_line import fifo
from ._referee_rate import rate
from ._referee_tasks import Deliveries, conservation, nothing_lost
from ._referees import Breach, RefereeError
from ._waits import Wait

if TYPE_CHECKING:
    from .contract import EngineContract

__all__ = (
    "Breach",
    "Call",
    "Cancellable",
    "Cancellations",
    "DeadlockError",
    "Deliveries",
    "EngineContract",
    "Event",
    "Exploration",
    "Families",
    "Fault",
    "FaultProxy",
    "FaultyEngine",
    "Generations",
    "History",
    "Holds",
    "LeakCheck",
    "LeakError",
    "LeapingClock",
    "Machine",
    "RefereeError",
    "ScheduleFailed",
    "VirtualClock",
    "Wait",
    "agreement",
    "assert_checkpoints",
    "assert_no_checkpoints",
    "assert_no_leaks",
    "at_rest",
    "cancel_everywhere",
    "cancellable",
    "capacity",
    "conservation",
    "explore",
    "explored",
    "fair",
    "fifo",
    "in_order",
    "invariant",
    "mutual_exclusion",
    "newcomer",
    "nothing_lost",
    "one_leader",
    "race",
    "rate",
    "replay",
    "rule",
    "run",
    "structured",
    "virtual_backend_options",
)

# They are known by the name under which they are imported.
for _name in __all__:
    if _name in globals():
        globals()[_name].__module__ = __name__


def __getattr__(name: str) -> Any:
    if name == "EngineContract":
        # It needs pytest, and the rest does not.
        from . import contract

        contract.EngineContract.__module__ = __name__
        return contract.EngineContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
