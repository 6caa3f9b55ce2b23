from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import uniform

import anyio

from tenure.waiting import Line, now

_LEAST_PAUSE = 0.02


def jittered(seconds: float, *, least: float = 0.0) -> float:
    """Lengthen a period at random by up to a tenth, at most 0.2 s, so that many processes do not act at once."""
    seconds = max(seconds, least)
    return seconds + uniform(0, min(0.1 * seconds, 0.2))


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._sleeping_until = inf
        self._sleeper: Line[None, None] = Line(owner="the store")

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        heappush(self._heap, (when, next(self._number), function))
        if when < self._sleeping_until and (sleeper := self._sleeper.head()) is not None:
            self._sleeper.grant(sleeper, None)

    async def run(self) -> None:
        while True:
            time = now()
            while self._heap and self._heap[0][0] <= time:
                heappop(self._heap)[2]()
            self._sleeping_until = self._heap[0][0] if self._heap else inf
            with anyio.CancelScope(deadline=self._sleeping_until):
                await self._sleeper.wait(self._sleeper.join(None))
            self._sleeping_until = -inf


class Timer:
    """Calls a function at the time that was set last.

    One entry in the heap serves for a timer that is set later and later:

    | state   | `_armed` | `due`      | `set`                     | its time has come        |
    |---------|----------|------------|---------------------------|--------------------------|
    | idle    | inf      | inf        | armed                     | -                        |
    | armed   | t        | t          | earlier: armed; else late | calls, idle              |
    | late    | t        | later than t | earlier than t: armed   | armed for `due`         |
    """

    def __init__(
        self, call_at: Callable[[float, Callable[[], None]], None], function: Callable[[], None]
    ) -> None:
        self._call_at = call_at
        self._function = function
        self.due: float = inf
        """The time that was set last; infinite once the function is called."""
        self._armed = inf

    def set(self, seconds: float) -> None:
        """Call the function after so many seconds and a little more, at random, instead of at the time set before."""
        self.due = now() + jittered(seconds, least=_LEAST_PAUSE)
        if self.due < self._armed:
            self._arm()

    def stop(self) -> None:
        self.due = inf

    def _arm(self) -> None:
        self._armed = self.due
        self._call_at(self._armed, partial(self._on_time, self._armed))

    def _on_time(self, when: float) -> None:
        if when == self._armed:
            self._armed = inf
            if self.due <= when:
                self.due = inf
                self._function()
            elif self.due < inf:
                self._arm()
