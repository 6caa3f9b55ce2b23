"""Pools of resources by key, such as connections by host, under limits for each key and for all together.

Within a key it is as in a `Pool`: who finds nothing idle stands in the key's line and gets what comes back or is
created, first come first served. Between keys it is slots that are scarce. When all are in use, whatever has been idle
for longest is closed to make room; when nothing is idle, what comes back is closed if somebody of another key has
waited longer than all of its own. So a busy key cannot starve a quiet one.

A key is forgotten when it has no resource and nobody waits for it. Counting waiters in is what maps of locks get
wrong (LightRAG #3439), and forgetting them late is how they leak (aden-hive #2584).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Generic, Literal, TypeVar

from tenure.errors import PoolClosed, PoolTimeout
from tenure.local._keyed_shelf import Asked, KeyedEntry, Shelf, Turns, Want
from tenure.local._lending import Lending, Loan
from tenure.local._line import Waiter
from tenure.local._news import News
from tenure.local._park import now
from tenure.local._pool_hooks import Hooks, bounded
from tenure.local._pool_limits import check_callable, check_count, check_timeout, seconds
from tenure.local._pool_stock import Stock
from tenure.observe import Observer

__all__ = ("KeyedPool", "KeyedPoolStatistics")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


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
    """How many are lent, or are being checked or reset by a borrower."""
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
    refused: int
    """How many tasks were refused since then because `max_waiting` others waited already."""
    leaked: int
    """How many loans have lasted longer than `leak_after`."""


class KeyedPool(Lending[T, Asked[K], KeyedEntry[K, T]], Generic[K, T]):
    """Lends resources by key; creates them when they are needed and closes them when they are not.

    ::

        async with KeyedPool(connect, close=Connection.close, max_per_key=2, max_total=100) as pool:
            async with pool.acquire("example.org:443", timeout=10) as connection:
                ...

    `create(key)` makes one, `close(resource)` ends it, `check(resource)` tells whether it still works (it raises or
    returns False if not), and `reset(resource)` cleans it up when it comes back. They are async functions, or plain
    ones that do not block. At most one creation runs for a key at a time, in a task of the pool's own; it is cancelled
    when nobody waits for that key any more. What it raises is raised by all who wait for the key, and is not
    remembered.

    A key never uses more than `max_per_key` slots, and all keys together never more than `max_total`. With
    `evict="oldest"` what has been idle for longest, of whatever key, is closed when another key needs its slot; with
    "never" that key waits. What is lent is never closed. `max_waiting` is how many tasks may wait, for each key, until
    somebody gives a resource back (None: any number); whoever can have an idle one, one to share, or one that is yet
    to be created, is not counted. Times are in seconds, and None is never:

    - `idle_timeout`: closed when nobody has used it for so long;
    - `max_lifetime`: closed when it is so old (up to 2.5 % sooner, so that not all end at once), but never while lent;
      nobody else joins those who share such a one;
    - `check_timeout`, `create_timeout`, `close_timeout`: how long a call of check or reset, of create, of close may
      take. Leaving the pool also waits `close_timeout` for what is still lent, and then closes that too;
    - `check_after_idle`: one that was used or checked within this time is lent without a check;
    - `leak_after`: one that is lent for longer is reported, with the place where it was taken.

    A body that raises an exception has its resource reset, or checked if there is no `reset`; one that was cancelled
    has it reset, or closed if there is no `reset`. What fails that is closed. A shared resource is reset when the last
    of its users has left; without `reset` it is kept, and checked before it is lent again if a body raised.

    `on_evict(key, resource, reason)` is called before a resource is closed while the pool is open, so that whoever
    depends on it can be told why: "idle", "lifetime", "room" (another key needed its slot), "unhealthy" (failed its
    check), "reset failed" or "cancelled" (a body, check or reset was, and nobody knows its state). It may be async;
    `close_timeout` limits it too.

    What a function raises is logged with its traceback, as a warning of the logger "tenure". `observer` gets the events
    `pool.created` (key, seconds), `pool.closed` (key, reason, age), `pool.create_failed`, `pool.check_failed`,
    `pool.reset_failed`, `pool.close_failed` and `pool.on_evict_failed` (key, error), and `pool.leak` (key, task,
    seconds, where), which is logged too. Besides the above, reasons are "closed" and "closed while lent".

    ValueError and TypeError for wrong arguments; RuntimeError if it is opened twice or used before.

    Thread safety: none; all on the thread of one loop.
    """

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
        idle_timeout: float | None = 300.0,
        max_lifetime: float | None = 1800.0,
        evict: Literal["oldest", "never"] = "oldest",
        on_evict: Callable[[K, T, str], object] | None = None,
        check_timeout: float | None = 5.0,
        create_timeout: float | None = 30.0,
        close_timeout: float | None = 10.0,
        check_after_idle: float = 0.5,
        leak_after: float | None = None,
        observer: Observer | None = None,
    ) -> None:
        check_callable("on_evict", on_evict, optional=True)
        if evict not in {"oldest", "never"}:
            raise ValueError(f"evict must be 'oldest' or 'never', not {evict!r}")
        news = News(observer)
        hooks = Hooks(
            create,
            close=close,
            check=check,
            reset=reset,
            check_timeout=check_timeout,
            create_timeout=create_timeout,
            close_timeout=close_timeout,
            check_after_idle=check_after_idle,
            news=news,
        )
        # idle in the order of their use, of whatever key
        stock: Stock[KeyedEntry[K, T]] = Stock(
            0,
            check_count("max_total", max_total, least=1),
            idle_timeout=seconds("idle_timeout", idle_timeout),
            max_lifetime=seconds("max_lifetime", max_lifetime),
            check_every=inf,
        )
        super().__init__(hooks, stock, news, max_waiting=max_waiting, leak_after=leak_after)
        self._max_per_key = check_count("max_per_key", max_per_key, least=1)
        self._evicts = evict == "oldest"
        self._on_evict = on_evict
        self._shelves: dict[K, Shelf[K, T]] = {}
        self._turns: Turns[K, T] = Turns()
        self._numbers = count()
        self._evicted = 0

    def acquire(
        self, key: K, *, exclusive: bool = True, timeout: float | None = None
    ) -> AbstractAsyncContextManager[T]:
        """Borrow a resource of `key` for a block: ``async with pool.acquire("example.org") as resource``.

        One that is not `exclusive` is shared: whoever else asks for it so gets the same one. `timeout` in seconds
        limits the wait, the creation and the check included (None: for ever; 0: only what is idle or shared).
        Entering raises `PoolTimeout`, which tells the state of the pool, `PoolClosed`, `BulkheadFull` if `max_waiting`
        tasks wait already, and what `create` raised. Leaving raises nothing of its own, and waits only for `reset` and,
        after an exception, for `check`.

        Cancellation: while waiting, nothing is taken and no place is kept. In a check, the resource is closed. In the
        body, see `KeyedPool`. Leaving is not cancelled.
        """
        if timeout is not None:
            check_timeout(timeout)
        try:
            hash(key)
        except TypeError:
            raise TypeError(f"key must be hashable, not {key!r}") from None
        return Loan(self, Asked(key, exclusive), timeout)

    def statistics(self) -> KeyedPoolStatistics:
        """Give the state of this moment. Counts its keys one by one.

        Cancellation: not a checkpoint.
        """
        stock = self._stock
        return KeyedPoolStatistics(
            max_per_key=self._max_per_key,
            max_total=stock.max_size,
            keys=len(self._shelves),
            size=stock.size,
            idle=len(stock.idle),
            lent=len(stock.lent),
            creating=stock.creating,
            closing=stock.closing,
            tasks_waiting=sum(len(shelf.line) for shelf in self._shelves.values()),
            created=self._created,
            closed=self._closed,
            evicted=self._evicted,
            create_failures=self._create_failures,
            timeouts=self._timeouts,
            refused=self._refused,
            leaked=self._loans.leaked(),
        )

    def __repr__(self) -> str:
        return f"<KeyedPool {self._state}: {self._told()}>"

    def _told(self) -> str:
        stock = self._stock
        return (
            f"{stock.size} of {stock.max_size} slots in use ({len(stock.idle)} idle, {stock.closing} being closed) "
            f"by {len(self._shelves)} keys"
        )

    # opening and closing

    async def _begin(self) -> None:
        pass

    def _begin_closing(self) -> None:
        super()._begin_closing()
        for shelf in list(self._shelves.values()):
            if shelf.creator is not None:
                shelf.creator.cancel()
            shelf.shared = None  # nobody joins any more
            shelf.line.fail_all(lambda: PoolClosed("the pool was closed"))
            self._look_at(shelf)
        for entry in list(self._stock.idle):
            self._drop(entry, "closed")

    # lending

    def _shelf(self, key: K) -> Shelf[K, T]:
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = Shelf(key, self._left)
        return shelf

    def _take(self, want: Asked[K]) -> KeyedEntry[K, T] | None:
        """Lend what can be had at once; one that is due for a check is not shared before that."""
        shelf = self._shelves.get(want.key)
        if shelf is None or shelf.line:
            return None
        time = now()
        if not want.exclusive and (entry := self._shared(shelf, time)) is not None:
            entry.users += 1
            return entry
        while shelf.idle:
            entry = next(reversed(shelf.idle))
            if worn := self._stock.worn(entry, time):
                self._drop(entry, worn)
                continue
            del shelf.idle[entry]
            shelf.lent[entry] = None
            self._stock.lend(entry, time)
            entry.users = 1
            if not want.exclusive and not self._is_due(entry):
                shelf.shared = entry
            return entry
        return None

    def _shared(self, shelf: Shelf[K, T], time: float) -> KeyedEntry[K, T] | None:
        """Return the one that others may share, unless it is too old for that."""
        if shelf.shared is not None and self._stock.worn(shelf.shared, time):
            shelf.shared = None  # its users go on with it
        return shelf.shared

    def _is_due(self, entry: KeyedEntry[K, T]) -> bool:
        return entry.shelf.shared is not entry and super()._is_due(entry)

    def _timed_out(self, want: Asked[K], timeout: float) -> PoolTimeout:
        return PoolTimeout(f"{want.key!r}: no resource within {timeout:g} s: {self._told_of(want.key)}")

    def _told_of(self, key: K) -> str:
        shelf = self._shelves.get(key)
        used = 0 if shelf is None else shelf.slots
        return f"{used} of {self._max_per_key} slots of this key in use; {self._told()}"

    async def _proved(self, want: Asked[K], entry: KeyedEntry[K, T]) -> bool:
        shelf, share = entry.shelf, not want.exclusive
        passed = False
        shelf.probing += share
        try:
            passed = await self._passes("check", entry, shield=False)
        finally:
            shelf.probing -= share
            if passed and share:
                shelf.shared = entry
                self._share(shelf)
            self._look_at(shelf)
        return passed

    async def _stand_in_line(self, want: Asked[K]) -> KeyedEntry[K, T]:
        self._check_open()
        shelf = self._shelf(want.key)
        if self._is_crowded(shelf, want.exclusive):
            told = f"{want.key!r}: {self._told_of(want.key)}"
            self._look_at(shelf)
            await self._refuse(self._max_per_key, told)
        waiter = shelf.line.join(Want(next(self._numbers), shelf, want.exclusive))
        self._look_at(shelf)
        return await shelf.line.wait(waiter)

    def _is_crowded(self, shelf: Shelf[K, T], exclusive: bool) -> bool:
        """Whether `max_waiting` tasks wait for this key until somebody gives something back."""
        if self._max_waiting is None:
            return False
        stock = self._stock
        # what is not lent and not for others: it is free, or comes free without a return
        free = stock.max_size - len(stock.lent) - stock.creating - len(self._turns)
        free += (shelf.creator is not None) + (shelf in self._turns)
        if not self._evicts:
            free -= len(stock.idle)
        return shelf.held_up(min(free, self._max_per_key - len(shelf.lent)), exclusive) >= self._max_waiting

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
        time = now()
        head = shelf.line.head()
        if self._state == "closing":
            self._drop(entry, "closed")
        elif worn := self._stock.worn(entry, time):
            self._drop(entry, worn)
        elif head is None:
            entry.idle_from = time
            del shelf.lent[entry]
            shelf.idle[entry] = None
            self._stock.shelve(entry)
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
        shared = self._shared(shelf, now())
        while shared is not None and (head := shelf.line.head()) is not None and not head.want.exclusive:
            shared.users += 1
            shelf.line.grant(head, shared)

    async def _come_back_from(
        self, want: Asked[K], entry: KeyedEntry[K, T], error: BaseException | None
    ) -> None:
        if want.exclusive:
            await super()._come_back_from(want, entry, error)
            return
        if error is not None:
            entry.since = -inf  # to be checked when it is lent next
        if entry.users > 1 or self._hooks.reset is None or entry not in entry.shelf.lent:
            self._give_back(entry)
            return
        if entry.shelf.shared is entry:
            entry.shelf.shared = None  # nobody joins in a reset
        await super()._come_back_from(want, entry, error)

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
            if not self._stock.full:
                self._turns.forget(shelf)
                self._stock.creating += 1
                shelf.creator = self._start("keyed pool creator", self._make, shelf)
            elif self._evicts and self._stock.idle and self._stock.closing < len(self._turns):
                self._drop(next(iter(self._stock.idle)), "room")
            else:
                return

    def _others_came_before(self, number: int) -> bool:
        turn = self._turns.first()
        return (
            turn is not None and turn[0] < number and self._evicts and self._stock.closing < len(self._turns)
        )

    async def _make(self, shelf: Shelf[K, T]) -> None:
        entry = None
        stock, start = self._stock, now()
        try:
            resource = await self._hooks.make(shelf.key)
            time = now()
            entry = KeyedEntry(shelf, resource, now=time, expires=stock.expiry(time))
        except Exception as error:  # noqa: BLE001 - handed to those who wait
            self._failed(shelf, error)
        finally:
            shelf.creator = None
            if entry is None:
                stock.creating -= 1
                self._look_at(shelf)
                self._slot_freed()
        if entry is not None:
            self._created += 1
            stock.add(entry)
            shelf.lent[entry] = None
            self._news.tell("pool.created", key=shelf.key, seconds=entry.born - start)
            self._give_back(entry)

    def _failed(self, shelf: Shelf[K, T], error: Exception) -> None:
        self._create_failures += 1
        self._news.failed("pool.create_failed", error, key=shelf.key)
        shelf.line.fail_all(lambda: error)

    # closing

    def _drop(self, entry: KeyedEntry[K, T], reason: str) -> None:
        shelf = entry.shelf
        if entry in shelf.lent:
            del shelf.lent[entry]
        elif entry in shelf.idle:
            del shelf.idle[entry]
        else:
            return  # closed under its borrowers' hands
        if shelf.shared is entry:
            shelf.shared = None
        shelf.closing += 1
        super()._drop(entry, reason)

    async def _before_closing(self, entry: KeyedEntry[K, T], reason: str) -> None:
        if self._on_evict is None or reason.startswith("closed"):
            return
        try:
            await bounded(
                "on_evict", self._close_timeout, self._on_evict, entry.shelf.key, entry.resource, reason
            )
        except Exception as error:  # noqa: BLE001 - it is closed all the same
            self._news.failed("pool.on_evict_failed", error, key=entry.shelf.key)

    def _slot_is_free(self, entry: KeyedEntry[K, T], reason: str) -> None:
        self._evicted += reason == "room"
        entry.shelf.closing -= 1
        self._look_at(entry.shelf)
