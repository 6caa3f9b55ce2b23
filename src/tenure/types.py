"""Types that users name in annotations and do not construct: what calls return, and what blocks hand over."""

# ruff: noqa: PLC0414 - type checkers export what is imported as itself
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.lazy import exports, names

if TYPE_CHECKING:
    from tenure.shared import (
        Arrival as Arrival,
        Audit as Audit,
        Available as Available,
        BarrierStatistics as BarrierStatistics,
        Child as Child,
        ChildRecord as ChildRecord,
        Children as Children,
        Claim as Claim,
        GroupStatistics as GroupStatistics,
        HolderInfo as HolderInfo,
        LeaderChanges as LeaderChanges,
        Lease as Lease,
        LeasedTask as LeasedTask,
        LimiterState as LimiterState,
        Listing as Listing,
        LuaGuard as LuaGuard,
        Page as Page,
        PooledResource as PooledResource,
        PutOptions as PutOptions,
        QueueOptions as QueueOptions,
        QueueSettings as QueueSettings,
        QueueStatistics as QueueStatistics,
        QueueWorker as QueueWorker,
        Release as Release,
        ResourcePoolStatistics as ResourcePoolStatistics,
        Schedules as Schedules,
        Spending as Spending,
        TaskChanges as TaskChanges,
        TaskRecord as TaskRecord,
        Term as Term,
        WorkerOptions as WorkerOptions,
        WorkerStatistics as WorkerStatistics,
    )
    from tenure.store import StoreStatistics as StoreStatistics

_HOMES = {
    "tenure.types": {
        "tenure.shared": """
            Arrival Audit Available BarrierStatistics Child ChildRecord Children Claim GroupStatistics HolderInfo
            LeaderChanges Lease LeasedTask LimiterState Listing LuaGuard Page PooledResource PutOptions
            QueueOptions QueueSettings QueueStatistics QueueWorker Release ResourcePoolStatistics Schedules
            Spending TaskChanges TaskRecord Term WorkerOptions WorkerStatistics
        """,
        "tenure.store": "StoreStatistics",
    }
}

__all__ = tuple(names(_HOMES))  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__: Callable[[str], Any] = exports(__name__, _HOMES)
