"""Pools of resources by key, such as connections by host, under limits for each key and for all together.

Within a key it is as in a `Pool`: who finds nothing idle stands in the key's line and gets what comes back or is
created, first come first served. Between keys it is slots that are scarce. When all are in use, whatever has been idle
for longest is closed to make room; when nothing is idle, what comes back is closed if somebody of another key has
waited longer than all of its own. So a busy key cannot starve a quiet one.

A key is forgotten when it has no resource and nobody waits for it. Counting waiters in is what maps of locks get
wrong (LightRAG #3439), and forgetting them late is how they leak (aden-hive #2584).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import count
from math import inf
from types import TracebackType
from typing import Generic, Literal, TypeVar

import anyio
from anyio import current_time

from tenure.errors import PoolClosed, PoolTimeout
from tenure.local._keyed_shelf import KeyedEntry, Shelf, Turns, Want
from tenure.local._line import Waiter
from tenure.local._park import checkpoint
from tenure.local._pool_hooks import bounded, works
from tenure.local._pool_life import PoolLife
from tenure.local._pool_limits import check_callable, check_count, check_timeout, seconds
from tenure.local._pool_news import News
from tenure.observe import Observer
from tenure.upkeep import Job

__all__ = ("KeyedPool", "KeyedPoolStatistics")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
CHECK_AFTER_IDLE = 0.5


@dataclass(frozen=True, slots=True)
class KeyedPoolStatistics:
    """The state of a `KeyedPool` at one moment. Each slot in use is idle, lent, creating or closing."""

    max_per_key: int
    """How many slots a key may use."""
    max_total: int
    """How many slots there are."""
    keys: int
    """How many keys have a resource or a waiter."""
    size: int
    """How many slots are in use."""
    idle: int
    """How many resources wait to be lent."""
    lent: int
    """How many are lent, or are being checked by a borrower."""
    creating: int
    """How many are being created: at most one for each key."""
    closing: int
    """How many are being closed."""
    tasks_waiting: int
    """How many tasks wait."""
    created: int
    """How many were created since the pool was opened."""
    closed: int
    """How many were closed since then."""
    evicted: int
    """How many of those had to make room for another key."""
    create_failures: int
    """How many creations have failed since then."""
    timeouts: int
    """How many times a `timeout` of acquire has run out since then."""


class KeyedPool(PoolLife, Generic[K, T]):
    """Lends resources by key; creates them when they are needed and closes them when they are not.

    ::

        async with KeyedPool(connect, close=Connection.close, max_per_key=2, max_total=100) as pool:
            async with pool.acquire("example.org:443", timeout=10) as connection:
                ...

    `create(key)` makes one, `close(resource)` ends it, and `check(resource)` tells whether it still works (it raises
    or returns False if not). They are async functions, or plain ones that do not block. At most one creation runs for
    a key at a time, in a task of the pool's own; it is cancelled when nobody waits for that key any more. What it
    raises is raised by all who wait for the key, and is not remembered.

    A key never uses more than `max_per_key` slots, and all keys together never more than `max_total`. With
    `evict="oldest"` what has been idle for longest, of whatever key, is closed when another key needs its slot; with
    "never" that key waits. What is lent is never closed. Times are in seconds, and None is never: `idle_timeout`
    closes what nobody has used for so long; `check_timeout`, `create_timeout` and `close_timeout` limit the calls.
    Leaving the pool also waits `close_timeout` for what is still lent, and then closes that too. One that was not
    used for half a second is checked before it is lent.

    `on_evict(key, resource, reason)` is called before a resource is closed while the pool is open, so that whoever
    depends on it can be told why: "idle", "room" (another key needed its slot), "unhealthy" (failed its check) or
    "cancelled" (a body or check was, and nobody knows its state). It may be async; `close_timeout` limits it too.

    `observer` is told of `pool.created` (key, seconds), `pool.create_failed` (key, error), `pool.closed` (key, reason,
    age) and `pool.close_failed` (key, error). The failures go to the log, as warnings of "tenure.local", if there is
    none. Besides the above, reasons are "closed" and "closed while lent".

    ValueError and TypeError for wrong arguments; RuntimeError if it is opened twice or used before.

    Thread safety: none; all on the thread of one loop.
    """

    def __init__(
        self,
        create: Callable[[K], Awaitable[T]],
        *,
        close: Callable[[T], object],
        check: Callable[[T], object] | None = None,
        max_per_key: int = 10,
        max_total: int = 100,
        idle_timeout: float | None = 300.0,
        evict: Literal["oldest", "never"] = "oldest",
        on_evict: Callable[[K, T, str], object] | None = None,
        check_timeout: float | None = 5.0,
        create_timeout: float | None = 30.0,
        close_timeout: float | None = 10.0,
        observer: Observer | None = None,
    ) -> None:
        check_callable("create", create)
        check_callable("close", close)
        check_callable("check", check, optional=True)
        check_callable("on_evict", on_evict, optional=True)
        if evict not in {"oldest", "never"}:
            raise ValueError(f"evict must be 'oldest' or 'never', not {evict!r}")
        super().__init__(seconds("close_timeout", close_timeout))
        self._create = create
        self._close_one = close
        self._check = check
        self._on_evict = on_evict
        self._max_per_key = check_count("max_per_key", max_per_key, least=1)
        self._max_total = check_count("max_total", max_total, least=1)
        self._idle_timeout = seconds("idle_timeout", idle_timeout)
        self._check_timeout = seconds("check_timeout", check_timeout)
        self._create_timeout = seconds("create_timeout", create_timeout)
        self._evicts = evict == "oldest"
        self._news = News(observer)
        self._shelves: dict[K, Shelf[K, T]] = {}
        self._turns: Turns[K, T] = Turns()
        self._numbers = count()
        # the least recently used first
        self._idle: OrderedDict[KeyedEntry[K, T], None] = OrderedDict()
        self._total = self._closing = 0
        self._reaper: Job | None = None
        self._created = self._closed = self._evicted = self._create_failures = self._timeouts = 0

    def acquire(
        self, key: K, *, exclusive: bool = True, timeout: float | None = None
    ) -> AbstractAsyncContextManager[T]:
        """Borrow a resource of `key` for a block: ``async with pool.acquire("example.org") as resource``.

        One that is not `exclusive` is shared: whoever else asks for it so gets the same one. `timeout` in seconds
        limits the wait, the creation and the check included (None: for ever; 0: only what is idle or shared).
        Entering raises `PoolTimeout`, which tells the state of the pool, `PoolClosed`, and what `create` raised.
        Leaving raises nothing of its own; a body that raised an exception has its resource checked, and one that was
        cancelled has it closed, unless it is shared.

        Cancellation: while waiting, nothing is taken and no place is kept. In a check, the resource is closed. Leaving
        is not cancelled.
        """
        if timeout is not None:
            check_timeout(timeout)
        try:
            hash(key)
        except TypeError:
            raise TypeError(f"key must be hashable, not {key!r}") from None
        return _KeyedLoan(self, key, exclusive, timeout)

    def statistics(self) -> KeyedPoolStatistics:
        """Give the state of this moment. Counts its keys one by one.

        Cancellation: not a checkpoint.
        """
        shelves = self._shelves.values()
        return KeyedPoolStatistics(
            max_per_key=self._max_per_key,
            max_total=self._max_total,
            keys=len(shelves),
            size=self._total,
            idle=len(self._idle),
            lent=sum(len(shelf.lent) for shelf in shelves),
            creating=sum(shelf.creator is not None for shelf in shelves),
            closing=self._closing,
            tasks_waiting=sum(len(shelf.line) for shelf in shelves),
            created=self._created,
            closed=self._closed,
            evicted=self._evicted,
            create_failures=self._create_failures,
            timeouts=self._timeouts,
        )

    def __repr__(self) -> str:
        return f"<KeyedPool {self._state}: {self._told()}>"

    def _told(self) -> str:
        return (
            f"{self._total} of {self._max_total} slots in use ({len(self._idle)} idle, {self._closing} being closed) "
            f"by {len(self._shelves)} keys"
        )

    # opening and closing

    def _slots(self) -> int:
        return self._total

    async def _begin(self) -> None:
        pass

    def _start_jobs(self) -> None:
        if self._idle_timeout < inf:
            self._reaper = self._start("keyed pool reaper", self._reap)

    def _begin_closing(self) -> None:
        self._state = "closing"
        if self._reaper is not None:
            self._reaper.cancel()
        for shelf in list(self._shelves.values()):
            if shelf.creator is not None:
                shelf.creator.cancel()
            shelf.shared = None  # nobody joins any more
            shelf.line.fail_all(lambda: PoolClosed("the pool was closed"))
            self._look_at(shelf)
        for entry in list(self._idle):
            self._drop(entry, "closed")

    def _close_lent(self) -> None:
        for shelf in list(self._shelves.values()):
            for entry in list(shelf.lent):
                self._drop(entry, "closed while lent")

    # lending

    def _shelf(self, key: K) -> Shelf[K, T]:
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = Shelf(key, self._left)
        return shelf

    def _take(self, key: K, exclusive: bool) -> KeyedEntry[K, T] | None:
        """Take what can be had at once; one that is due for a check is not shared before that."""
        shelf = self._shelves.get(key)
        if shelf is None or shelf.line:
            return None
        entry = shelf.shared
        if entry is not None and not exclusive:
            entry.users += 1
            return entry
        if not shelf.idle:
            return None
        entry, _ = shelf.idle.popitem()
        del self._idle[entry]
        shelf.lent[entry] = None
        entry.users = 1
        if not exclusive and not self._is_due(entry):
            shelf.shared = entry
        return entry

    def _is_due(self, entry: KeyedEntry[K, T]) -> bool:
        return (
            self._check is not None
            and entry.shelf.shared is not entry
            and current_time() - entry.since >= CHECK_AFTER_IDLE
        )

    async def _obtain(
        self, key: K, exclusive: bool, entry: KeyedEntry[K, T] | None, timeout: float | None
    ) -> KeyedEntry[K, T]:
        """Check the entry that was taken, or wait for another. Cancellation: nothing is taken."""
        if timeout is None:
            return await self._found(key, exclusive, entry) or await self._stand_in_line(key, exclusive)
        # a limit of 0 is none for a check, or nothing that is due for one could ever be had so
        with anyio.move_on_after(timeout or None):
            if found := await self._found(key, exclusive, entry):
                return found
            with anyio.move_on_after(None if timeout else 0):
                return await self._stand_in_line(key, exclusive)
        self._timeouts += 1
        shelf = self._shelves.get(key)
        used = 0 if shelf is None else shelf.slots
        raise PoolTimeout(
            f"{key!r}: no resource within {timeout:g} s: {used} of {self._max_per_key} slots of this key in use; "
            f"{self._told()}"
        )

    async def _found(
        self, key: K, exclusive: bool, entry: KeyedEntry[K, T] | None
    ) -> KeyedEntry[K, T] | None:
        check = self._check
        while entry is not None and check is not None:
            shelf = entry.shelf
            passed = False
            shelf.probing += not exclusive
            try:
                passed = await self._passes(check, entry, shield=False)
            finally:
                shelf.probing -= not exclusive
                if passed and not exclusive:
                    shelf.shared = entry
                    self._share(shelf)
                self._look_at(shelf)
            if passed:
                try:
                    await checkpoint()
                except BaseException:
                    self._give_back(entry)
                    raise
                return entry
            entry = self._take(key, exclusive)
        return None

    async def _stand_in_line(self, key: K, exclusive: bool) -> KeyedEntry[K, T]:
        self._check_open()
        shelf = self._shelf(key)
        waiter = shelf.line.join(Want(next(self._numbers), shelf, exclusive))
        self._look_at(shelf)
        return await shelf.line.wait(waiter)

    def _left(self, waiter: Waiter[Want[K, T], KeyedEntry[K, T]]) -> None:
        shelf = waiter.want.shelf
        if waiter.granted:
            self._give_back(waiter.value)
        self._share(shelf)
        if shelf.creator is not None and not shelf.line:
            shelf.creator.cancel()
        self._look_at(shelf)

    def _give_back(self, entry: KeyedEntry[K, T]) -> None:
        """Hand one that is in order to the next, or keep it, when its last user has left."""
        shelf = entry.shelf
        if entry not in shelf.lent:
            return  # closed under its borrowers' hands
        entry.users -= 1
        if entry.users:
            return
        if shelf.shared is entry:
            shelf.shared = None
        head = shelf.line.head()
        if self._state == "closing":
            self._drop(entry, "closed")
        elif head is None:
            entry.idle_from = current_time()
            del shelf.lent[entry]
            shelf.idle[entry] = self._idle[entry] = None
            self._feed()
        elif self._others_came_before(head.want.number):
            self._drop(entry, "room")
        else:
            self._lend(entry, head)
            self._look_at(shelf)

    def _lend(self, entry: KeyedEntry[K, T], waiter: Waiter[Want[K, T], KeyedEntry[K, T]]) -> None:
        shelf = entry.shelf
        entry.users = 1
        shelf.line.grant(waiter, entry)
        if not waiter.want.exclusive:
            shelf.shared = entry
        self._share(shelf)

    def _share(self, shelf: Shelf[K, T]) -> None:
        """Let in those at the head of the line who are content with what others use."""
        shared = shelf.shared
        while shared is not None and (head := shelf.line.head()) is not None and not head.want.exclusive:
            shared.users += 1
            shelf.line.grant(head, shared)

    async def _come_back(self, entry: KeyedEntry[K, T], exclusive: bool, error: BaseException | None) -> None:
        """Take one back from a body that raised. Cancellation: shielded, but for asyncio's native one."""
        check = self._check
        if not exclusive:
            if error is not None:
                entry.since = -inf  # to be checked when it is lent next
            self._give_back(entry)
        elif not isinstance(error, Exception):
            self._drop(entry, "cancelled")
        elif check is None or await self._passes(check, entry, shield=True):
            self._give_back(entry)

    async def _passes(self, check: Callable[[T], object], entry: KeyedEntry[K, T], *, shield: bool) -> bool:
        sound, reason = False, "cancelled"
        try:
            sound = await works(self._check_timeout, check, entry.resource, shield=shield)
            reason = "unhealthy"
        finally:
            if sound:
                entry.since = current_time()
            else:
                self._drop(entry, reason)
        return sound

    # slots

    def _look_at(self, shelf: Shelf[K, T]) -> None:
        """Let a shelf, of which something has changed, ask for a slot, or forget it."""
        if self._state == "open" and shelf.wants_a_slot(self._max_per_key):
            head = shelf.line.head()
            assert head is not None
            self._turns.want(shelf, head.want.number)
        else:
            self._turns.forget(shelf)
            if shelf.empty and self._shelves.get(shelf.key) is shelf:
                del self._shelves[shelf.key]
        self._feed()

    def _feed(self) -> None:
        """Give the free slots to those whose turn it is, and make room for the rest if something is idle."""
        while self._state == "open" and (turn := self._turns.first()) is not None:
            _, shelf = turn
            if self._total < self._max_total:
                self._turns.forget(shelf)
                self._total += 1
                shelf.creator = self._start("keyed pool creator", self._make, shelf)
            elif self._evicts and self._idle and self._closing < len(self._turns):
                self._drop(next(iter(self._idle)), "room")
            else:
                return

    def _others_came_before(self, number: int) -> bool:
        turn = self._turns.first()
        return turn is not None and turn[0] < number and self._evicts and self._closing < len(self._turns)

    async def _make(self, shelf: Shelf[K, T]) -> None:
        entry = None
        start = current_time()
        try:
            resource = await bounded("create", self._create_timeout, self._create, shelf.key)
            entry = KeyedEntry(shelf, resource, current_time())
        except Exception as error:  # noqa: BLE001 - handed to those who wait
            failure = error
            self._create_failures += 1
            self._news.warn("pool.create_failed", key=shelf.key, error=error)
            shelf.line.fail_all(lambda: failure)
        finally:
            shelf.creator = None
            if entry is None:
                self._total -= 1
                self._look_at(shelf)
                self._slot_freed()
        if entry is not None:
            self._created += 1
            self._news.tell("pool.created", key=shelf.key, seconds=entry.born - start)
            entry.users = 1
            shelf.lent[entry] = None
            self._give_back(entry)

    def _drop(self, entry: KeyedEntry[K, T], reason: str) -> None:
        shelf = entry.shelf
        if entry in shelf.lent:
            del shelf.lent[entry]
        elif entry in shelf.idle:
            del shelf.idle[entry], self._idle[entry]
        else:
            return  # closed under its borrowers' hands
        if shelf.shared is entry:
            shelf.shared = None
        shelf.closing += 1
        self._closing += 1
        self._start("keyed pool closer", self._end, entry, reason)

    async def _end(self, entry: KeyedEntry[K, T], reason: str) -> None:
        shelf = entry.shelf
        try:
            if self._on_evict is not None and not reason.startswith("closed"):
                await bounded(
                    "on_evict", self._close_timeout, self._on_evict, shelf.key, entry.resource, reason
                )
        except Exception as error:  # noqa: BLE001 - it is closed all the same
            self._news.warn("pool.on_evict_failed", key=shelf.key, error=error)
        try:
            await bounded("close", self._close_timeout, self._close_one, entry.resource)
        except Exception as error:  # noqa: BLE001 - it is gone all the same
            self._news.warn("pool.close_failed", key=shelf.key, error=error)
        finally:
            self._closed += 1
            self._evicted += reason == "room"
            shelf.closing -= 1
            self._closing -= 1
            self._total -= 1
            self._look_at(shelf)
            self._slot_freed()
        self._news.tell("pool.closed", key=shelf.key, reason=reason, age=current_time() - entry.born)

    async def _reap(self) -> None:
        while True:
            now = current_time()
            due = now + self._idle_timeout
            for entry in list(self._idle):
                if now < entry.idle_from + self._idle_timeout:
                    due = entry.idle_from + self._idle_timeout
                    break
                self._drop(entry, "idle")
            await anyio.sleep_until(due)


class _KeyedLoan(AbstractAsyncContextManager[T], Generic[K, T]):
    __slots__ = ("_entered", "_entry", "_exclusive", "_key", "_pool", "_timeout")

    def __init__(self, pool: KeyedPool[K, T], key: K, exclusive: bool, timeout: float | None) -> None:
        self._pool = pool
        self._key = key
        self._exclusive = exclusive
        self._timeout = timeout
        self._entered = False
        self._entry: KeyedEntry[K, T] | None = None

    async def __aenter__(self) -> T:
        if self._entered:
            raise RuntimeError("what acquire() gives is for one block: call it again for another")
        self._entered = True
        pool = self._pool
        entry = pool._take(self._key, self._exclusive)
        if entry is None or pool._is_due(entry):
            entry = await pool._obtain(self._key, self._exclusive, entry, self._timeout)
        else:
            try:
                await checkpoint()
            except BaseException:
                pool._give_back(entry)
                raise
        self._entry = entry
        return entry.resource

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry, self._entry = self._entry, None
        if entry is None:
            raise RuntimeError("nothing was borrowed by this block, or it was left already")
        if error is None:
            entry.since = current_time()
            self._pool._give_back(entry)
        else:
            await self._pool._come_back(entry, self._exclusive, error)
