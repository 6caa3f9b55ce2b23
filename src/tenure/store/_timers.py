"""One sleeper for all that a store has to do later."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf

import anyio

from tenure.local._line import Line

__all__ = ("Timers",)


class Timers:
    """Calls plain functions at their times, all from one job.

    Thread safety: none.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._sleeping_until = inf
        self._sleeper: Line[None, None] = Line(lambda _: None)

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        """Call `function` when the loop's clock shows `when`; it must not raise."""
        heappush(self._heap, (when, next(self._number), function))
        if when < self._sleeping_until and (sleeper := self._sleeper.head()) is not None:
            self._sleeper.grant(sleeper, None)

    async def run(self) -> None:
        """Keep the times until cancelled. Cancellation: what was to come is dropped."""
        while True:
            now = anyio.current_time()
            while self._heap and self._heap[0][0] <= now:
                heappop(self._heap)[2]()
            self._sleeping_until = self._heap[0][0] if self._heap else inf
            with anyio.CancelScope(deadline=self._sleeping_until):
                await self._sleeper.wait(self._sleeper.join(None))
            self._sleeping_until = -inf
