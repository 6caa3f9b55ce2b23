from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

from tenure.local._pool_loans import Wish

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anyio import CancelScope

    from tenure.upkeep import BackgroundTask
    from tenure.waiting import Line

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class PoolEntry(Generic[T]):
    resource: T
    subpool: SubPool[T]
    born: float
    expires: float
    worn: str = "lifetime"
    """The reason to close the resource after that time."""
    since: float = 0.0
    """The time at which the resource was last known to be good."""
    idle_from: float = 0.0
    """The time at which the resource was last needed."""
    lent_at: float = 0.0
    """The time at which the resource was last taken from the idle ones."""
    users: int = 1
    """The number of loans, or 1 while the pool itself has the resource; 0: idle."""
    loans: list[Wish] = field(default_factory=list[Wish])
    """The loans to tasks that know already."""
    closed: bool = False

    def __post_init__(self) -> None:
        self.since = self.idle_from = self.lent_at = self.born


@dataclass(slots=True, eq=False)
class SubPool(Generic[T]):
    key: object
    fields: Mapping[str, object]
    """The fields that name the key in events."""
    least: int
    """The number of resources to keep."""
    line: Line[Wish, PoolEntry[T]]
    entries: dict[PoolEntry[T], None] = field(default_factory=dict[PoolEntry[T], None])
    """All open resources."""
    idle: list[PoolEntry[T]] = field(default_factory=list[PoolEntry[T]])
    """The resources that nobody has, the most recently used last."""
    shared: PoolEntry[T] | None = None
    """The lent resource that others may share."""
    creator: BackgroundTask | None = None
    resting: CancelScope | None = None
    """The creator's pause after a failure, in which it has no slot."""
    creating: int = 0
    closing: int = 0
    checking: int = 0
    """The number of lent entries that the pool itself checks."""
    probing: int = 0
    """The number of entries that are being checked, to be shared if they pass."""

    @property
    def slots(self) -> int:
        return len(self.entries) + self.creating + self.closing

    @property
    def lent(self) -> int:
        return len(self.entries) - len(self.idle)

    @property
    def empty(self) -> bool:
        return not (self.entries or self.creating or self.closing or self.creator or self.line)

    @property
    def spare(self) -> int:
        return len(self.entries) + self.creating - self.least

    @property
    def turn(self) -> float | None:
        """The number of the first waiter that another resource would help, `inf` if there are too few without it."""
        if (head := self.line.head()) is None:
            return inf if self.spare < 0 else None
        return head.want.number if head.want.exclusive or not self.probing else None

    def held_up(self, slots: int, exclusive: bool) -> int:
        """Count the waiters for which `slots` are not enough, if one more comes; -1 if even that one is served."""
        shared = self.shared is not None or self.probing > 0
        wants = [*(waiter.want.exclusive for waiter in self.line), exclusive]
        for place, alone in enumerate(wants, start=1):
            if alone or not shared:
                if slots <= 0:
                    return len(wants) - place
                slots -= 1
                shared = shared or not alone
        return -1


class SlotQueue(Generic[T]):
    __slots__ = ("_heap", "_recorded", "wanting")

    def __init__(self) -> None:
        self.wanting: set[SubPool[T]] = set()
        # Records are corrected when they come to the top: a head can only be followed by a later one.
        self._heap: list[tuple[float, SubPool[T]]] = []
        self._recorded: set[SubPool[T]] = set()

    def want(self, subpool: SubPool[T]) -> None:
        self.wanting.add(subpool)
        if subpool not in self._recorded and (turn := subpool.turn) is not None:
            self._recorded.add(subpool)
            heappush(self._heap, (turn, subpool))

    def forget(self, subpool: SubPool[T]) -> None:
        self.wanting.discard(subpool)
        if not self.wanting:
            self._heap.clear()
            self._recorded.clear()

    def first(self) -> tuple[float, SubPool[T]] | None:
        heap = self._heap
        while heap:
            number, subpool = heap[0]
            turn = subpool.turn
            if subpool not in self.wanting or turn is None:
                heappop(heap)
                self._recorded.discard(subpool)
                self.forget(subpool)
            elif turn != number:
                heapreplace(heap, (turn, subpool))
            else:
                return number, subpool
        return None
