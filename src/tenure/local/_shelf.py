"""Where a queue keeps its entries: in the order in which they came, or by priority with aging."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from math import isnan, nan
from typing import Generic, TypeVar

from tenure.local._park import now

__all__ = ("Entry", "Fifo", "Ranked")

T = TypeVar("T")


class Entry(Generic[T]):
    """An item and its rank. It is `there` while on a shelf, and `ready` to be taken once its putter has run."""

    __slots__ = ("came", "item", "priority", "ready", "seq", "there")

    def __init__(self, item: T, priority: int, seq: int) -> None:
        """Make an entry that is on no shelf."""
        self.item = item
        self.priority = priority
        self.seq = seq
        self.came = nan
        self.ready = True
        self.there = False

    def __lt__(self, _: object) -> bool:
        # heaps ask only for two of the same rank, of which one is dead
        return False

    def again(self) -> Entry[T]:
        """Make another of the same rank: one that was given out may still lie on its shelf as a dead one."""
        entry = Entry(self.item, self.priority, self.seq)
        entry.came = self.came
        return entry


class Fifo(Generic[T]):
    """First in, first out."""

    __slots__ = ("_entries", "size")

    size: int
    """How many entries are on it."""

    def __init__(self) -> None:
        """Make an empty shelf."""
        self._entries: deque[Entry[T]] = deque()
        self.size = 0

    def first(self) -> Entry[T]:
        """Give the entry whose turn it is; the shelf must not be empty."""
        return self._entries[0]

    def add(self, entry: Entry[T]) -> None:
        """Put an entry on the shelf; one that came before others goes back to its place, near the front."""
        entry.there = True
        self.size += 1
        entries = self._entries
        if not entries or entries[-1].seq < entry.seq:
            entries.append(entry)
        else:
            later = next(i for i, one in enumerate(entries) if one.seq > entry.seq)
            entries.insert(later, entry)

    def remove(self, entry: Entry[T]) -> None:
        """Take an entry out: at once if it is the first."""
        entry.there = False
        self.size -= 1
        if self._entries[0] is entry:
            self._entries.popleft()
        else:
            self._entries.remove(entry)


class Ranked(Generic[T]):
    """Higher priority first; with `aging`, what came more than so many seconds ago goes before all, oldest first.

    A heap by priority and one by age hold the same entries; what one gave out dies in the other.
    """

    __slots__ = ("_aging", "_by_age", "_heap", "size")

    size: int
    """How many entries are on it."""

    def __init__(self, aging: float | None) -> None:
        """Make an empty shelf."""
        self._aging = aging
        self._heap: list[tuple[int, int, Entry[T]]] = []
        self._by_age: list[tuple[int, Entry[T]]] = []
        self.size = 0

    def first(self) -> Entry[T]:
        """Give the entry whose turn it is; the shelf must not be empty."""
        heap = self._heap
        if self._aging is not None:
            by_age = self._by_age
            while not (entry := by_age[0][1]).there:
                heappop(by_age)
            if now() - entry.came > self._aging:
                return entry
        while not (entry := heap[0][2]).there:
            heappop(heap)
        return entry

    def add(self, entry: Entry[T]) -> None:
        """Put an entry on the shelf, where it belongs."""
        entry.there = True
        self.size += 1
        heappush(self._heap, (-entry.priority, entry.seq, entry))
        if self._aging is not None:
            if isnan(entry.came):
                entry.came = now()
            heappush(self._by_age, (entry.seq, entry))

    def remove(self, entry: Entry[T]) -> None:
        """Take an entry out, wherever it stands."""
        entry.there = False
        self.size -= 1
        if self._heap[0][2] is entry:
            heappop(self._heap)
        # the dead go when they reach the front; should they ever be the most, all at once
        if len(self._heap) > 2 * self.size + 64:
            self._heap = [one for one in self._heap if one[2].there]
            heapify(self._heap)
        if len(self._by_age) > 2 * self.size + 64:
            self._by_age = [one for one in self._by_age if one[1].there]
            heapify(self._by_age)
