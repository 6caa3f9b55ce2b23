"""Coordination for structured concurrency: what a program holds, it holds for exactly as long as a scope.

The rooms of the house, and which may import which (tests/test_rooms.py keeps it):

    errors < observe < upkeep < local < engine < store < { engines/*, shared, sql } < processor < { cli, web, examples }

A room imports only rooms to its left. Rooms in braces do not import one another, except that cli may start web. This
front door re-exports `shared`, `open_store` and all errors; the rest is found in its room (`tenure.local`,
`tenure.testing`). `testing` may import everything; nothing imports `testing` or the front door.
"""

from tenure.engines import open_store
from tenure.errors import (
    AcquireTimeout,
    BarrierBroken,
    BulkheadFull,
    CapacityMismatch,
    CircuitOpen,
    DuplicateTask,
    EngineError,
    LeaseLost,
    OutcomeUnknown,
    PayloadTooLarge,
    PoolClosed,
    PoolTimeout,
    QueueFull,
    ResultUnavailable,
    StoreClosed,
    StoreUnavailable,
    TaskCancelled,
    TaskFailed,
    TenureError,
    WouldExceedDeadline,
)
from tenure.shared import (
    Audit,
    Discard,
    Hold,
    Item,
    Lease,
    Lock,
    Party,
    QueueStatistics,
    RateLimiter,
    Retry,
    RetryLater,
    RWLock,
    Semaphore,
    Taking,
    Task,
    TaskRecord,
    Who,
    Worker,
    WorkerStatistics,
    WorkQueue,
)
from tenure.store import Store, StoreStatistics

__all__ = (
    "AcquireTimeout",
    "Audit",
    "BarrierBroken",
    "BulkheadFull",
    "CapacityMismatch",
    "CircuitOpen",
    "Discard",
    "DuplicateTask",
    "EngineError",
    "Hold",
    "Item",
    "Lease",
    "LeaseLost",
    "Lock",
    "OutcomeUnknown",
    "Party",
    "PayloadTooLarge",
    "PoolClosed",
    "PoolTimeout",
    "QueueFull",
    "QueueStatistics",
    "RWLock",
    "RateLimiter",
    "ResultUnavailable",
    "Retry",
    "RetryLater",
    "Semaphore",
    "Store",
    "StoreClosed",
    "StoreStatistics",
    "StoreUnavailable",
    "Taking",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskRecord",
    "TenureError",
    "Who",
    "WorkQueue",
    "Worker",
    "WorkerStatistics",
    "WouldExceedDeadline",
    "open_store",
)

for _name in __all__:
    globals()[_name].__module__ = "tenure"
