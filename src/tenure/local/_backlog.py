from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from math import isnan, nan
from typing import Generic, TypeVar

from tenure.waiting import steady

T = TypeVar("T")


class BacklogEntry(Generic[T]):
    """An item and its rank. It is `there` while in a backlog, and `ready` to be taken once its putter has run."""

    __slots__ = ("came", "item", "priority", "ready", "seq", "there")

    def __init__(self, item: T, priority: int, seq: int) -> None:
        self.item: T = item
        self.priority: int = priority
        self.seq: int = seq
        self.came: float = nan
        self.ready: bool = True
        self.there: bool = False

    def __lt__(self, _: object) -> bool:
        # heaps ask only for two of the same rank, of which one is dead
        return False

    def again(self) -> BacklogEntry[T]:
        """Return a copy of the same rank: an entry that was taken may still be in its backlog as a dead entry."""
        entry = BacklogEntry(self.item, self.priority, self.seq)
        entry.came = self.came
        return entry


class Fifo(Generic[T]):
    __slots__ = ("_entries", "size")

    size: int

    def __init__(self) -> None:
        self._entries: deque[BacklogEntry[T]] = deque()
        self.size = 0

    def first(self) -> BacklogEntry[T]:
        return self._entries[0]

    def add(self, entry: BacklogEntry[T]) -> None:
        """Add an entry; an entry that arrived before others goes back to its place, near the front."""
        entry.there = True
        self.size += 1
        entries = self._entries
        if not entries or entries[-1].seq < entry.seq:
            entries.append(entry)
        else:
            later = next(i for i, waiting in enumerate(entries) if waiting.seq > entry.seq)
            entries.insert(later, entry)

    def remove(self, entry: BacklogEntry[T]) -> None:
        entry.there = False
        self.size -= 1
        if self._entries[0] is entry:
            self._entries.popleft()
        else:
            self._entries.remove(entry)


class Ranked(Generic[T]):
    """Higher priority first; with `aging`, entries older than that many seconds go first, the oldest first.

    Two heaps hold the same entries; an entry taken from one becomes dead in the other.
    """

    __slots__ = ("_aging", "_by_age", "_heap", "size")

    size: int

    def __init__(self, aging: float | None) -> None:
        self._aging = aging
        self._heap: list[tuple[int, int, BacklogEntry[T]]] = []
        self._by_age: list[tuple[int, BacklogEntry[T]]] = []
        self.size = 0

    def first(self) -> BacklogEntry[T]:
        heap = self._heap
        if self._aging is not None:
            by_age = self._by_age
            while not (entry := by_age[0][1]).there:
                heappop(by_age)
            if steady() - entry.came > self._aging:
                return entry
        while not (entry := heap[0][2]).there:
            heappop(heap)
        return entry

    def add(self, entry: BacklogEntry[T]) -> None:
        entry.there = True
        self.size += 1
        heappush(self._heap, (-entry.priority, entry.seq, entry))
        if self._aging is not None:
            if isnan(entry.came):
                entry.came = steady()
            heappush(self._by_age, (entry.seq, entry))

    def remove(self, entry: BacklogEntry[T]) -> None:
        entry.there = False
        self.size -= 1
        if self._heap[0][2] is entry:
            heappop(self._heap)
        # the dead go when they reach the front; should they ever be the most, all at once
        if len(self._heap) > 2 * self.size + 64:
            self._heap = [item for item in self._heap if item[2].there]
            heapify(self._heap)
        if len(self._by_age) > 2 * self.size + 64:
            self._by_age = [item for item in self._by_age if item[1].there]
            heapify(self._by_age)
