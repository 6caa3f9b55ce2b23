"""Coordination for structured concurrency: what a program holds, it holds for exactly as long as a scope.

The rooms of the house, and which may import which (tests/test_rooms.py keeps it):

    lazy < errors < pages < arguments < limits < waiting < observe < upkeep < local < handlers < engine < dbapi < store
           < engines/rules < { engines/*, shared, sql } < processor < serving < blocking
           < { cli, django, pydantic_ai, web, examples }

A room imports only rooms to its left. Rooms in braces do not import one another, except that cli may start
web. `testing` may import everything; nothing imports `testing` or this front door.

Docstrings do not repeat two defaults. Cancellation: a cancelled call has had no effect, and a plain function is no
checkpoint. Thread safety: none; an object belongs to the event loop that uses it, whose tasks may share it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tenure.lazy import exports, names

if TYPE_CHECKING:
    from tenure import errors as errors, types as types
    from tenure.engines import open_store as open_store
    from tenure.errors import (
        AcquireTimeout as AcquireTimeout,
        BarrierBroken as BarrierBroken,
        BulkheadFull as BulkheadFull,
        CapacityMismatch as CapacityMismatch,
        CircuitOpen as CircuitOpen,
        DuplicateTask as DuplicateTask,
        EngineError as EngineError,
        LeaseLost as LeaseLost,
        OutcomeUnknown as OutcomeUnknown,
        PoolClosed as PoolClosed,
        PoolTimeout as PoolTimeout,
        QueueFull as QueueFull,
        ResultUnavailable as ResultUnavailable,
        StoreClosed as StoreClosed,
        StoreUnavailable as StoreUnavailable,
        TaskCancelled as TaskCancelled,
        TaskFailed as TaskFailed,
        TenureError as TenureError,
        WouldExceedDeadline as WouldExceedDeadline,
    )
    from tenure.processor import Processor as Processor
    from tenure.serving import serve as serve
    from tenure.shared import (
        Barrier as Barrier,
        BatchWorker as BatchWorker,
        Dead as Dead,
        Discard as Discard,
        Election as Election,
        Groups as Groups,
        Item as Item,
        Job as Job,
        Keep as Keep,
        Key as Key,
        Limit as Limit,
        Lock as Lock,
        QueueFigures as QueueFigures,
        RateLimiter as RateLimiter,
        ResourcePool as ResourcePool,
        Retry as Retry,
        RetryLater as RetryLater,
        RWLock as RWLock,
        Schedule as Schedule,
        Selection as Selection,
        Semaphore as Semaphore,
        SqlGuard as SqlGuard,
        Task as Task,
        Worker as Worker,
        WorkQueue as WorkQueue,
    )
    from tenure.store import MsgspecCodec as MsgspecCodec, PydanticCodec as PydanticCodec, Store as Store

_ROOMS = (
    "blocking",
    "engine",
    "engines",
    "errors",
    "local",
    "observe",
    "processor",
    "shared",
    "store",
    "types",
)
_HOMES = {
    "tenure": {
        "tenure.engines": "open_store",
        "tenure.errors": """
            AcquireTimeout BarrierBroken BulkheadFull CapacityMismatch CircuitOpen DuplicateTask EngineError
            LeaseLost OutcomeUnknown PoolClosed PoolTimeout QueueFull ResultUnavailable StoreClosed
            StoreUnavailable TaskCancelled TaskFailed TenureError WouldExceedDeadline
        """,
        "tenure.processor": "Processor",
        "tenure.serving": "serve",
        "tenure.shared": """
            Barrier BatchWorker Dead Discard Election Groups Item Job Keep Key Limit Lock QueueFigures RateLimiter
            ResourcePool Retry RetryLater RWLock Schedule Selection Semaphore SqlGuard Task Worker WorkQueue
        """,
        "tenure.store": "MsgspecCodec PydanticCodec Store",
    }
}

__all__ = tuple(names(_HOMES))  # pyright: ignore[reportUnsupportedDunderAll]
_exported = exports(__name__, _HOMES)


def __getattr__(name: str) -> object:
    return import_module(f"tenure.{name}") if name in _ROOMS else _exported(name)


def __dir__() -> tuple[str, ...]:
    return (*__all__, *_ROOMS)
