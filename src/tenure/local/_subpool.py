"""The resources and waiters of one key of a keyed pool, and which key is next when a slot comes free."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from tenure.local._pool_entry import Entry
from tenure.waiting import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from tenure.upkeep import Job
    from tenure.waiting import Home, Waiter

__all__ = ("Asked", "KeyedEntry", "SlotQueue", "SubPool", "Want")

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")


class KeyedEntry(Entry[T], Generic[K, T]):
    """A resource of a keyed pool."""

    __slots__ = ("sharers", "subpool", "users")

    def __init__(self, subpool: SubPool[K, T], resource: T, *, now: float, expires: float) -> None:
        super().__init__(resource, now=now, expires=expires)
        self.subpool = subpool
        self.users = 1
        self.sharers: list[object] = []
        """The tasks that share it."""

    def held_by(self, task: object) -> int:
        """Count the loans of this resource to a task."""
        return super().held_by(task) + self.sharers.count(task)

    @property
    def fields(self) -> Mapping[str, object]:
        """The fields that name the resource in events."""
        return MappingProxyType({"key": self.subpool.key})


class Asked(NamedTuple, Generic[K]):
    """A borrower's request."""

    key: K
    exclusive: bool


class Want(NamedTuple, Generic[K, T]):
    """A waiter's request; `number` is its place among all waiters of the pool."""

    number: int
    subpool: SubPool[K, T]
    exclusive: bool


class SubPool(Generic[K, T]):
    """The entries and waiters of one key; the pool forgets the subpool when it is empty."""

    __slots__ = ("closing", "creator", "idle", "key", "lent", "line", "probing", "shared")

    def __init__(
        self, key: K, on_leave: Callable[[Waiter[Want[K, T], KeyedEntry[K, T]]], None], home: Home
    ) -> None:
        self.key = key
        self.line: Line[Want[K, T], KeyedEntry[K, T]] = Line(on_leave, home)
        self.idle: dict[KeyedEntry[K, T], None] = {}
        """The idle ones, the most recently used last."""
        self.lent: dict[KeyedEntry[K, T], None] = {}
        """The entries that a borrower has, checks or is about to get."""
        self.shared: KeyedEntry[K, T] | None = None
        """The lent entry that others may share."""
        self.creator: Job | None = None
        self.closing = 0
        self.probing = 0
        """The number of entries that are being checked, to be shared if they pass."""

    @property
    def slots(self) -> int:
        """The number of slots in use."""
        return len(self.idle) + len(self.lent) + self.closing + (self.creator is not None)

    @property
    def empty(self) -> bool:
        """True if there is no resource and no waiter."""
        return not self.slots and not self.line

    def held_up(self, slots: int, exclusive: bool) -> int:
        """Count the waiters for which `slots` are not enough, if one more comes; -1 if even that one is served.

        Tasks that share need one slot together, and none if there is a resource to share.
        """
        shared = self.shared is not None or self.probing > 0
        wants = [waiter.want.exclusive for waiter in self.line]
        for place, alone in enumerate([*wants, exclusive]):
            if shared and not alone:
                continue
            if slots <= 0:
                return len(wants) - place
            slots -= 1
            shared = shared or not alone
        return -1

    def wants_a_slot(self, limit: int) -> bool:
        """Return whether creating another would help the waiters."""
        if self.creator is not None or self.slots >= limit or (head := self.line.head()) is None:
            return False
        return head.want.exclusive or not self.probing


class SlotQueue(Generic[K, T]):
    """The subpools that want a slot when all are in use: the subpool whose first waiter came first is next."""

    __slots__ = ("_heap", "_recorded", "_wanting")

    def __init__(self) -> None:
        self._wanting: set[SubPool[K, T]] = set()
        # Records are corrected when they come to the top: a head can only be followed by a later one.
        self._heap: list[tuple[int, SubPool[K, T]]] = []
        self._recorded: set[SubPool[K, T]] = set()

    def __len__(self) -> int:
        return len(self._wanting)

    def __contains__(self, subpool: SubPool[K, T]) -> bool:
        return subpool in self._wanting

    def want(self, subpool: SubPool[K, T], number: int) -> None:
        """Note that a subpool wants a slot, for the waiter of this number."""
        self._wanting.add(subpool)
        if subpool not in self._recorded:
            self._recorded.add(subpool)
            heappush(self._heap, (number, subpool))

    def forget(self, subpool: SubPool[K, T]) -> None:
        """Note that a subpool wants no slot."""
        self._wanting.discard(subpool)
        if not self._wanting:
            self._heap.clear()
            self._recorded.clear()

    def first(self) -> tuple[int, SubPool[K, T]] | None:
        """Return the next subpool, and the number of its first waiter."""
        heap = self._heap
        while heap:
            number, subpool = heap[0]
            head = subpool.line.head()
            if subpool not in self._wanting or head is None:
                heappop(heap)
                self._recorded.discard(subpool)
                self.forget(subpool)
            elif head.want.number != number:
                heapreplace(heap, (head.want.number, subpool))
            else:
                return number, subpool
        return None
