"""The times at which the waiters of one line have to leave it, kept by one timer of the loop.

A timer for each waiter costs more than the rest of a hand-over. So the times are in a heap, and the timer is set to the
first of them. A waiter that has left stays in the heap until its time, or until most in the heap have left. So adding
costs O(log n), and leaving costs nothing.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ._park import call_at, now, this_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

__all__ = ("Deadlines",)


class Linked(Protocol):
    """A waiter of a line."""

    linked: bool
    """True while the waiter stands in the line."""


W = TypeVar("W", bound=Linked)


class Deadlines(Generic[W]):
    """Calls a function with each waiter that stands in the line when its time has come.

    All on one loop, the loop that runs when it is made: loops differ in their clocks, and a closed loop calls no timer.

    Thread safety: none; all on the thread of its loop. For asyncio alone: trio has no timers.
    """

    __slots__ = ("_cancel", "_expire", "_heap", "_line", "_number", "loop")

    def __init__(self, line: Sized, expire: Callable[[W], None]) -> None:
        """Make an empty heap without a timer."""
        self.loop = this_loop()
        self._line = line
        self._expire = expire
        self._heap: list[tuple[float, int, W]] = []
        self._number = count()
        self._cancel: Callable[[], None] | None = None

    def add(self, waiter: W, seconds: float) -> None:
        """Have a waiter that stands in the line leave after `seconds`."""
        if len(self._heap) > 2 * len(self._line):
            self._heap = [entry for entry in self._heap if entry[2].linked]
            heapify(self._heap)
        heappush(self._heap, (now() + seconds, next(self._number), waiter))
        if self._heap[0][2] is waiter:
            self._arm()

    def stop(self) -> None:
        """Forget all waiters, and cancel the timer."""
        self._heap.clear()
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _arm(self) -> None:
        if self._cancel is not None:
            self._cancel()
        self._cancel = call_at(self._heap[0][0], self._on_time)

    def _on_time(self) -> None:
        self._cancel = None
        time = now()
        while self._heap and (self._heap[0][0] <= time or not self._heap[0][2].linked):
            waiter = heappop(self._heap)[2]
            if waiter.linked:
                self._expire(waiter)
        if self._heap:
            self._arm()
