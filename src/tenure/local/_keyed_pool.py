"""Pools of resources by key, such as connections by host, under limits for each key and for all together.

Within a key it works as a `Pool`: a borrower that finds nothing idle waits in the key's line for a resource that is
returned or created, first come first served. Keys compete for slots. When all are in use, the resource that has been
idle longest is closed to make room; when nothing is idle, a returned one is closed if a task of another key has waited
longer than all of its own. So a busy key cannot starve an idle one.

A key is forgotten when it has no resource and no waiter. Counting waiters in is what maps of locks get
wrong (LightRAG #3439), and forgetting them late is how they leak (aden-hive #2584).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, cast

from tenure.arguments import Seconds, check_count, check_flag
from tenure.errors import PoolClosed
from tenure.local._lending import SPOILT, Lending, Loan
from tenure.local._limits import check_callable, check_key, seconds
from tenure.local._pool_hooks import Hooks, bounded
from tenure.local._pool_state import PoolState
from tenure.local._subpool import Asked, KeyedEntry, SlotQueue, SubPool, Want
from tenure.observe import Observer
from tenure.waiting import Waiter, now

__all__ = ("KeyedPool", "KeyedPoolStatistics")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeyedPoolStatistics:
    """The state of a `KeyedPool` at one moment. Each slot in use is idle, lent, creating or closing."""

    max_per_key: int
    """The number of slots that a key may use."""
    max_total: int
    """The number of all slots."""
    keys: int
    """The number of keys that have a resource or a waiter."""
    size: int
    """The number of slots in use."""
    idle: int
    """The number of idle resources."""
    lent: int
    """The number of resources that are lent, or are being checked or reset by a borrower."""
    creating: int
    """The number of resources that are being created: at most one for each key."""
    closing: int
    """The number of resources that are being closed."""
    tasks_waiting: int
    """The number of waiting tasks."""
    created: int
    """The number of resources created since the pool was opened."""
    closed: int
    """The number of resources closed since then."""
    evicted: int
    """The number of closed resources that had to make room for another key."""
    create_failures: int
    """The number of creations that have failed since then."""
    timeouts: int
    """The number of times that a `timeout` of acquire has run out since then."""
    refused: int
    """The number of tasks refused since then because `max_waiting` other tasks waited already."""
    leaked: int
    """The number of loans that have lasted longer than `leak_after`."""


class KeyedPool(Lending[T, Asked[K], KeyedEntry[K, T]], Generic[K, T]):
    """Lends resources by key; creates them when they are needed and closes them when they are not.

        async with KeyedPool(connect, close=Connection.close, max_per_key=2, max_total=100) as pool:
            async with pool.acquire("example.org:443", timeout=10) as connection:
                ...

    - `create(key)`, `close(resource)`; `check(resource)` returns whether it works; `reset(resource)` cleans it up.
    - `max_per_key`, `max_total`: slots.
    - `max_waiting`: tasks that may wait for a return, for each key (None: any number).
    - `evict`: "oldest" closes the longest idle resource if another key needs its slot; "never" waits.
    - `on_evict(key, resource, reason)` is called before a resource is closed.
    - `idle_timeout`, `max_lifetime`: when an unused resource, or an old one, is closed; never while it is lent.
    - `check_timeout`, `create_timeout`, `close_timeout`: limits of calls.
    - `check_after_idle`: an idle time without a check.
    - `leak_after`: a longer loan is reported.
    - `observer` gets the events.

    Times are in seconds; None is never. After a fork the child needs a pool of its own.

    Raises `ValueError` and `TypeError` for wrong arguments; `RuntimeError` if it is opened twice or used before.
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
        # idle in the order of their use, of whatever key
        state: PoolState[KeyedEntry[K, T]] = PoolState(
            0,
            check_count("max_total", max_total),
            idle_timeout=idle_timeout,
            max_lifetime=max_lifetime,
        )
        super().__init__(hooks, state, max_waiting=max_waiting, leak_after=leak_after)
        self._max_per_key = check_count("max_per_key", max_per_key)
        self._evicts = evict == "oldest"
        self._on_evict = on_evict
        self._subpools: dict[K, SubPool[K, T]] = {}
        self._slot_queue: SlotQueue[K, T] = SlotQueue()
        self._numbers = count()
        self._evicted = 0

    def acquire(
        self, key: K, *, exclusive: bool = True, timeout: Seconds | None = None
    ) -> AbstractAsyncContextManager[T]:
        """Borrow a resource of `key` for a block: ``async with pool.acquire("example.org") as resource``.

        A resource that is not `exclusive` is shared: other tasks that ask for a shared one get the same one. `timeout`
        in seconds limits the wait, the creation and the check included (None: for ever; 0: only an idle or shared
        resource). Entering raises `PoolTimeout`, which describes the state of the pool, `PoolClosed`, `BulkheadFull` if
        `max_waiting` tasks wait already, and what `create` raised. Leaving raises nothing of its own, and waits only
        for `reset` and, after an exception, for `check`.

        Cancellation: while waiting, nothing is taken and no place is kept. In a check, the resource is closed; in
        the body, reset, or closed without `reset`. Leaving is not cancelled.
        """
        limit = seconds("timeout", timeout, zero=True)
        want = Asked(check_key(key), check_flag("exclusive", exclusive))
        return Loan(self, want, limit) if exclusive else SharedLoan(self, want, limit)

    def statistics(self) -> KeyedPoolStatistics:
        """Return the current state. Counts its keys one by one."""
        state = self._state
        return KeyedPoolStatistics(
            max_per_key=self._max_per_key,
            max_total=state.max_size,
            keys=len(self._subpools),
            size=state.size,
            idle=len(state.idle),
            lent=len(state.lent),
            creating=state.creating,
            closing=state.closing,
            tasks_waiting=sum(len(subpool.line) for subpool in self._subpools.values()),
            created=self._created,
            closed=self._closed,
            evicted=self._evicted,
            create_failures=self._create_failures,
            timeouts=self._timeouts,
            refused=self._refused,
            leaked=self._loans.leaked(),
        )

    def __repr__(self) -> str:
        return f"<KeyedPool {self._phase}: {self._summary()}>"

    def _summary(self) -> str:
        state = self._state
        return (
            f"{state.size} of {state.max_size} slots in use ({len(state.idle)} idle, {state.closing} being closed) "
            f"by {len(self._subpools)} keys"
        )

    # opening and closing

    async def _begin(self) -> None:
        pass

    def _begin_closing(self) -> None:
        super()._begin_closing()
        for subpool in list(self._subpools.values()):
            if subpool.creator is not None:
                subpool.creator.cancel()
            subpool.shared = None  # no more tasks join
            subpool.line.fail_all(lambda: PoolClosed("the pool was closed"))
            self._look_at(subpool)
        for entry in list(self._state.idle):
            self._drop(entry, "closed")

    # lending

    def _subpool(self, key: K) -> SubPool[K, T]:
        subpool = self._subpools.get(key)
        if subpool is None:
            subpool = self._subpools[key] = SubPool(key, self._left, self._home)
        return subpool

    def _take(self, want: Asked[K]) -> KeyedEntry[K, T] | None:
        """Lend a resource if one is free; a resource that is due for a check is not shared before that."""
        subpool = self._subpools.get(want.key)
        if subpool is None or subpool.line:
            return None
        time = now()
        if not want.exclusive and (entry := self._shared(subpool, time)) is not None:
            entry.users += 1
            return entry
        while subpool.idle:
            entry = next(reversed(subpool.idle))
            if worn := self._state.worn(entry, time):
                self._drop(entry, worn)
                continue
            del subpool.idle[entry]
            subpool.lent[entry] = None
            self._state.lend(entry, time)
            entry.users = 1
            if not want.exclusive and not self._is_due(entry):
                subpool.shared = entry
            return entry
        return None

    def _shared(self, subpool: SubPool[K, T], time: float) -> KeyedEntry[K, T] | None:
        """Return the resource that others may share, unless it is too old for that."""
        if subpool.shared is not None and self._state.worn(subpool.shared, time):
            subpool.shared = None  # its users go on with it
        return subpool.shared

    def _is_due(self, entry: KeyedEntry[K, T]) -> bool:
        return entry.subpool.shared is not entry and super()._is_due(entry)

    def _timed_out(self, want: Asked[K], timeout: float) -> str:
        return f"{want.key!r}: no resource within {timeout:g} s: {self._summary_of(want.key)}"

    def _summary_of(self, key: K) -> str:
        subpool = self._subpools.get(key)
        used = 0 if subpool is None else subpool.slots
        return f"{used} of {self._max_per_key} slots of this key in use; {self._summary()}"

    async def _proved(self, want: Asked[K], entry: KeyedEntry[K, T]) -> bool:
        subpool, share = entry.subpool, not want.exclusive
        passed = False
        subpool.probing += share
        try:
            passed = await self._passes("check", entry, shield=False)
        finally:
            subpool.probing -= share
            if passed and share:
                subpool.shared = entry
                self._share(subpool)
            self._look_at(subpool)
        return passed

    async def _stand_in_line(self, want: Asked[K], timeout: float) -> KeyedEntry[K, T]:
        self._check_open()
        subpool = self._subpool(want.key)
        if self._is_crowded(subpool, want.exclusive):
            summary = f"{want.key!r}: {self._summary_of(want.key)}"
            self._look_at(subpool)
            await self._refuse(self._max_per_key, summary)
        waiter = subpool.line.join(Want(next(self._numbers), subpool, want.exclusive))
        self._look_at(subpool)
        return await subpool.line.wait(waiter, timeout)

    def _is_crowded(self, subpool: SubPool[K, T], exclusive: bool) -> bool:
        """True if `max_waiting` tasks wait for this key until a resource is returned."""
        if self._max_waiting is None:
            return False
        state = self._state
        # slots that are not lent and not for others: they are free, or become free without a return
        free = state.max_size - len(state.lent) - state.creating - len(self._slot_queue)
        free += (subpool.creator is not None) + (subpool in self._slot_queue)
        if not self._evicts:
            free -= len(state.idle)
        return (
            subpool.held_up(min(free, self._max_per_key - len(subpool.lent)), exclusive) >= self._max_waiting
        )

    def _left(self, waiter: Waiter[Want[K, T], KeyedEntry[K, T]]) -> None:
        subpool = waiter.want.subpool
        if waiter.granted:
            self._give_back(waiter.value)
        self._share(subpool)
        if subpool.creator is not None and not subpool.line:
            subpool.creator.cancel()
        self._look_at(subpool)

    def _give_back(self, entry: KeyedEntry[K, T]) -> None:
        """Hand a resource in order to the next waiter, or keep it, when its last user has left."""
        subpool = entry.subpool
        if entry not in subpool.lent:
            return  # closed under its borrowers' hands
        entry.users -= 1
        if entry.users:
            return
        if subpool.shared is entry:
            subpool.shared = None
        time = now()
        head = subpool.line.head()
        if self._phase == "closing":
            self._drop(entry, "closed")
        elif worn := self._state.worn(entry, time):
            self._drop(entry, worn)
        elif head is None:
            entry.idle_from = time
            del subpool.lent[entry]
            subpool.idle[entry] = None
            self._state.return_idle(entry)
            self._feed()
        elif self._others_came_before(head.want.number):
            self._drop(entry, "room")
        else:
            self._lend(entry, head)
            self._look_at(subpool)

    def _lend(self, entry: KeyedEntry[K, T], waiter: Waiter[Want[K, T], KeyedEntry[K, T]]) -> None:
        subpool = entry.subpool
        entry.users = 1
        subpool.line.grant(waiter, entry)
        if not waiter.want.exclusive:
            subpool.shared = entry
        self._share(subpool)

    def _share(self, subpool: SubPool[K, T]) -> None:
        """Admit the tasks at the head of the line that accept a shared resource."""
        shared = self._shared(subpool, now())
        while shared is not None and (head := subpool.line.head()) is not None and not head.want.exclusive:
            shared.users += 1
            subpool.line.grant(head, shared)

    async def _come_back_from(
        self, want: Asked[K], entry: KeyedEntry[K, T], error: BaseException | None
    ) -> None:
        if want.exclusive:
            await super()._come_back_from(want, entry, error)
            return
        if error is not None:
            entry.since = SPOILT
        hooks, subpool, last = self._hooks, entry.subpool, entry.users == 1
        if subpool.shared is entry and (
            last or (entry.since == SPOILT and hooks.check is hooks.reset is None)
        ):
            subpool.shared = None  # no further task joins
        if last and entry in subpool.lent:
            # a task that was cancelled may have been one of many
            ended = error if isinstance(error, Exception | GeneratorExit) else None
            await super()._come_back_from(want, entry, ended)
        else:
            self._give_back(entry)

    # slots

    def _look_at(self, subpool: SubPool[K, T]) -> None:
        """Let a subpool, of which something has changed, ask for a slot, or forget it."""
        if self._phase == "open" and subpool.wants_a_slot(self._max_per_key):
            head = subpool.line.head()
            assert head is not None
            self._slot_queue.want(subpool, head.want.number)
        else:
            self._slot_queue.forget(subpool)
            if subpool.empty and self._subpools.get(subpool.key) is subpool:
                del self._subpools[subpool.key]
        self._feed()

    def _feed(self) -> None:
        """Give the free slots to the next keys in turn, and make room for the rest if something is idle."""
        while self._phase == "open" and (turn := self._slot_queue.first()) is not None:
            _, subpool = turn
            if not self._state.full:
                self._slot_queue.forget(subpool)
                self._state.creating += 1
                subpool.creator = self._start("keyed pool creator", self._make, subpool)
            elif self._evicts and self._state.idle and self._state.closing < len(self._slot_queue):
                self._drop(next(iter(self._state.idle)), "room")
            else:
                return

    def _others_came_before(self, number: int) -> bool:
        turn = self._slot_queue.first()
        return (
            turn is not None
            and turn[0] < number
            and self._evicts
            and self._state.closing < len(self._slot_queue)
        )

    async def _make(self, subpool: SubPool[K, T]) -> None:
        entry = None
        state, start = self._state, now()
        try:
            resource = await self._hooks.make(subpool.key)
            time = now()
            entry = KeyedEntry(subpool, resource, now=time, expires=state.expiry(time))
        except Exception as error:  # noqa: BLE001 - raised in the waiting tasks
            self._failed(subpool, error)
        finally:
            subpool.creator = None
            if entry is None:
                state.creating -= 1
                self._look_at(subpool)
                self._slot_freed()
        if entry is not None:
            self._created += 1
            state.add(entry)
            subpool.lent[entry] = None
            self._reporter.notice("pool.created", key=subpool.key, seconds=entry.born - start)
            self._give_back(entry)

    def _failed(self, subpool: SubPool[K, T], error: Exception) -> None:
        self._create_failures += 1
        self._reporter.warn_briefly("pool.create_failed", key=subpool.key, error=error)
        subpool.line.fail_all(lambda: error)

    # closing

    def _drop(self, entry: KeyedEntry[K, T], reason: str) -> None:
        subpool = entry.subpool
        if entry in subpool.lent:
            del subpool.lent[entry]
        elif entry in subpool.idle:
            del subpool.idle[entry]
        else:
            return  # closed under its borrowers' hands
        if subpool.shared is entry:
            subpool.shared = None
        subpool.closing += 1
        super()._drop(entry, reason)

    async def _before_closing(self, entry: KeyedEntry[K, T], reason: str) -> None:
        if self._on_evict is None or reason.startswith("closed"):
            return
        try:
            await bounded(
                "on_evict", self._close_timeout, self._on_evict, entry.subpool.key, entry.resource, reason
            )
        except Exception as error:  # noqa: BLE001 - it is closed all the same
            self._reporter.warn("pool.on_evict_failed", key=entry.subpool.key, error=error)

    def _slot_is_free(self, entry: KeyedEntry[K, T], reason: str) -> None:
        self._evicted += reason == "room"
        entry.subpool.closing -= 1
        self._look_at(entry.subpool)


class SharedLoan(Loan[T]):
    """A loan of a resource that other tasks may have too."""

    __slots__ = ("_sharer",)

    async def __aenter__(self) -> T:
        """Borrow a resource. Cancellation: nothing is borrowed."""
        resource = await super().__aenter__()
        entry = cast("KeyedEntry[Any, T]", self._entry)
        self._sharer = entry.task
        entry.task = None
        entry.sharers.append(self._sharer)
        return resource

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the resource back. Cancellation: as for a `Loan`."""
        entry = cast("KeyedEntry[Any, T] | None", self._entry)
        if entry is not None:
            entry.sharers.remove(self._sharer)
        await super().__aexit__(kind, error, trace)
