from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from tenure.arguments import NotABlock, Seconds, hinted
from tenure.shared._lease import Hold, HoldRequest, Lease
from tenure.store import Store, check_ttl, handle_of

from ._lock import Holdable

READERS = 2**30
"""A writer weighs as much as this many readers."""


class RWLock(Holdable, NotABlock):
    """Many readers or one writer, over all processes that use the store, first come, first served.

    A reader that comes after a waiting writer waits behind it, so that neither side starves. Each reader has its own
    lease; in `holders()`, it has a weight of 1.

    Source: the fair read-write lock of tokio, in which a writer takes all permits of a semaphore.
    """

    __slots__ = ("_key", "_store", "_ttl", "name")
    _blocks = "lock.read()` or `async with lock.write()"

    @hinted(timeout="write lock.read(timeout=5) or lock.write(timeout=5)")
    def __init__(self, store: Store, name: str, *, ttl: Seconds | None = None) -> None:
        self._store = handle_of(store)
        self._key = self._store.key("rwlock", name)
        self._ttl = store.ttl if ttl is None else check_ttl(ttl)
        self.name: str = name

    def __repr__(self) -> str:
        return f"<RWLock {self.name!r}>"

    def read(self, timeout: Seconds | None = None) -> AbstractAsyncContextManager[Lease, None]:
        """Share the lock with other readers for a block, `async with lock.read() as lease`.

        `timeout` and errors are as in `Lock.hold`; `RuntimeError` also if the caller holds the lock in the other mode.
        Cancellation: while waiting, no place is kept and nothing is held.
        """
        return self._hold(1, timeout)

    def write(self, timeout: Seconds | None = None) -> AbstractAsyncContextManager[Lease, None]:
        """Have the lock alone for a block, `async with lock.write() as lease`; otherwise as `read`.

        Cancellation: as in `read`; the readers behind go in.
        """
        return self._hold(READERS, timeout)

    def _hold(self, weight: int, timeout: Seconds | None) -> AbstractAsyncContextManager[Lease, None]:
        request = HoldRequest(self._key, READERS, weight)
        return Hold(Lease, self._store, request, ttl=self._ttl, timeout=timeout, exclusive=True)
