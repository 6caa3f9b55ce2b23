"""A pool of resources that are expensive to create: connections, sessions, browsers.

A borrower that finds none idle waits in line. A resource that becomes free, returned or newly created, goes to
the head of the line in the same step. So waiters wait for resources, not for slots, and no waiter is bound to the
creation that it caused: creations run one at a time in a job of the pool's own, as in HikariCP's connection adder,
and go on when their waiter has left.

Semantics as in HikariCP where not said otherwise: most recently used first, a check on borrowing that is skipped
after recent use, lifetimes with jitter. Lifetimes are tested on return as well (bb8 #224, HikariCP #2014).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from random import random
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from tenure.arguments import Seconds, check_count
from tenure.errors import PoolClosed
from tenure.local._lending import Lending, Loan
from tenure.local._limits import seconds
from tenure.local._pool_entry import Entry
from tenure.local._pool_hooks import Hooks
from tenure.local._pool_state import PoolState
from tenure.observe import Observer
from tenure.waiting import Line, Waiter, now

if TYPE_CHECKING:
    from anyio import CancelScope

    from tenure.upkeep import Job

__all__ = ("Pool", "PoolStatistics")

T = TypeVar("T")
FIRST_BACKOFF, LAST_BACKOFF = 0.1, 5.0


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """The state of a `Pool` at one moment. Each slot in use is in one of the states idle, lent, creating, closing."""

    min_size: int
    """The number of resources that the pool keeps."""
    max_size: int
    """The number of all slots."""
    size: int
    """The number of slots in use."""
    idle: int
    """The number of idle resources."""
    lent: int
    """The number of resources that are lent, or are being checked or reset by a borrower."""
    creating: int
    """The number of resources that are being created: 0 or 1."""
    closing: int
    """The number of resources that are being closed."""
    tasks_waiting: int
    """The number of tasks that stand in the line."""
    created: int
    """The number of resources created since the pool was opened."""
    closed: int
    """The number of resources closed since then."""
    create_failures: int
    """The number of creations that have failed since then."""
    timeouts: int
    """The number of times that a `timeout` of acquire has run out since then."""
    refused: int
    """The number of tasks refused since then because `max_waiting` other tasks waited already."""
    leaked: int
    """The number of resources lent for longer than `leak_after`."""


class Pool(Lending[T, None, Entry[T]], Generic[T]):
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
    the child needs a pool of its own.

    Raises `ValueError` and `TypeError` for wrong arguments; `RuntimeError` if it is opened twice or used before.

    Thread safety: none; all on the thread of one loop.
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
        hooks = Hooks(
            create,
            close=close,
            check=check,
            reset=reset,
            check_timeout=check_timeout,
            create_timeout=create_timeout,
            close_timeout=close_timeout,
            check_after_idle=check_after_idle,
            observer=observer,
        )
        check_count("max_size", max_size)
        if check_count("min_size", min_size, least=0) > max_size:
            raise ValueError(f"min_size must be at most the max_size of {max_size}, not {min_size!r}")
        state: PoolState[Entry[T]] = PoolState(
            min_size,
            max_size,
            idle_timeout=idle_timeout,
            max_lifetime=max_lifetime,
            check_every=check_every,
            checks=check is not None,
        )
        super().__init__(hooks, state, max_waiting=max_waiting, leak_after=leak_after)
        self._line: Line[None, Entry[T]] = Line(self._left, self._home)
        self._creator: Job | None = None
        self._resting: CancelScope | None = None

    def acquire(self, timeout: Seconds | None = None) -> AbstractAsyncContextManager[T]:
        """Borrow a resource for a block: ``async with pool.acquire(timeout=10) as resource``.

        `timeout` in seconds limits the wait for the resource, its creation and check included (None: for ever; 0: do
        not wait in line). Entering raises `PoolTimeout`, which describes the state of the pool, `PoolClosed`,
        `BulkheadFull` if `max_waiting` tasks wait already, and what `create` raised if nothing is lent. Leaving raises
        nothing of its own, and waits only for `reset` and, after an exception, for `check`.

        Cancellation: while waiting, nothing is taken and no place is kept; a creation under way goes on, and what it
        makes goes to the next. In a check, the resource is closed; in the body, reset, or closed without `reset`.
        Leaving is not cancelled.
        """
        return Loan(self, None, seconds("timeout", timeout, zero=True))

    def reload(self) -> None:
        """Replace everything: close idle resources now, and lent resources when they come back. Goes on lending."""
        self._check_open()
        self._state.generation += 1
        for entry in list(self._state.idle):
            self._drop(entry, "reloaded")
        self._grow()

    def resize(self, max_size: int) -> None:
        """Change how many slots there are, from now on.

        More serve waiting tasks at once. With fewer, idle ones are closed now, the least recently used first, and lent
        ones when they come back. ValueError for fewer than `min_size`.
        """
        self._check_open()
        state = self._state
        if check_count("max_size", max_size) < state.min_size:
            raise ValueError(f"max_size must be at least the min_size of {state.min_size}, not {max_size!r}")
        state.max_size = max_size
        while state.idle and state.surplus:
            self._drop(next(iter(state.idle)), "resized")
        self._grow()

    def statistics(self) -> PoolStatistics:
        """Return the current state."""
        state = self._state
        return PoolStatistics(
            min_size=state.min_size,
            max_size=state.max_size,
            size=state.size,
            idle=len(state.idle),
            lent=len(state.lent),
            creating=state.creating,
            closing=state.closing,
            tasks_waiting=len(self._line),
            created=self._created,
            closed=self._closed,
            create_failures=self._create_failures,
            timeouts=self._timeouts,
            refused=self._refused,
            leaked=self._loans.leaked(),
        )

    def __repr__(self) -> str:
        return f"<Pool {self._phase}: {self._summary()}>"

    def _summary(self) -> str:
        state = self._state
        return (
            f"{state.size} of {state.max_size} slots in use ({len(state.lent)} lent, {len(state.idle)} idle, "
            f"{state.creating} being created, {state.closing} being closed), {len(self._line)} waiting"
        )

    # opening and closing

    async def _begin(self) -> None:
        while self._state.short:
            self._state.creating += 1
            if not await self._make():
                return

    def _start_jobs(self) -> None:
        self._grow()
        super()._start_jobs()

    def _begin_closing(self) -> None:
        super()._begin_closing()
        if self._creator is not None:
            self._creator.cancel()
        self._last_error = None  # its traceback holds this object: let go of it
        self._line.fail_all(lambda: PoolClosed("the pool was closed"))
        for entry in list(self._state.idle):
            self._drop(entry, "closed")

    # lending

    def _take(self, want: None) -> Entry[T] | None:  # noqa: ARG002
        """Take an idle resource that is not too old."""
        state = self._state
        while state.idle:
            time = now()
            entry = next(reversed(state.idle))  # the most recently used, so that unneeded ones grow idle
            worn = state.worn(entry, time)
            if worn is None:
                state.lend(entry, time)
                return entry
            self._drop(entry, worn)
        return None

    async def _stand_in_line(self, want: None, timeout: float) -> Entry[T]:  # noqa: ARG002
        self._check_open()
        if self._is_crowded():
            await self._refuse(self._state.max_size, self._summary())
        waiter = self._line.join(None)
        self._grow()
        return await self._line.wait(waiter, timeout)

    def _is_crowded(self) -> bool:
        """True if `max_waiting` tasks wait until a resource is returned."""
        most = self._max_waiting
        if most is None:
            return False
        # so many need no return: resources that are to be created, or closed before that, serve them
        served = max(0, self._state.max_size - len(self._state.lent) + self._state.checking)
        return len(self._line) - served >= most and sum(1 for _ in self._line) - served >= most

    def _timed_out(self, want: None, timeout: float) -> str:  # noqa: ARG002
        return f"no resource within {timeout:g} s: {self._summary()}"

    def _left(self, waiter: Waiter[None, Entry[T]]) -> None:
        if waiter.granted:
            self._give_back(waiter.value)

    def _give_back(self, entry: Entry[T], *, used: bool = True) -> None:
        state = self._state
        if entry not in state.lent:
            return  # closed under its borrower's hands
        if self._phase == "closing":
            self._drop(entry, "closed")
        elif worn := state.worn(entry, now()):
            self._drop(entry, worn)
        elif state.surplus:
            self._drop(entry, "resized")
        elif (waiter := self._line.head()) is not None:
            self._line.grant(waiter, entry)
        elif used:
            state.return_idle(entry)
        else:
            state.return_unused(entry)

    # creating, one at a time

    def _grow(self) -> None:
        if self._creator is None:
            if self._wants_more():
                self._state.creating += 1
                self._creator = self._start("pool creator", self._create_while_wanted)
        elif self._resting is not None and not self._state.lent:
            self._resting.cancel()  # nothing else can serve the waiting tasks

    def _wants_more(self) -> bool:
        state = self._state
        return self._phase == "open" and not state.full and (state.short or bool(self._line))

    async def _create_while_wanted(self) -> None:
        pause = FIRST_BACKOFF
        try:
            while True:
                if await self._make():
                    pause = FIRST_BACKOFF
                elif self._wants_more():
                    await self._rest(pause)
                    pause = min(2 * pause, LAST_BACKOFF)
                if not self._wants_more():
                    return
                self._state.creating += 1
        finally:
            self._creator = None

    async def _rest(self, pause: float) -> None:
        try:
            with anyio.move_on_after(pause * (0.5 + random() / 2)) as self._resting:
                await anyio.sleep_forever()
        finally:
            self._resting = None

    async def _make(self) -> bool:
        entry = None
        start = now()
        try:
            resource = await self._hooks.make()
            state, time = self._state, now()
            entry = Entry(resource, now=time, expires=state.expiry(time), generation=state.generation)
            state.add(entry)
        except Exception as error:  # noqa: BLE001 - raised in the waiting tasks
            self._failed(error)
        finally:
            if entry is None:
                self._state.creating -= 1
                self._grow()
                self._slot_freed()
        if entry is None:
            return False
        self._last_error = None
        self._created += 1
        self._reporter.notice("pool.created", seconds=entry.born - start)
        self._give_back(entry)
        return True

    def _failed(self, error: Exception) -> None:
        self._last_error = error
        self._create_failures += 1
        self._reporter.warn_briefly("pool.create_failed", error=error)
        if not self._state.lent:
            self._line.fail_all(lambda: error)

    # closing, and checking idle resources

    def _slot_is_free(self, entry: Entry[T], reason: str) -> None:  # noqa: ARG002
        self._grow()

    def _look_over_idle(self, time: float) -> None:
        for entry in self._state.take_for_check(time):
            self._state.checking += 1
            self._start("pool checker", self._check_idle, entry)

    async def _check_idle(self, entry: Entry[T]) -> None:
        try:
            sound = await self._passes("check", entry, shield=False)
        finally:
            self._state.checking -= 1
        if sound:
            self._give_back(entry, used=False)
