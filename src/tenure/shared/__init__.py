"""Patterns across processes, each written once over the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.lazy import exports

if TYPE_CHECKING:
    from tenure.dbapi import Completed
    from tenure.limits import Available, Limit, LimiterState, Spending

    from ._barrier import Arrival, Barrier, BarrierStatistics
    from ._claim import Claim
    from ._election import Election, Term
    from ._following import TaskChanges
    from ._groups import GroupStatistics
    from ._guard import LuaGuard, SqlGuard
    from ._job import Job
    from ._leader_changes import LeaderChanges
    from ._lease import Hold, HoldRequest, Lease
    from ._limiter import RateLimiter
    from ._lock import HolderInfo, Lock, LockStatus, break_holder
    from ._queue import WorkQueue
    from ._records import Audit, Item, QueueStatistics, TaskPage, TaskRecord, record_of
    from ._resource_pool import PooledResource, ResourcePool, ResourcePoolStatistics
    from ._retry import Dead, Discard, Retry, RetryLater, is_failure
    from ._runners import Runners
    from ._rwlock import RWLock
    from ._schedule import Schedule
    from ._schedule_record import ScheduleRecord, schedules_in
    from ._semaphore import Semaphore
    from ._task import Task
    from ._worker import Worker, WorkerStatistics

__all__ = (
    "Arrival",
    "Audit",
    "Available",
    "Barrier",
    "BarrierStatistics",
    "Claim",
    "Completed",
    "Dead",
    "Discard",
    "Election",
    "GroupStatistics",
    "Hold",
    "HoldRequest",
    "HolderInfo",
    "Item",
    "Job",
    "LeaderChanges",
    "Lease",
    "Limit",
    "LimiterState",
    "Lock",
    "LockStatus",
    "LuaGuard",
    "PooledResource",
    "QueueStatistics",
    "RWLock",
    "RateLimiter",
    "ResourcePool",
    "ResourcePoolStatistics",
    "Retry",
    "RetryLater",
    "Runners",
    "Schedule",
    "ScheduleRecord",
    "Semaphore",
    "Spending",
    "SqlGuard",
    "Task",
    "TaskChanges",
    "TaskPage",
    "TaskRecord",
    "Term",
    "WorkQueue",
    "Worker",
    "WorkerStatistics",
    "break_holder",
    "is_failure",
    "record_of",
    "schedules_in",
)

__getattr__: Callable[[str], Any] = exports(
    __name__,
    "tenure",
    {
        "tenure.dbapi": "Completed",
        "tenure.limits": "Available Limit LimiterState Spending",
        "_barrier": "Arrival Barrier BarrierStatistics",
        "_claim": "Claim",
        "_election": "Election Term",
        "_following": "TaskChanges",
        "_groups": "GroupStatistics",
        "_guard": "LuaGuard SqlGuard",
        "_job": "Job",
        "_leader_changes": "LeaderChanges",
        "_lease": "Hold HoldRequest Lease",
        "_limiter": "RateLimiter",
        "_lock": "HolderInfo Lock LockStatus break_holder",
        "_queue": "WorkQueue",
        "_records": "Audit Item QueueStatistics TaskPage TaskRecord record_of",
        "_resource_pool": "PooledResource ResourcePool ResourcePoolStatistics",
        "_retry": "Dead Discard Retry RetryLater is_failure",
        "_runners": "Runners",
        "_rwlock": "RWLock",
        "_schedule": "Schedule",
        "_schedule_record": "ScheduleRecord schedules_in",
        "_semaphore": "Semaphore",
        "_task": "Task",
        "_worker": "Worker WorkerStatistics",
    },
)


def __dir__() -> tuple[str, ...]:
    return __all__
