"""The slots of a pool: creating, closing, and which key gets the next slot.

A slot is in use from the moment a creation begins until the closing has ended, so there are never more resources open
than slots. Creations run in jobs of the pool, one at a time for a key.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from itertools import count
from math import inf
from random import random
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import anyio

from tenure.arguments import Seconds, check_count
from tenure.local._limits import check_callable, seconds
from tenure.local._pool_hooks import bounded, passes_check
from tenure.local._subpool import PoolEntry, SlotQueue, SubPool
from tenure.observe import Reporter
from tenure.waiting import Home, Line, apart, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.local._pool_loans import Wish
    from tenure.observe import Observer
    from tenure.upkeep import BackgroundTask, Upkeep
    from tenure.waiting import Waiter

    _Function = Callable[..., Any]

T = TypeVar("T")
FIRST_BACKOFF, LAST_BACKOFF = 0.1, 5.0
# HikariCP's: what was made together does not end together
JITTER = 0.025


class Slots(Generic[T]):
    """The books of a pool: its resources by key, within a limit for each key and a limit for all together."""

    # in slots, because CPython finds attributes of an object with more than thirty of them slowly
    __slots__ = (
        *(
            "_check",
            "_check_after",
            "_check_timeout",
            "_close",
            "_close_timeout",
            "_closing",
            "_counts",
            "_create",
        ),
        *("_create_timeout", "_emptied", "_evicted", "_home", "_idle", "_idle_timeout", "_is_of_parent"),
        *(
            "_last_error",
            "_leak_after",
            "_max_lifetime",
            "_max_per_key",
            "_max_total",
            "_max_waiting",
            "_numbers",
        ),
        *("_phase", "_reporter", "_reset", "_slot_queue", "_slots", "_subpools", "_upkeep"),
    )

    _by_key = False
    """True if create gets a key, and a creation is only for those who wait for it: they all learn if it fails."""
    _evicts = False
    """True if the resource that has been idle longest is closed to make room for another key."""
    _on_evict: Callable[[Any, T, str], object] | None = None
    _check_every = inf
    _min_size = 0

    def __init__(
        self,
        functions: tuple[_Function, _Function, _Function | None, _Function | None],
        timeouts: tuple[Seconds | None, Seconds | None, Seconds | None],
        times: tuple[Seconds | None, Seconds | None, Seconds | None],
        check_after_idle: Seconds,
        limits: tuple[int, int, int | None],
        observer: Observer | None,
    ) -> None:
        for name, function in zip(("create", "close", "check", "reset"), functions, strict=True):
            check_callable(name, function, optional=name in {"check", "reset"})
        self._create, self._close, self._check, self._reset = functions
        names = ("check_timeout", "create_timeout", "close_timeout")
        self._check_timeout, self._create_timeout, self._close_timeout = map(seconds, names, timeouts)
        names = ("idle_timeout", "max_lifetime", "leak_after")
        self._idle_timeout, self._max_lifetime, self._leak_after = map(seconds, names, times)
        check_after = seconds("check_after_idle", check_after_idle, zero=True)
        self._check_after = inf if self._check is None else check_after
        """A resource used or checked within this time needs no check."""
        self._max_per_key, self._max_total, most = limits
        self._max_waiting = None if most is None else check_count("max_waiting", most, least=0)
        self._reporter = Reporter(observer)
        self._phase = "new"
        self._is_of_parent = False
        self._home = Home(self)
        self._upkeep: Upkeep | None = None
        self._emptied = anyio.Event()
        self._subpools: dict[object, SubPool[T]] = {}
        self._slot_queue: SlotQueue[T] = SlotQueue()
        self._numbers = count()
        self._idle: OrderedDict[PoolEntry[T], None] = OrderedDict()
        """The idle resources of all keys, the most recently used last; kept only if the pool evicts."""
        self._last_error: Exception | None = None
        self._slots = self._closing = self._evicted = 0
        self._counts = dict.fromkeys(("created", "closed", "create_failures", "timeouts", "refused"), 0)

    @abstractmethod
    def _give_back(self, entry: PoolEntry[T], time: float, *, used: bool = True) -> None:
        """Hand a resource in order to the next waiter, or keep it, when its last user has left."""

    @abstractmethod
    def _left(self, waiter: Waiter[Wish, PoolEntry[T]]) -> None:
        """Let the others have what a waiter leaves."""

    def _entries(self) -> list[PoolEntry[T]]:
        return [entry for subpool in self._subpools.values() for entry in subpool.entries]

    def _start(self, name: str, function: Callable[..., Any], *args: Any) -> BackgroundTask:
        assert self._upkeep is not None
        return self._upkeep.start(name, function, *args)

    # the next slot

    def _subpool(self, key: object) -> SubPool[T]:
        subpool = self._subpools.get(key)
        if subpool is None:
            fields = {"key": key} if self._by_key else {}
            subpool = self._subpools[key] = SubPool(key, fields, self._min_size, Line(self._left, self._home))
        return subpool

    def _look_at(self, subpool: SubPool[T]) -> None:
        if subpool.creator is None and self._wants(subpool):
            self._slot_queue.want(subpool)
        else:
            if subpool in self._slot_queue.wanting:
                self._slot_queue.forget(subpool)
            if subpool.resting is not None and not subpool.lent:
                subpool.resting.cancel()  # nothing else can serve the waiting tasks
            if not subpool.entries and subpool.empty and self._subpools.get(subpool.key) is subpool:
                del self._subpools[subpool.key]
        if self._slot_queue.wanting:
            self._feed()

    def _wants(self, subpool: SubPool[T]) -> bool:
        return self._phase == "open" and subpool.slots < self._max_per_key and subpool.turn is not None

    def _feed(self) -> None:
        while self._phase == "open" and (turn := self._slot_queue.first()) is not None:
            _, subpool = turn
            if self._slots < self._max_total:
                self._slot_queue.forget(subpool)
                self._occupy(subpool)
                subpool.creator = self._start("pool creator", self._fill, subpool)
            elif self._idle and self._makes_room():
                self._drop(next(iter(self._idle)), "room")
            else:
                return

    def _makes_room(self) -> bool:
        return self._evicts and self._closing < len(self._slot_queue.wanting)

    def _occupy(self, subpool: SubPool[T]) -> None:
        subpool.creating += 1
        self._slots += 1

    def _slot_freed(self, subpool: SubPool[T]) -> None:
        self._slots -= 1
        self._look_at(subpool)
        if self._phase == "closing" and not self._slots:
            self._emptied.set()

    # creating, one at a time for a key

    async def _fill(self, subpool: SubPool[T]) -> None:
        pause = FIRST_BACKOFF
        try:
            while not await self._make(subpool) and self._wants(subpool):
                with anyio.move_on_after(pause * (0.5 + random() / 2)) as subpool.resting:
                    await anyio.sleep_forever()
                subpool.resting = None
                pause = min(2 * pause, LAST_BACKOFF)
                if not self._wants(subpool):
                    break
                self._occupy(subpool)
        finally:
            subpool.creator = subpool.resting = None
            self._look_at(subpool)

    async def _make(self, subpool: SubPool[T]) -> bool:
        entry = None
        start = now()
        try:
            resource = await apart(self._called_create)(tuple(subpool.fields.values()))
            time = now()
            entry = PoolEntry(resource, subpool, time, time + self._max_lifetime * (1 - JITTER * random()))
        except Exception as error:  # noqa: BLE001 - raised in the waiting tasks
            self._failed(subpool, error)
        finally:
            subpool.creating -= 1
            if entry is None:
                self._slot_freed(subpool)
        if entry is None:
            return False
        subpool.entries[entry] = None
        self._last_error = None
        self._counts["created"] += 1
        self._reporter.notice("pool.created", **subpool.fields, seconds=entry.born - start)
        self._give_back(entry, entry.born)
        return True

    async def _called_create(self, key: tuple[object, ...]) -> T:
        return await bounded("create", self._create_timeout, self._create, *key)

    def _failed(self, subpool: SubPool[T], error: Exception) -> None:
        self._counts["create_failures"] += 1
        self._reporter.warn_briefly("pool.create_failed", **subpool.fields, error=error)
        if not self._by_key:
            self._last_error = error
        if self._by_key or not subpool.lent:
            subpool.line.fail_all(lambda: error)

    # closing, many at a time

    def _drop(self, entry: PoolEntry[T], reason: str) -> None:
        if entry.closed:
            return
        entry.closed = True
        subpool = entry.subpool
        del subpool.entries[entry]
        if not entry.users:
            subpool.idle.remove(entry)
            self._idle.pop(entry, None)
        elif subpool.shared is entry:
            subpool.shared = None
        subpool.closing += 1
        self._closing += 1
        self._start("pool closer", self._end, entry, reason)

    async def _end(self, entry: PoolEntry[T], reason: str) -> None:
        subpool = entry.subpool
        try:
            if not self._is_of_parent:  # the parent uses it
                if self._on_evict is not None and not reason.startswith("closed"):
                    try:
                        arguments = subpool.key, entry.resource, reason
                        await bounded("on_evict", self._close_timeout, self._on_evict, *arguments)
                    except Exception as error:  # noqa: BLE001 - it is closed all the same
                        self._reporter.warn("pool.on_evict_failed", **subpool.fields, error=error)
                await bounded("close", self._close_timeout, self._close, entry.resource)
        except Exception as error:  # noqa: BLE001 - it is gone all the same
            self._reporter.warn_briefly("pool.close_failed", **subpool.fields, error=error)
        finally:
            self._counts["closed"] += 1
            self._evicted += reason == "room"
            self._closing -= 1
            subpool.closing -= 1
            self._slot_freed(subpool)
        self._reporter.notice("pool.closed", **subpool.fields, reason=reason, age=now() - entry.born)

    async def _passes(self, hook: Literal["check", "reset"], entry: PoolEntry[T], *, shield: bool) -> bool:

        def failed(error: Exception) -> None:
            self._reporter.warn_briefly(f"pool.{hook}_failed", **entry.subpool.fields, error=error)

        function = self._check if hook == "check" else self._reset
        assert function is not None
        arguments = self._check_timeout, function, entry.resource
        sound, reason = False, "cancelled"
        try:
            sound = await passes_check(*arguments, shield=shield, what=hook, failed=failed)
            reason = "reset failed" if hook == "reset" else "unhealthy"
        finally:
            if sound:
                entry.since = now()
            else:
                self._drop(entry, reason)
        return sound
