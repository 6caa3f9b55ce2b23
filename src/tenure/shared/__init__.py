"""Patterns across processes, each written once over the store."""

from tenure.store._connection import Done

from ._barrier import Arrival, Barrier, BarrierStatistics
from ._claim import Claim, Claiming
from ._election import Candidacy, Election, Term
from ._guard import LuaGuard, SqlGuard
from ._leader_changes import LeaderChanges
from ._lease import Hold, Lease
from ._limiter import RateLimiter
from ._lock import Lock, Party, Who
from ._queue import Audit, Item, QueueStatistics, TaskPage, TaskRecord, WorkQueue
from ._resource_pool import PooledResource, ResourcePool, ResourcePoolStatistics
from ._retry import Discard, Retry, RetryLater
from ._rwlock import RWLock
from ._semaphore import Semaphore
from ._task import Taking, Task
from ._worker import Worker, WorkerStatistics

__all__ = (
    "Arrival",
    "Audit",
    "Barrier",
    "BarrierStatistics",
    "Candidacy",
    "Claim",
    "Claiming",
    "Discard",
    "Done",
    "Election",
    "Hold",
    "Item",
    "LeaderChanges",
    "Lease",
    "Lock",
    "LuaGuard",
    "Party",
    "PooledResource",
    "QueueStatistics",
    "RWLock",
    "RateLimiter",
    "ResourcePool",
    "ResourcePoolStatistics",
    "Retry",
    "RetryLater",
    "Semaphore",
    "SqlGuard",
    "Taking",
    "Task",
    "TaskPage",
    "TaskRecord",
    "Term",
    "Who",
    "WorkQueue",
    "Worker",
    "WorkerStatistics",
)
