"""Places that kinds of tasks share: each has so many of its own, and lends those that it does not use.

A kind takes as many tasks as it has places of its own, or as the others leave: so its tasks never wait in the queue
for a place that it may have. One that was taken waits here until a place is free. A kind that has less than its share
is served before one that has more, so what it lent comes back with the end of one task.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from tenure.local import Bulkhead


class Places:
    """The places of all kinds in this process. Source: the sharing is that of `Bulkhead`."""

    def __init__(self, shares: Mapping[str | None, int]) -> None:
        self._shares = shares
        self._bulkhead = Bulkhead(sum(shares.values()), shares={**shares})
        self._used = dict.fromkeys(shares, 0)
        self._others: dict[str | None, Callable[[], object]] = {}

    @property
    def size(self) -> int:
        """How many there are."""
        return sum(self._shares.values())

    def on_change(self, kind: str | None, call: Callable[[], object]) -> None:
        """Have `call` called when `most` of that kind may have changed."""
        self._others[kind] = call

    def most(self, kind: str | None) -> int:
        """How many places the kind may count on at present: its own, or all that the others leave."""
        left = self.size - sum(self._used.values()) + self._used[kind]
        return max(self._shares[kind], left)

    @asynccontextmanager
    async def enter(self, kind: str | None) -> AsyncGenerator[None]:
        """Have a place for a block. Cancellation: while waiting, nothing is taken."""
        async with self._bulkhead.enter(kind):
            self._change(kind, 1)
            try:
                yield
            finally:
                self._change(kind, -1)

    def _change(self, kind: str | None, by: int) -> None:
        self._used[kind] += by
        for other, call in self._others.items():
            if other != kind:
                call()
