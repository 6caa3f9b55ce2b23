"""Pools of resources by key, under limits for each key and for all together.

When all slots are in use, the resource that has been idle longest is closed to make room; when nothing is idle, a
returned resource is closed if a task of another key has waited longer than all of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from tenure.arguments import Seconds, check_count, check_flag
from tenure.local._lending import Loan
from tenure.local._limits import check_callable, check_key
from tenure.local._pool_lifecycle import Figures, PoolLifecycle
from tenure.observe import Observer

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedPoolStatistics(Figures):
    """The state of a `KeyedPool` at one moment. Each slot in use is idle, lent, creating or closing."""

    max_per_key: int
    """The number of slots that a key may use."""
    max_total: int
    """The number of all slots."""
    keys: int
    """The number of keys that have a resource or a waiter."""
    evicted: int
    """The number of closed resources that had to make room for another key."""


class KeyedPool(PoolLifecycle[T], Generic[K, T]):
    """Lends resources by key; creates them when they are needed and closes them when they are not.

        async with KeyedPool(connect, close=Connection.close, max_per_key=2, max_total=100) as pool:
            async with pool.acquire("example.org:443", timeout=10) as connection:
                ...

    - `create(key)`; `max_per_key`, `max_total`: slots.
    - `max_waiting`: tasks that may wait for a return, for each key (None: any number).
    - `evict`: "oldest" closes the longest idle resource if another key needs its slot; "never" waits.
    - `on_evict(key, resource, reason)` is called before a resource is closed.
    - `close`, `check`, `reset`, `observer`, and the times `idle_timeout`, `max_lifetime`, `check_timeout`,
      `create_timeout`, `close_timeout`, `check_after_idle` and `leak_after` are as in `Pool`.

    After a fork the child needs a pool of its own. Raises as `Pool` does.
    """

    _by_key = True

    def __init__(
        self,
        create: Callable[[K], Awaitable[T]],
        *,
        close: Callable[[T], object],
        check: Callable[[T], object] | None = None,
        reset: Callable[[T], object] | None = None,
        max_per_key: int = 10,
        max_total: int = 100,
        max_waiting: int | None = None,
        idle_timeout: Seconds | None = 300.0,
        max_lifetime: Seconds | None = 1800.0,
        evict: Literal["oldest", "never"] = "oldest",
        on_evict: Callable[[K, T, str], object] | None = None,
        check_timeout: Seconds | None = 5.0,
        create_timeout: Seconds | None = 30.0,
        close_timeout: Seconds | None = 10.0,
        check_after_idle: Seconds = 0.5,
        leak_after: Seconds | None = None,
        observer: Observer | None = None,
    ) -> None:
        check_callable("on_evict", on_evict, optional=True)
        if evict not in {"oldest", "never"}:
            raise ValueError(f"evict must be 'oldest' or 'never', not {evict!r}")
        timeouts = (check_timeout, create_timeout, close_timeout)
        functions = (create, close, check, reset)
        times = (idle_timeout, max_lifetime, leak_after)
        check_count("max_per_key", max_per_key)
        check_count("max_total", max_total)
        limits = (max_per_key, max_total, max_waiting)
        super().__init__(functions, timeouts, times, check_after_idle, limits, observer)
        self._evicts = evict == "oldest"
        self._on_evict = on_evict

    def acquire(
        self, key: K, *, exclusive: bool = True, timeout: Seconds | None = None
    ) -> AbstractAsyncContextManager[T]:
        """Borrow a resource of `key` for a block: ``async with pool.acquire("example.org") as resource``.

        A resource that is not `exclusive` is shared: other tasks that ask for a shared resource get the same one. With
        a `timeout` of 0, only an idle or shared resource is lent. `timeout`, errors and cancellation are otherwise as
        in `Pool.acquire`, but the errors of `create` are always raised.
        """
        return Loan(self, check_key(key), timeout, exclusive=check_flag("exclusive", exclusive))

    def statistics(self) -> KeyedPoolStatistics:
        """The current state. Counts the keys one by one."""
        return KeyedPoolStatistics(
            max_per_key=self._max_per_key,
            max_total=self._max_total,
            keys=len(self._subpools),
            evicted=self._evicted,
            **self._figures(),
        )

    def _summary(self) -> str:
        idle = sum(len(subpool.idle) for subpool in self._subpools.values())
        return (
            f"{self._slots} of {self._max_total} slots in use ({idle} idle, {self._closing} being closed) "
            f"by {len(self._subpools)} keys"
        )
