"""Patterns across processes, each written once over the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.lazy import exports

if TYPE_CHECKING:
    from tenure.limits import Available, Limit, LimiterState, Spending

    from ._guard import LuaGuard, SqlGuard
    from ._lease import Hold, HoldRequest, Lease
    from ._listing import Listing, Page
    from .holds._barrier import Arrival, Barrier, BarrierStatistics
    from .holds._claim import Claim
    from .holds._election import Election, Term
    from .holds._leader_changes import LeaderChanges
    from .holds._lock import HolderInfo, Lock, break_holder
    from .holds._resource_pool import PooledResource, ResourcePool, ResourcePoolStatistics
    from .holds._rwlock import RWLock
    from .holds._semaphore import Semaphore
    from .limits._limiter import RateLimiter
    from .queue._around import check_around
    from .queue._at_work import LeasedTask, QueueWorker, age_of, read_workers
    from .queue._child_records import ChildRecord, read_children, read_kin
    from .queue._children import Child, Children
    from .queue._figures import QueueFigures
    from .queue._following import TaskChanges
    from .queue._groups import GroupStatistics, group_statistics
    from .queue._job import Job
    from .queue._keys import Key
    from .queue._options import Item, PutOptions
    from .queue._queue import WorkQueue, queue_of
    from .queue._records import Audit, QueueStatistics, TaskRecord, record_of, statistics_of
    from .queue._releases import Release
    from .queue._retry import Dead, Discard, Retry, RetryLater, decisive, is_failure, out_of_time
    from .queue._runners import Runners
    from .queue._schedule import Schedule, schedules_in
    from .queue._schedules import Schedules
    from .queue._selecting import Selection
    from .queue._settings import Groups, Keep, QueueOptions, QueueSettings, shown_record, values_of
    from .queue._task import Task, event_of
    from .queue._worker import BatchWorker, Worker, WorkerOptions, WorkerStatistics

__all__ = (
    "Arrival",
    "Audit",
    "Available",
    "Barrier",
    "BarrierStatistics",
    "BatchWorker",
    "Child",
    "ChildRecord",
    "Children",
    "Claim",
    "Dead",
    "Discard",
    "Election",
    "GroupStatistics",
    "Groups",
    "HolderInfo",
    "Item",
    "Job",
    "Keep",
    "Key",
    "LeaderChanges",
    "Lease",
    "LeasedTask",
    "Limit",
    "LimiterState",
    "Listing",
    "Lock",
    "LuaGuard",
    "Page",
    "PooledResource",
    "PutOptions",
    "QueueFigures",
    "QueueOptions",
    "QueueSettings",
    "QueueStatistics",
    "QueueWorker",
    "RWLock",
    "RateLimiter",
    "Release",
    "ResourcePool",
    "ResourcePoolStatistics",
    "Retry",
    "RetryLater",
    "Schedule",
    "Schedules",
    "Selection",
    "Semaphore",
    "Spending",
    "SqlGuard",
    "Task",
    "TaskChanges",
    "TaskRecord",
    "Term",
    "WorkQueue",
    "Worker",
    "WorkerOptions",
    "WorkerStatistics",
)

__getattr__: Callable[[str], Any] = exports(
    __name__,
    {
        "tenure": {
            "tenure.limits": "Limit",
            "holds._barrier": "Barrier",
            "holds._election": "Election",
            "queue._around": "check_around",
            "queue._at_work": "age_of read_workers",
            "queue._figures": "QueueFigures",
            "queue._child_records": "read_children read_kin",
            "queue._groups": "group_statistics",
            "_guard": "SqlGuard",
            "queue._job": "Job",
            "_lease": "Hold HoldRequest",
            "limits._limiter": "RateLimiter",
            "holds._lock": "Lock break_holder",
            "queue._queue": "WorkQueue queue_of",
            "queue._keys": "Key",
            "queue._options": "Item",
            "queue._records": "record_of statistics_of",
            "holds._resource_pool": "ResourcePool",
            "queue._retry": "Dead Discard Retry RetryLater decisive is_failure out_of_time",
            "queue._runners": "Runners",
            "holds._rwlock": "RWLock",
            "queue._schedule": "Schedule schedules_in",
            "holds._semaphore": "Semaphore",
            "queue._selecting": "Selection",
            "queue._settings": "Groups Keep shown_record values_of",
            "queue._task": "Task event_of",
            "queue._worker": "BatchWorker Worker",
        },
        "tenure.types": {
            "tenure.limits": "Available LimiterState Spending",
            "holds._barrier": "Arrival BarrierStatistics",
            "holds._claim": "Claim",
            "holds._election": "Term",
            "queue._at_work": "LeasedTask QueueWorker",
            "queue._children": "Child Children",
            "queue._child_records": "ChildRecord",
            "queue._following": "TaskChanges",
            "queue._groups": "GroupStatistics",
            "_guard": "LuaGuard",
            "holds._leader_changes": "LeaderChanges",
            "_listing": "Listing Page",
            "_lease": "Lease",
            "holds._lock": "HolderInfo",
            "queue._options": "PutOptions",
            "queue._records": "Audit QueueStatistics TaskRecord",
            "queue._releases": "Release",
            "holds._resource_pool": "PooledResource ResourcePoolStatistics",
            "queue._schedules": "Schedules",
            "queue._settings": "QueueOptions QueueSettings",
            "queue._worker": "WorkerOptions WorkerStatistics",
        },
    },
)
