"""The read-write lock: a hold of one of many, or of all."""

from __future__ import annotations

from tenure.store import Store, check_ttl

from ._lease import Hold, HoldWish
from ._lock import Who, who

READERS = 2**30
"""A writer weighs as much as this many readers."""


class RWLock:
    """Many readers or one writer, over all who use the store, first come, first served.

    A reader that comes after a waiting writer waits behind it, so that neither side starves; readers that stand
    together at the head are let in together. Each reader has a lease of its own.

    Thread safety: none; a description, to be shared between tasks. Source: the fair read-write lock of tokio, in which
    a writer takes all permits of a semaphore.
    """

    __slots__ = ("_key", "_store", "_ttl", "name")

    def __init__(self, store: Store, name: str, *, ttl: float | None = None) -> None:
        self._store = store
        self._key = Store.key(store, "rwlock", name)
        self._ttl = store.ttl if ttl is None else check_ttl(ttl)
        self.name = name

    def __repr__(self) -> str:
        return f"<RWLock {self.name!r}>"

    def read(self, timeout: float | None = None) -> Hold:
        """Share the lock with other readers for a block; gives a `Lease`.

        `timeout` in seconds limits the wait (None: for ever; 0: one try). Entering raises `AcquireTimeout`,
        `RuntimeError` if this task holds the lock already, in any mode, `StoreClosed`, `EngineError`; leaving raises
        `LeaseLost`. Cancellation: while waiting, no place is kept and nothing is held.
        """
        return self._hold(1, timeout)

    def write(self, timeout: float | None = None) -> Hold:
        """Have the lock alone for a block; gives a `Lease`. Everything else as for `read`.

        Cancellation: while waiting, no place is kept and nothing is held; readers behind go in.
        """
        return self._hold(READERS, timeout)

    async def holders(self) -> Who:
        """Who holds the lock (a weight of 1 is a reader) and who waits. Cancellation: has no effect."""
        return await who(self._store, self._key)

    def _hold(self, weight: int, timeout: float | None) -> Hold:
        wish = HoldWish(self._key, READERS, weight)
        return Hold(self._store, wish, ttl=self._ttl, timeout=timeout, exclusive=True)
