"""Patterns inside one process: no engine, no I/O, as fast as the event loop allows."""

from __future__ import annotations

from tenure.local._barrier import Barrier, BarrierStatistics
from tenure.local._blocking_watch import Blocked, BlockingWatch, BlockingWatchStatistics
from tenure.local._breaker import CircuitBreaker, CircuitBreakerStatistics
from tenure.local._bulkhead import Bulkhead, BulkheadKindStatistics, BulkheadStatistics
from tenure.local._coalescer import Coalescer, CoalescerStatistics
from tenure.local._keyed_pool import KeyedPool, KeyedPoolStatistics
from tenure.local._pool import Pool, PoolStatistics
from tenure.local._pool_loans import Leak
from tenure.local._queue import PriorityQueue, Queue, QueueStatistics
from tenure.local._router import Router, RouterLane, RouterStatistics
from tenure.local._rwlock import ReadTurn, RWLock, RWLockStatistics, TakenTurn, WriteTurn
from tenure.local._single_flight import SingleFlight, SingleFlightStatistics
from tenure.local._threads import Done, Finished, Threads, ThreadsStatistics
from tenure.local._token_bucket import Reservation, TokenBucket, TokenBucketStatistics

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
    "RouterLane",
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

# They are known by the name under which they are imported.
for _name in __all__:
    globals()[_name].__module__ = __name__
