"""What users take to test their own concurrent code: virtual time, leak checks, checkpoints, faults."""

from ._checkpoints import assert_checkpoints, assert_no_checkpoints
from ._clock import VirtualClock, run, virtual_backend_options
from ._deadlock import DeadlockError
from ._faults import Fault, FaultyEngine
from ._leaks import LeakCheck, LeakError, assert_no_leaks

__all__ = (
    "DeadlockError",
    "Fault",
    "FaultyEngine",
    "LeakCheck",
    "LeakError",
    "VirtualClock",
    "assert_checkpoints",
    "assert_no_checkpoints",
    "assert_no_leaks",
    "run",
    "virtual_backend_options",
)

# They are known by the name under which they are imported.
for _name in __all__:
    globals()[_name].__module__ = __name__
