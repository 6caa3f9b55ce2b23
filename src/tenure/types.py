"""Types that users name in annotations and do not construct: what calls return, and what blocks hand over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.lazy import exports

if TYPE_CHECKING:
    from tenure.shared import (
        Arrival,
        Audit,
        Available,
        BarrierStatistics,
        Child,
        ChildRecord,
        Children,
        Claim,
        GroupStatistics,
        HolderInfo,
        LeaderChanges,
        Lease,
        LeasedTask,
        LimiterState,
        Listing,
        LuaGuard,
        Page,
        PooledResource,
        PutOptions,
        QueueOptions,
        QueueSettings,
        QueueStatistics,
        QueueWorker,
        Release,
        ResourcePoolStatistics,
        Schedules,
        Spending,
        TaskChanges,
        TaskRecord,
        Term,
        WorkerOptions,
        WorkerStatistics,
    )
    from tenure.store import StoreStatistics

__all__ = (
    "Arrival",
    "Audit",
    "Available",
    "BarrierStatistics",
    "Child",
    "ChildRecord",
    "Children",
    "Claim",
    "GroupStatistics",
    "HolderInfo",
    "LeaderChanges",
    "Lease",
    "LeasedTask",
    "LimiterState",
    "Listing",
    "LuaGuard",
    "Page",
    "PooledResource",
    "PutOptions",
    "QueueOptions",
    "QueueSettings",
    "QueueStatistics",
    "QueueWorker",
    "Release",
    "ResourcePoolStatistics",
    "Schedules",
    "Spending",
    "StoreStatistics",
    "TaskChanges",
    "TaskRecord",
    "Term",
    "WorkerOptions",
    "WorkerStatistics",
)

__getattr__: Callable[[str], Any] = exports(
    __name__,
    {
        "tenure.types": {
            "tenure.shared": """
            Arrival Audit Available BarrierStatistics Child ChildRecord Children Claim GroupStatistics HolderInfo
            LeaderChanges Lease LeasedTask LimiterState Listing LuaGuard Page PooledResource PutOptions
            QueueOptions QueueSettings QueueStatistics QueueWorker Release ResourcePoolStatistics Schedules
            Spending TaskChanges TaskRecord Term WorkerOptions WorkerStatistics
        """,
            "tenure.store": "StoreStatistics",
        }
    },
)


def __dir__() -> tuple[str, ...]:
    return __all__
