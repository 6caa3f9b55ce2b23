"""Places that kinds of tasks share: each has so many of its own, and lends those that it does not use.

A kind takes as many tasks as it has places of its own, or as the others leave. A task that was taken waits here until
a place is free, and one of a kind that has less than its share comes before those of kinds that have theirs: so what a
kind has lent comes back with the end of one task. A place of its own that a task has just left is not lent while the
kind looks for its next task, for a tenth of a second at most; else two kinds that have work would take each other's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from math import inf

from tenure.local import Bulkhead

_LEND_AFTER = 0.1
"""Seconds for which a kind that has had a task looks for the next before it lends the place."""


class SharedSlots:
    """The places of all kinds in this process. Source: the sharing of `Bulkhead`."""

    def __init__(self, shares: Mapping[str | None, int]) -> None:
        self.size = sum(shares.values())
        self._shares = shares
        self._bulkhead = Bulkhead(self.size, shares=dict[Hashable, float](shares.items()))
        self._used = dict.fromkeys(shares, 0)
        self._kept = dict.fromkeys(shares, 0)  # just left by a task, for the next one of that kind
        self._on_change: dict[str | None, Callable[[], object]] = {}

    def on_change(self, kind: str | None, call: Callable[[], object]) -> None:
        """Have `call` called when `most` of that kind may have changed."""
        self._on_change[kind] = call

    @property
    def full(self) -> bool:
        """True if each place has a task."""
        return sum(self._used.values()) >= self.size

    def most(self, kind: str | None) -> int:
        """The number of places that the kind may count on at present: its own, or all that the others leave."""
        left = self.size - sum(self._needed(other) for other in self._shares if other != kind)
        return max(self._shares[kind], left)

    def time_limit(self, kind: str | None) -> float:
        """The seconds to look for a task before `found_none` is to be called."""
        return _LEND_AFTER if self._kept[kind] else inf

    def found_none(self, kind: str | None) -> None:
        """Note that the kind has no task that may start, so that it lends its unused places."""
        if self._kept[kind]:
            self._kept[kind] = 0
            self._notify_others(kind)

    @asynccontextmanager
    async def enter(self, kind: str | None) -> AsyncGenerator[None]:
        """Have a place for a block. Cancellation: while waiting, nothing is taken."""
        async with self._bulkhead.enter(kind):
            self._used[kind] += 1
            self._kept[kind] = max(0, self._kept[kind] - 1)
            self._notify_others(kind)
            try:
                yield
            finally:
                self._used[kind] -= 1
                self._kept[kind] += 1
                self._notify_others(kind)

    def _needed(self, kind: str | None) -> int:
        used = self._used[kind]
        return max(used, min(self._shares[kind], used + self._kept[kind]))

    def _notify_others(self, kind: str | None) -> None:
        for other, call in self._on_change.items():
            if other != kind:
                call()
