from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from tenure.arguments import Seconds, check_count
from tenure.local._lending import Loan
from tenure.local._limits import seconds
from tenure.local._pool_lifecycle import Figures, PoolLifecycle
from tenure.observe import Observer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics(Figures):
    """The state of a `Pool` at one moment. Each slot in use is in one of the states idle, lent, creating, closing."""

    min_size: int
    """The number of resources that the pool keeps."""
    max_size: int
    """The number of all slots."""


class Pool(PoolLifecycle[T]):
    """Lends resources, each to one borrower at a time, first come first served.

        async with Pool(connect, close=Connection.close, max_size=5) as pool:
            async with pool.acquire(timeout=10) as connection:
                ...

    - `create()`, `close(resource)`; `check(resource)` returns whether it works; `reset(resource)` cleans it up.
    - `min_size`, `max_size`: the least and the most resources.
    - `max_waiting`: tasks that may wait for a return (None: any number).
    - `idle_timeout`, `max_lifetime`: when an unused resource, or an old one, is closed; never while it is lent.
    - `check_timeout`, `create_timeout`, `close_timeout`: limits of calls.
    - `check_after_idle`: an idle time without a check. `check_every`: the time between checks of an idle resource.
    - `leak_after`: a longer loan is reported.
    - `observer` gets the events.

    Times are in seconds; None is never. A body that raises has its resource reset, checked or closed. After a fork
    the child needs a pool of its own. Raises `ValueError` and `TypeError` for wrong arguments; `RuntimeError` if it is
    opened twice or used before.

    Source: HikariCP; lifetimes are tested on return as well (bb8 #224, HikariCP #2014).
    """

    def __init__(
        self,
        create: Callable[[], Awaitable[T]],
        *,
        close: Callable[[T], object],
        check: Callable[[T], object] | None = None,
        reset: Callable[[T], object] | None = None,
        min_size: int = 0,
        max_size: int = 10,
        max_waiting: int | None = None,
        idle_timeout: Seconds | None = 600.0,
        max_lifetime: Seconds | None = 1800.0,
        check_timeout: Seconds | None = 5.0,
        create_timeout: Seconds | None = 30.0,
        close_timeout: Seconds | None = 10.0,
        check_after_idle: Seconds = 0.5,
        check_every: Seconds | None = 120.0,
        leak_after: Seconds | None = None,
        observer: Observer | None = None,
    ) -> None:
        timeouts = (check_timeout, create_timeout, close_timeout)
        functions = (create, close, check, reset)
        times = (idle_timeout, max_lifetime, leak_after)
        check_count("max_size", max_size)
        limits = (max_size, max_size, max_waiting)
        super().__init__(functions, timeouts, times, check_after_idle, limits, observer)
        self._min_size = check_count("min_size", min_size, least=0)
        if min_size > max_size:
            raise ValueError(f"min_size must be at most the max_size of {max_size}, not {min_size!r}")
        check_period = seconds("check_every", check_every)
        self._check_every = inf if check is None else check_period

    def acquire(self, timeout: Seconds | None = None) -> AbstractAsyncContextManager[T]:
        """Borrow a resource for a block: ``async with pool.acquire(timeout=10) as resource``.

        `timeout` in seconds limits the wait for the resource, its creation and check included (None: for ever; 0: do
        not wait in line). Entering raises `PoolTimeout`, which describes the state of the pool, `PoolClosed`,
        `BulkheadFull` if `max_waiting` tasks wait already, and the errors of `create` if nothing is lent. Leaving
        raises nothing of its own, and waits only for `reset` and, after an exception, for `check`.

        Cancellation: while waiting, nothing is taken and no place is kept; a creation under way goes on, for the next
        task. In a check, the resource is closed; in the body, reset, or closed without `reset`. Leaving is not
        cancelled.
        """
        return Loan(self, None, timeout)

    def reload(self) -> None:
        """Replace everything: close idle resources now, and lent resources when they come back. Goes on lending."""
        self._check_open()
        subpool = self._subpool(None)
        for entry in subpool.entries:
            entry.expires, entry.worn = -inf, "reloaded"
        for entry in list(subpool.idle):
            self._drop(entry, entry.worn)
        self._look_at(subpool)

    def resize(self, max_size: int) -> None:
        """Change the number of slots, from now on.

        Additional slots serve waiting tasks at once. With fewer, idle resources are closed now, the least recently
        used first, and lent ones when they come back. Raises `ValueError` for fewer than `min_size`.
        """
        self._check_open()
        if check_count("max_size", max_size) < self._min_size:
            raise ValueError(f"max_size must be at least the min_size of {self._min_size}, not {max_size!r}")
        self._max_per_key = self._max_total = max_size
        subpool = self._subpool(None)
        while subpool.idle and self._slots - self._closing > max_size:
            self._drop(subpool.idle[0], "resized")
        self._look_at(subpool)

    def statistics(self) -> PoolStatistics:
        """The current state."""
        return PoolStatistics(min_size=self._min_size, max_size=self._max_total, **self._figures())

    def _summary(self) -> str:
        state = self._figures()
        return (
            f"{state['size']} of {self._max_total} slots in use ({state['lent']} lent, {state['idle']} idle, "
            f"{state['creating']} being created, {state['closing']} being closed), {state['tasks_waiting']} waiting"
        )
