"""Patterns inside one process: no engine, no I/O, as fast as the event loop allows.

Each object may be made outside a running loop, and used on one loop after the other. A count of waiting tasks may
include tasks that were cancelled in this turn of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.lazy import exports

if TYPE_CHECKING:
    from ._barrier import Barrier, BarrierStatistics
    from ._blocking_watch import Blocked, BlockingWatch, BlockingWatchStatistics
    from ._breaker import CircuitBreaker, CircuitBreakerStatistics
    from ._bulkhead import Bulkhead, BulkheadKindStatistics, BulkheadStatistics
    from ._coalescer import Coalescer, CoalescerStatistics
    from ._keyed_lock import KeyedLock, KeyedLockStatistics
    from ._keyed_pool import KeyedPool, KeyedPoolStatistics
    from ._pool import Pool, PoolStatistics
    from ._pool_hooks import passes_check
    from ._pool_loans import Leak
    from ._queue import PriorityQueue, Queue, QueueStatistics
    from ._router import Router, RouterKindStatistics, RouterStatistics
    from ._rwlock import ReadTurn, RWLock, RWLockStatistics, TakenTurn, WriteTurn
    from ._single_flight import SingleFlight, SingleFlightStatistics
    from ._threads import Done, Finished, Threads, ThreadsStatistics
    from ._token_bucket import Reservation, TokenBucket, TokenBucketStatistics

__all__ = (
    "Barrier",
    "BarrierStatistics",
    "Blocked",
    "BlockingWatch",
    "BlockingWatchStatistics",
    "Bulkhead",
    "BulkheadKindStatistics",
    "BulkheadStatistics",
    "CircuitBreaker",
    "CircuitBreakerStatistics",
    "Coalescer",
    "CoalescerStatistics",
    "Done",
    "Finished",
    "KeyedLock",
    "KeyedLockStatistics",
    "KeyedPool",
    "KeyedPoolStatistics",
    "Leak",
    "Pool",
    "PoolStatistics",
    "PriorityQueue",
    "Queue",
    "QueueStatistics",
    "RWLock",
    "RWLockStatistics",
    "ReadTurn",
    "Reservation",
    "Router",
    "RouterKindStatistics",
    "RouterStatistics",
    "SingleFlight",
    "SingleFlightStatistics",
    "TakenTurn",
    "Threads",
    "ThreadsStatistics",
    "TokenBucket",
    "TokenBucketStatistics",
    "WriteTurn",
)

__getattr__: Callable[[str], Any] = exports(
    __name__,
    {
        "tenure.local": {
            "_barrier": "Barrier BarrierStatistics",
            "_blocking_watch": "Blocked BlockingWatch BlockingWatchStatistics",
            "_breaker": "CircuitBreaker CircuitBreakerStatistics",
            "_bulkhead": "Bulkhead BulkheadKindStatistics BulkheadStatistics",
            "_coalescer": "Coalescer CoalescerStatistics",
            "_keyed_lock": "KeyedLock KeyedLockStatistics",
            "_keyed_pool": "KeyedPool KeyedPoolStatistics",
            "_pool": "Pool PoolStatistics",
            "_pool_hooks": "passes_check",
            "_pool_loans": "Leak",
            "_queue": "PriorityQueue Queue QueueStatistics",
            "_router": "Router RouterKindStatistics RouterStatistics",
            "_rwlock": "ReadTurn RWLock RWLockStatistics TakenTurn WriteTurn",
            "_single_flight": "SingleFlight SingleFlightStatistics",
            "_threads": "Done Finished Threads ThreadsStatistics",
            "_token_bucket": "Reservation TokenBucket TokenBucketStatistics",
        }
    },
)
