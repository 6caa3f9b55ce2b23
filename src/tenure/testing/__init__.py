"""Tools for users to test their own concurrent code: schedules, cancellations, virtual time, faults."""

from ._cancellable import Cancellable as Cancellable, cancellable as cancellable, newcomer as newcomer
from ._checkpoints import (
    assert_checkpoints as assert_checkpoints,
    assert_no_checkpoints as assert_no_checkpoints,
)
from ._clock import (
    VirtualClock as VirtualClock,
    run as run,
    virtual_backend_options as virtual_backend_options,
)
from ._deadlock import DeadlockError as DeadlockError
from ._everywhere import Cancellations as Cancellations, cancel_everywhere as cancel_everywhere
from ._explore import (
    Exploration as Exploration,
    ScheduleFailed as ScheduleFailed,
    explore as explore,
    replay as replay,
)
from ._explored import explored as explored
from ._faults import Fault as Fault, FaultyEngine as FaultyEngine, LeapingClock as LeapingClock
from ._leaks import LeakCheck as LeakCheck, LeakError as LeakError, assert_no_leaks as assert_no_leaks
from ._machine import Machine as Machine, at_rest as at_rest, invariant as invariant, rule as rule
from ._proxy import FaultProxy as FaultProxy
from ._race import race as race
from ._waits import Wait as Wait

__all__ = tuple(name for name in globals() if not name.startswith("_"))  # pyright: ignore[reportUnsupportedDunderAll]

# They are known by the name under which they are imported.
for _name in __all__:
    globals()[_name].__module__ = __name__
