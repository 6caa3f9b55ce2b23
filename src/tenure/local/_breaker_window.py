"""The memory of a circuit breaker: a call is a *mark*: 0, or FAILED, or SLOW, or both.

Both windows count in O(1) a call: one in a ring, as in resilience4j; the other in ten slices of time, as in
failsafe-go.
"""

from __future__ import annotations

from collections import deque
from math import inf

FAILED = 1
SLOW = 2
SLICES = 10


class CountWindow:
    __slots__ = ("_next", "_ring", "_size", "calls", "failures", "slow")

    calls: int
    failures: int
    slow: int

    def __init__(self, size: int) -> None:
        self._size = size
        self._ring = bytearray(size)
        self._next = 0
        self.calls = self.failures = self.slow = 0

    def add(self, mark: int, now: float) -> None:  # noqa: ARG002 - the other window needs the time
        place = self._next
        old = self._ring[place]
        if mark != old:
            self._ring[place] = mark
            self.failures += (mark & FAILED) - (old & FAILED)
            self.slow += (mark >> 1) - (old >> 1)
        place += 1
        self._next = place if place < self._size else 0
        if self.calls < self._size:
            self.calls += 1


class TimeWindow:
    """The calls of the last `seconds`, forgotten a slice of a tenth at a time. The counts are as of the last `add`."""

    __slots__ = ("_ends", "_slices", "_width", "calls", "failures", "slow")

    calls: int
    failures: int
    slow: int

    def __init__(self, seconds: float) -> None:
        self._width = seconds / SLICES
        self._ends = -inf
        self._slices: deque[list[int]] = deque()
        self.calls = self.failures = self.slow = 0

    def add(self, mark: int, now: float) -> None:
        late = now - self._ends
        if not -self._width <= late < 0:
            self._roll(late, now)
        part = self._slices[-1]
        part[0] += 1
        self.calls += 1
        if mark:
            part[1] += mark & FAILED
            self.failures += mark & FAILED
            part[2] += mark >> 1
            self.slow += mark >> 1

    def _roll(self, late: float, now: float) -> None:
        slices = self._slices
        if late < 0:  # another loop, with another clock
            self._ends = now + self._width
            return
        if late >= (SLICES - 1) * self._width:
            slices.clear()
            self.calls = self.failures = self.slow = 0
            slices.append([0, 0, 0])
            self._ends = now + self._width
            return
        while now >= self._ends:
            slices.append([0, 0, 0])
            self._ends += self._width
        while len(slices) > SLICES:
            calls, failures, slow = slices.popleft()
            self.calls -= calls
            self.failures -= failures
            self.slow -= slow
