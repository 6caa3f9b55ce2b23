"""Names that are checked when their time has come, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Due(Generic[K]):
    """Names by the times of their checks. `check` returns the time of the next check, None for no other."""

    def __init__(self, check: Callable[[K], float | None]) -> None:
        self._check = check
        self.heap: list[tuple[float, int, K]] = []
        self._names: set[K] = set()
        self._made = 0

    def add(self, name: K, when: float) -> None:
        if name not in self._names:
            self._names.add(name)
            self._push(name, when)

    def check(self, now: float, most: int) -> None:
        while most > 0 and self.heap and self.heap[0][0] <= now:
            most -= 1
            _, _, name = heappop(self.heap)
            again = self._check(name)
            if again is None:
                self._names.remove(name)
            else:
                self._push(name, again)

    def _push(self, name: K, when: float) -> None:
        self._made += 1
        heappush(self.heap, (when, self._made, name))
