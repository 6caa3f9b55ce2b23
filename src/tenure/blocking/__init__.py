"""Patterns for synchronous code: plain calls and `with` blocks, over one event loop in a thread of its own.

`open_store` makes a store; `Lock`, `Semaphore`, `RWLock`, `RateLimiter`, `Barrier`, `WorkQueue` and `Job` over it have
the names, arguments and errors of the asynchronous ones. A call blocks its thread, with an event loop that may run in
it.

"Interruption:" in a docstring says which effects remain of a call that ends by an exception from a handler of a signal,
such as `KeyboardInterrupt`: by default, the call has had no effect. The body of a `with` block runs in the caller's
thread, where nothing can cancel it: if the lease is lost, `lease.check()` raises `LeaseLost`, and so does leaving the
block.

Thread safety: any.
"""

from __future__ import annotations

from ._made import Barrier, Job, Lease, Lock, RateLimiter, RWLock, Semaphore, Task, WorkQueue
from ._pattern import Listing
from ._store import Store, open_store

__all__ = (
    "Barrier",
    "Job",
    "Lease",
    "Listing",
    "Lock",
    "RWLock",
    "RateLimiter",
    "Semaphore",
    "Store",
    "Task",
    "WorkQueue",
    "open_store",
)

for _public in (Listing, Store, open_store):
    _public.__module__ = __name__
