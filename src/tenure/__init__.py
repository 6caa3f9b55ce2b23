"""Coordination for structured concurrency: what a program holds, it holds for exactly as long as a scope.

The rooms of the house, and which may import which (tests/test_rooms.py keeps it):

    lazy < errors < pages < arguments < limits < waiting < observe < upkeep < local < handlers < engine < dbapi < store
           < engines/rules < { engines/*, shared, sql } < processor < serving < blocking
           < { cli, django, pydantic_ai, web, examples }

A room imports only rooms to its left. Rooms in braces do not import one another, except that cli may start web. This
front door re-exports `shared`, `open_store`, `Processor`, `serve` and all errors; the rest is found in its room
(`tenure.local`, `tenure.testing`). `testing` may import everything; nothing imports `testing` or the front door.
Inside of `shared` and `cli`, the folders stand on the room's own modules and do not import one another.

Docstrings do not repeat two defaults. Cancellation: a cancelled call has had no effect, and a plain function is no
checkpoint. Thread safety: none; an object belongs to the event loop that uses it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tenure.lazy import exports

if TYPE_CHECKING:
    from tenure.engines import open_store
    from tenure.errors import (
        AcquireTimeout,
        BarrierBroken,
        BulkheadFull,
        CapacityMismatch,
        CircuitOpen,
        CursorConflict,
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
        TaskNotWaiting,
        TenureError,
        TooManyChildren,
        WouldExceedDeadline,
    )
    from tenure.processor import Processor
    from tenure.serving import serve
    from tenure.shared import (
        Arrival,
        Audit,
        Available,
        Barrier,
        BarrierStatistics,
        BatchWorker,
        Child,
        ChildRecord,
        Children,
        Claim,
        Dead,
        Discard,
        Election,
        Groups,
        GroupStatistics,
        HolderInfo,
        Item,
        Job,
        Keep,
        Key,
        LeaderChanges,
        Lease,
        LeasedTask,
        Limit,
        LimiterState,
        Listing,
        Lock,
        LuaGuard,
        Page,
        PooledResource,
        PutOptions,
        QueueFigures,
        QueueOptions,
        QueueSettings,
        QueueStatistics,
        QueueWorker,
        RateLimiter,
        ResourcePool,
        ResourcePoolStatistics,
        Retry,
        RetryLater,
        RWLock,
        Schedule,
        Schedules,
        Selection,
        Semaphore,
        Spending,
        SqlGuard,
        Task,
        TaskChanges,
        TaskRecord,
        Term,
        Worker,
        WorkerStatistics,
        WorkQueue,
    )
    from tenure.store import MsgspecCodec, PydanticCodec, Store, StoreStatistics

__all__ = (
    "AcquireTimeout",
    "Arrival",
    "Audit",
    "Available",
    "Barrier",
    "BarrierBroken",
    "BarrierStatistics",
    "BatchWorker",
    "BulkheadFull",
    "CapacityMismatch",
    "Child",
    "ChildRecord",
    "Children",
    "CircuitOpen",
    "Claim",
    "CursorConflict",
    "Dead",
    "Discard",
    "DuplicateTask",
    "Election",
    "EngineError",
    "GroupStatistics",
    "Groups",
    "HolderInfo",
    "Item",
    "Job",
    "Keep",
    "Key",
    "LeaderChanges",
    "Lease",
    "LeaseLost",
    "LeasedTask",
    "Limit",
    "LimiterState",
    "Listing",
    "Lock",
    "LuaGuard",
    "MsgspecCodec",
    "OutcomeUnknown",
    "Page",
    "PayloadTooLarge",
    "PoolClosed",
    "PoolTimeout",
    "PooledResource",
    "Processor",
    "PutOptions",
    "PydanticCodec",
    "QueueFigures",
    "QueueFull",
    "QueueOptions",
    "QueueSettings",
    "QueueStatistics",
    "QueueWorker",
    "RWLock",
    "RateLimiter",
    "ResourcePool",
    "ResourcePoolStatistics",
    "ResultUnavailable",
    "Retry",
    "RetryLater",
    "Schedule",
    "Schedules",
    "Selection",
    "Semaphore",
    "Spending",
    "SqlGuard",
    "Store",
    "StoreClosed",
    "StoreStatistics",
    "StoreUnavailable",
    "Task",
    "TaskCancelled",
    "TaskChanges",
    "TaskFailed",
    "TaskNotWaiting",
    "TaskRecord",
    "TenureError",
    "Term",
    "TooManyChildren",
    "WorkQueue",
    "Worker",
    "WorkerStatistics",
    "WouldExceedDeadline",
    "open_store",
    "serve",
)

_ROOMS = ("blocking", "engine", "engines", "errors", "local", "observe", "processor", "shared", "store")
_exported = exports(
    __name__,
    "tenure",
    {
        "tenure.engines": "open_store",
        "tenure.errors": """
            AcquireTimeout BarrierBroken BulkheadFull CapacityMismatch CircuitOpen CursorConflict
            DuplicateTask EngineError LeaseLost OutcomeUnknown PayloadTooLarge PoolClosed PoolTimeout QueueFull
            ResultUnavailable StoreClosed StoreUnavailable TaskCancelled TaskFailed TaskNotWaiting TenureError
            TooManyChildren WouldExceedDeadline
        """,
        "tenure.processor": "Processor",
        "tenure.serving": "serve",
        "tenure.shared": """
            Arrival Audit Available Barrier BarrierStatistics BatchWorker Child ChildRecord Children Claim
            Dead Discard Election GroupStatistics Groups HolderInfo Item Job Keep Key LeaderChanges Lease
            LeasedTask Limit LimiterState Listing Lock LuaGuard Page PooledResource PutOptions
            QueueFigures QueueOptions QueueSettings QueueStatistics QueueWorker RateLimiter ResourcePool
            ResourcePoolStatistics Retry RetryLater RWLock Schedule Schedules Selection Semaphore Spending
            SqlGuard Task TaskChanges TaskRecord Term Worker WorkerStatistics WorkQueue
        """,
        "tenure.store": "MsgspecCodec PydanticCodec Store StoreStatistics",
    },
)


def __getattr__(name: str) -> object:
    return import_module(f"tenure.{name}") if name in _ROOMS else _exported(name)


def __dir__() -> tuple[str, ...]:
    return (*__all__, *_ROOMS)
