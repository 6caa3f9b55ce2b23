"""A pool of resources that are dear to make: connections, sessions, browsers.

Who needs one and finds none idle stands in the line. Whatever comes free, from a borrower or newly made, goes to
the head of the line in the same step. So waiters wait for resources, not for slots, and nobody is bound to the
creation that it caused: creations run one at a time in a job of the pool's own, as in HikariCP's connection adder,
and go on when their waiter has left.

Semantics as in HikariCP where not said otherwise: most recently used first, a check on borrowing that is skipped
after recent use, lifetimes with jitter. Lifetimes are tested on return as well (bb8 #224, HikariCP #2014).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import inf
from random import random
from types import TracebackType
from typing import Generic, TypeVar

import anyio
from anyio import CancelScope, current_time

from tenure.errors import BulkheadFull, PoolClosed, PoolTimeout
from tenure.local._line import Line, Waiter
from tenure.local._park import checkpoint
from tenure.local._pool_entry import Borrower, Entry, Leak
from tenure.local._pool_hooks import bounded, works
from tenure.local._pool_life import PoolLife
from tenure.local._pool_limits import check_callable, check_count, check_timeout, seconds
from tenure.local._pool_news import News
from tenure.local._pool_stock import Stock
from tenure.observe import Observer
from tenure.upkeep import Job

__all__ = ("Pool", "PoolStatistics")

T = TypeVar("T")
FIRST_BACKOFF, LAST_BACKOFF = 0.1, 5.0


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """The state of a `Pool` at one moment. Each slot in use is in one of the states idle, lent, creating, closing."""

    min_size: int
    """How many it keeps."""
    max_size: int
    """How many slots there are."""
    size: int
    """How many slots are in use."""
    idle: int
    """How many wait to be lent."""
    lent: int
    """How many are lent, or are being checked or reset by a borrower."""
    creating: int
    """How many are being created: none or one."""
    closing: int
    """How many are being closed."""
    tasks_waiting: int
    """How many tasks stand in the line."""
    created: int
    """How many were created since the pool was opened."""
    closed: int
    """How many were closed since then."""
    create_failures: int
    """How many creations have failed since then."""
    timeouts: int
    """How many times a `timeout` of acquire has run out since then."""
    leaked: int
    """How many are lent for longer than `leak_after`."""


class Pool(PoolLife, Generic[T]):
    """Lends resources, each to one borrower at a time, first come first served.

    ::

        async with Pool(connect, close=Connection.close, max_size=5) as pool:
            async with pool.acquire(timeout=10) as connection:
                ...

    `create()` makes one, `close(resource)` ends it, `check(resource)` tells whether it still works (it raises or
    returns False if not), `reset(resource)` cleans it up when it comes back. They are async functions, or plain ones
    that do not block; `create` and `close` run in tasks of the pool's own, `check` and `reset` in the borrower's.

    `min_size` is how many are kept at least: entering the pool waits for them, until one creation has failed (which
    is not raised, but tried again in the background). `max_size` is how many slots there are; `max_waiting` how many
    tasks may stand in line (None: any number). All times are in seconds, and None is never:

    - `idle_timeout`: closed when nobody has needed it for so long and there are more than `min_size`;
    - `max_lifetime`: closed when it is so old (up to 2.5 % sooner, so that not all end at once), but never while lent;
    - `check_timeout`, `create_timeout`, `close_timeout`: how long a call of check or reset, of create, of close may
      take. Leaving the pool also waits `close_timeout` for what is still lent, and then closes that too;
    - `check_after_idle`: one that was used or checked within this time is lent without a check;
    - `check_every`: one that is idle is checked so often, and replaced if it fails;
    - `leak_after`: one that is lent for longer is reported, with the place where it was taken.

    A body that raises an exception has its resource reset, or checked if there is no `reset`; one that was cancelled,
    or was left by any other BaseException, has it reset, or closed if there is no `reset`. What fails that is closed.

    An error of `create` is raised by everybody who waits, if nothing is lent that could come back for them; otherwise
    they wait on, while creating is tried again with growing pauses (0.1 to 5 s), and `PoolTimeout` has the error as
    its cause.

    `observer` is told of `pool.created` (seconds), `pool.create_failed` (error), `pool.closed` (reason, age),
    `pool.close_failed` (error) and `pool.leak` (task, seconds, where). The failures and leaks go to the log, as
    warnings of "tenure.local", if there is none. Reasons are "idle", "lifetime", "unhealthy", "reset failed",
    "cancelled", "reloaded", "closed" and "closed while lent".

    ValueError and TypeError for wrong arguments; RuntimeError if it is opened twice or used before.

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
        idle_timeout: float | None = 600.0,
        max_lifetime: float | None = 1800.0,
        check_timeout: float | None = 5.0,
        create_timeout: float | None = 30.0,
        close_timeout: float | None = 10.0,
        check_after_idle: float = 0.5,
        check_every: float | None = 120.0,
        leak_after: float | None = None,
        observer: Observer | None = None,
    ) -> None:
        check_callable("create", create)
        check_callable("close", close)
        check_callable("check", check, optional=True)
        check_callable("reset", reset, optional=True)
        check_count("max_size", max_size, least=1)
        if check_count("min_size", min_size, least=0) > max_size:
            raise ValueError(f"min_size must be at most the max_size of {max_size}, not {min_size!r}")
        if max_waiting is not None:
            check_count("max_waiting", max_waiting, least=0)
        super().__init__(seconds("close_timeout", close_timeout))
        self._create = create
        self._close_one = close
        self._check = check
        self._reset = reset
        self._max_waiting = max_waiting
        self._check_timeout = seconds("check_timeout", check_timeout)
        self._create_timeout = seconds("create_timeout", create_timeout)
        check_after = seconds("check_after_idle", check_after_idle, zero=True)
        self._check_after = inf if check is None else check_after
        check_period = seconds("check_every", check_every)
        self._stock: Stock[T] = Stock(
            min_size,
            max_size,
            idle_timeout=seconds("idle_timeout", idle_timeout),
            max_lifetime=seconds("max_lifetime", max_lifetime),
            check_every=inf if check is None else check_period,
            leak_after=seconds("leak_after", leak_after),
        )
        self._notes_borrowers = leak_after is not None
        self._news = News(observer)
        self._line: Line[None, Entry[T]] = Line(self._left)
        self._reaper: Job | None = None
        self._creator: Job | None = None
        self._resting: CancelScope | None = None
        self._last_error: Exception | None = None
        self._created = self._closed = self._create_failures = self._timeouts = 0

    def acquire(self, timeout: float | None = None) -> AbstractAsyncContextManager[T]:
        """Borrow a resource for a block: ``async with pool.acquire(timeout=10) as resource``.

        `timeout` in seconds limits the wait for the resource, its creation and check included (None: for ever; 0: do
        not wait in line). Entering raises `PoolTimeout`, which tells the state of the pool, `PoolClosed`,
        `BulkheadFull` if `max_waiting` tasks wait already, and what `create` raised if nothing is lent. Leaving raises
        nothing of its own, and waits only for `reset` and, after an exception, for `check`.

        Cancellation: while waiting, nothing is taken and no place is kept; a creation under way goes on, and what it
        makes goes to the next. In a check, the resource is closed. In the body, see `Pool`. Leaving is not cancelled.
        """
        if timeout is not None:
            check_timeout(timeout)
        return _Loan(self, timeout)

    def reload(self) -> None:
        """Replace everything: close now what is idle, and what is lent when it comes back. Goes on lending.

        Cancellation: not a checkpoint.
        """
        self._check_open()
        self._stock.generation += 1
        for entry in list(self._stock.idle):
            self._drop(entry, "reloaded")
        self._grow()

    def leaks(self) -> tuple[Leak, ...]:
        """Tell what has been lent for longer than `leak_after`, and to whom.

        Cancellation: not a checkpoint.
        """
        now = current_time()
        return tuple(
            entry.borrower.leak(now - entry.lent_at)
            for entry in self._stock.leaking(now)
            if entry.borrower is not None
        )

    def statistics(self) -> PoolStatistics:
        """Give the state of this moment.

        Cancellation: not a checkpoint.
        """
        stock = self._stock
        return PoolStatistics(
            min_size=stock.min_size,
            max_size=stock.max_size,
            size=stock.size,
            idle=len(stock.idle),
            lent=len(stock.lent),
            creating=stock.creating,
            closing=stock.closing,
            tasks_waiting=len(self._line),
            created=self._created,
            closed=self._closed,
            create_failures=self._create_failures,
            timeouts=self._timeouts,
            leaked=len(stock.leaking(current_time())) if self._notes_borrowers else 0,
        )

    def __repr__(self) -> str:
        return f"<Pool {self._state}: {self._told()}>"

    def _told(self) -> str:
        stock = self._stock
        return (
            f"{stock.size} of {stock.max_size} slots in use ({len(stock.lent)} lent, {len(stock.idle)} idle, "
            f"{stock.creating} being created, {stock.closing} being closed), {len(self._line)} waiting"
        )

    # opening and closing

    def _slots(self) -> int:
        return self._stock.size

    async def _begin(self) -> None:
        while self._stock.short:
            self._stock.creating += 1
            if not await self._make():
                return

    def _start_jobs(self) -> None:
        self._grow()
        if self._stock.next_look(0) < inf:
            self._reaper = self._start("pool reaper", self._reap)

    def _begin_closing(self) -> None:
        self._state = "closing"
        for job in (self._reaper, self._creator):
            if job is not None:
                job.cancel()
        self._line.fail_all(lambda: PoolClosed("the pool was closed"))
        for entry in list(self._stock.idle):
            self._drop(entry, "closed")

    def _close_lent(self) -> None:
        for entry in list(self._stock.lent):
            self._drop(entry, "closed while lent")

    # lending

    def _take(self) -> Entry[T] | None:
        """Take an idle one that is not too old."""
        stock = self._stock
        while stock.idle:
            now = current_time()
            entry = stock.take(now)
            worn = stock.worn(entry, now)
            if worn is None:
                return entry
            self._drop(entry, worn)
        return None

    def _is_due(self, entry: Entry[T]) -> bool:
        """Tell whether one that was just taken has to be checked."""
        return entry.lent_at - entry.since >= self._check_after

    async def _obtain(self, entry: Entry[T] | None, timeout: float | None) -> Entry[T]:
        """Check the entry that was taken, or wait for another.

        Cancellation: nothing is taken.
        """
        if timeout is None:
            return await self._found(entry) or await self._stand_in_line()
        # a limit of 0 is none for a check, or nothing that is due for one could ever be had so
        with anyio.move_on_after(timeout or None):
            if found := await self._found(entry):
                return found
            with anyio.move_on_after(None if timeout else 0):
                return await self._stand_in_line()
        self._timeouts += 1
        raise PoolTimeout(f"no resource within {timeout:g} s: {self._told()}") from self._last_error

    def _note_borrower(self, entry: Entry[T]) -> None:
        """Remember who has it."""
        entry.reported = False
        entry.borrower = Borrower(2)

    async def _found(self, entry: Entry[T] | None) -> Entry[T] | None:
        check = self._check
        while entry is not None and check is not None:
            if await self._passes(check, entry, "unhealthy", shield=False):
                try:
                    await checkpoint()
                except BaseException:
                    self._give_back(entry, current_time())
                    raise
                return entry
            entry = self._take()
        return None

    async def _stand_in_line(self) -> Entry[T]:
        self._check_open()
        line, most = self._line, self._max_waiting
        if most is not None and len(line) >= most and sum(1 for _ in line) >= most:
            raise BulkheadFull(
                f"{most} tasks wait already: {self._told()}", limit=self._stock.max_size, waiting=most
            )
        waiter = line.join(None)
        self._grow()
        return await line.wait(waiter)

    def _left(self, waiter: Waiter[None, Entry[T]]) -> None:
        if waiter.granted:
            self._give_back(waiter.value, current_time())

    def _give_back(self, entry: Entry[T], now: float, *, used: bool = True) -> None:
        """Hand one that is in order to the next, or keep it."""
        stock = self._stock
        if entry not in stock.lent:
            return  # closed under its borrower's hands
        entry.borrower = None
        if self._state == "closing":
            self._drop(entry, "closed")
        elif worn := stock.worn(entry, now):
            self._drop(entry, worn)
        elif (waiter := self._line.head()) is not None:
            entry.lent_at = now
            self._line.grant(waiter, entry)
        elif used:
            stock.shelve(entry)
        else:
            stock.shelve_unused(entry)

    def _come_back(self, entry: Entry[T]) -> None:
        """Take back one that was used without a fault and needs no reset."""
        entry.since = entry.idle_from = now = current_time()
        self._give_back(entry, now)

    async def _come_back_from(self, entry: Entry[T], error: BaseException | None) -> None:
        """Take back one that needs a reset, or that was used by a body that raised.

        Cancellation: shielded, but for asyncio's native one, which has the resource closed.
        """
        careful = self._reset
        if error is not None and careful is None:
            if not isinstance(error, Exception):
                self._drop(entry, "cancelled")
                return
            careful = self._check
        if isinstance(error, GeneratorExit):  # one must not await any more
            self._drop(entry, "cancelled")
        elif careful is None or self._state == "closing":
            self._come_back(entry)
        else:
            otherwise = "reset failed" if careful is self._reset else "unhealthy"
            if await self._passes(careful, entry, otherwise, shield=True):
                self._come_back(entry)

    async def _passes(
        self, examine: Callable[[T], object], entry: Entry[T], otherwise: str, *, shield: bool
    ) -> bool:
        sound, reason = False, "cancelled"
        try:
            sound = await works(self._check_timeout, examine, entry.resource, shield=shield)
            reason = otherwise
        finally:
            if sound:
                entry.since = current_time()
            else:
                self._drop(entry, reason)
        return sound

    # creating, one at a time

    def _grow(self) -> None:
        if self._creator is None:
            if self._wants_more():
                self._stock.creating += 1
                self._creator = self._start("pool creator", self._create_while_wanted)
        elif self._resting is not None and not self._stock.lent:
            self._resting.cancel()  # nothing else can serve whoever waits

    def _wants_more(self) -> bool:
        stock = self._stock
        return self._state == "open" and not stock.full and (stock.short or bool(self._line))

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
                self._stock.creating += 1
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
        start = current_time()
        try:
            resource = await bounded("create", self._create_timeout, self._create)
            entry = self._stock.add(resource, current_time())
        except Exception as error:  # noqa: BLE001 - handed to those who wait
            self._failed(error)
        finally:
            if entry is None:
                self._stock.creating -= 1
                self._grow()
                self._slot_freed()
        if entry is None:
            return False
        self._last_error = None
        self._created += 1
        self._news.tell("pool.created", seconds=entry.born - start)
        self._give_back(entry, current_time())
        return True

    def _failed(self, error: Exception) -> None:
        self._last_error = error
        self._create_failures += 1
        self._news.warn("pool.create_failed", error=error)
        if not self._stock.lent:
            self._line.fail_all(lambda: error)

    # closing, many at a time

    def _drop(self, entry: Entry[T], reason: str) -> None:
        if entry not in self._stock.lent and entry not in self._stock.idle:
            return  # closed under its borrower's hands
        self._stock.drop(entry)
        self._start("pool closer", self._end, entry, reason)

    async def _end(self, entry: Entry[T], reason: str) -> None:
        try:
            await bounded("close", self._close_timeout, self._close_one, entry.resource)
        except Exception as error:  # noqa: BLE001 - it is gone all the same
            self._news.warn("pool.close_failed", error=error)
        finally:
            self._closed += 1
            self._stock.closing -= 1
            self._grow()
            self._slot_freed()
        self._news.tell("pool.closed", reason=reason, age=current_time() - entry.born)

    async def _check_idle(self, entry: Entry[T]) -> None:
        assert self._check is not None
        if await self._passes(self._check, entry, "unhealthy", shield=False):
            self._give_back(entry, current_time(), used=False)

    async def _reap(self) -> None:
        while True:
            now = current_time()
            for entry, reason in self._stock.overdue(now):
                self._drop(entry, reason)
            for entry in self._stock.take_for_check(now):
                self._start("pool checker", self._check_idle, entry)
            for entry in self._stock.leaking(now):
                if entry.borrower is not None and not entry.reported:
                    entry.reported = True
                    leak = entry.borrower.leak(now - entry.lent_at)
                    self._news.warn("pool.leak", task=leak.task, seconds=leak.seconds, where=leak.where)
            await anyio.sleep_until(self._stock.next_look(now))


class _Loan(AbstractAsyncContextManager[T]):
    __slots__ = ("_entered", "_entry", "_pool", "_timeout")

    def __init__(self, pool: Pool[T], timeout: float | None) -> None:
        self._pool = pool
        self._timeout = timeout
        self._entered = False
        self._entry: Entry[T] | None = None

    async def __aenter__(self) -> T:
        if self._entered:
            raise RuntimeError("what acquire() gives is for one block: call it again for another")
        self._entered = True
        pool = self._pool
        entry = pool._take()
        if entry is None or pool._is_due(entry):
            entry = await pool._obtain(entry, self._timeout)
        else:
            try:
                await checkpoint()
            except BaseException:
                pool._give_back(entry, current_time())
                raise
        self._entry = entry
        if pool._notes_borrowers:
            pool._note_borrower(entry)
        return entry.resource

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry, self._entry = self._entry, None
        if entry is None:
            raise RuntimeError("nothing was borrowed by this block, or it was left already")
        pool = self._pool
        if error is None and pool._reset is None:
            pool._come_back(entry)
        else:
            await pool._come_back_from(entry, error)
