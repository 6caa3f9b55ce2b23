"""The times at which the waiters of one line have to leave it, kept by one timer of the loop.

A timer for each waiter costs more than the rest of a hand-over. A waiter that has left stays in the heap until its
time, or until most in the heap have left: adding costs O(log n), and leaving O(1) on average.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ._park import call_at, context_of_callbacks, now, this_loop

if TYPE_CHECKING:
    from collections.abc import Callable


class Linked(Protocol):
    linked: bool
    """True while the waiter stands in the line."""


W = TypeVar("W", bound=Linked)


class Deadlines(Generic[W]):
    """Calls a function with each waiter that stands in the line when its time has come. For one loop of asyncio."""

    __slots__ = ("_cancel", "_context", "_due", "_expire", "_number", "heap", "loop")

    def __init__(self, expire: Callable[[W], None]) -> None:
        self.loop = this_loop()
        self.heap: list[tuple[float, int, W]] = []
        self._expire = expire
        self._number = count()
        self._due = 0.0
        self._cancel: Callable[[], None] | None = None
        # no waiter's: the timer would keep it for the longest limit
        self._context = context_of_callbacks()

    def add(self, waiter: W, seconds: float) -> None:
        heappush(self.heap, (now() + seconds, next(self._number), waiter))
        if self.heap[0][2] is waiter:
            self._arm()

    def tidy(self) -> None:
        self.heap = [entry for entry in self.heap if entry[2].linked]
        heapify(self.heap)
        if not self.heap and self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _arm(self) -> None:
        if self._cancel is not None:
            self._cancel()
        self._due = self.heap[0][0]
        self._cancel = call_at(self._due, self._on_time, self._context)

    def _on_time(self) -> None:
        self._cancel = None
        # uvloop calls up to half a millisecond early: set anew for the rest, the timer would be called in each turn
        time = max(self._due, now())
        while self.heap and (self.heap[0][0] <= time or not self.heap[0][2].linked):
            waiter = heappop(self.heap)[2]
            if waiter.linked:
                self._expire(waiter)
        if self.heap:
            self._arm()
