"""Patterns across processes, each written once over the store."""

from ._lease import Hold, Lease
from ._limiter import RateLimiter
from ._lock import Lock, Party, Who
from ._queue import Audit, Item, QueueStatistics, TaskRecord, WorkQueue
from ._retry import Discard, Retry, RetryLater
from ._rwlock import RWLock
from ._semaphore import Semaphore
from ._task import Taking, Task
from ._worker import Worker, WorkerStatistics

__all__ = (
    "Audit",
    "Discard",
    "Hold",
    "Item",
    "Lease",
    "Lock",
    "Party",
    "QueueStatistics",
    "RWLock",
    "RateLimiter",
    "Retry",
    "RetryLater",
    "Semaphore",
    "Taking",
    "Task",
    "TaskRecord",
    "Who",
    "WorkQueue",
    "Worker",
    "WorkerStatistics",
)
