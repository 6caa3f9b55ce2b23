from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from math import inf

from tenure.observe import Sketch
from tenure.waiting import now


class Tally:
    def __init__(self, parts: Iterable[Tally] = ()) -> None:
        self.seconds: float = 0.0
        self.counts: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.areas: defaultdict[str, float] = defaultdict(float)
        self.sketches: defaultdict[str, Sketch] = defaultdict(Sketch)
        for part in parts:
            self.add(part)

    def add(self, other: Tally) -> None:
        self.seconds = max(self.seconds, other.seconds)
        self.counts.update(other.counts)
        self.totals.update(other.totals)
        for name, area in other.areas.items():
            self.areas[name] += area
        for name, sketch in other.sketches.items():
            self.sketches[name].merge(sketch)

    def mean(self, name: str) -> float:
        return self.areas.get(name, 0.0) / self.seconds if self.seconds else 0.0

    def rate(self, name: str) -> float:
        return self.counts[name] / self.seconds if self.seconds else 0.0


class Window:
    """Totals, and the last `seconds` in slices, of which the oldest is forgotten first.

    The mean of a level is the area under it over the time (Little 1961). A slice has the area until its end, as if the
    level did not change again.
    """

    def __init__(self, *, seconds: float = 60.0, slices: int = 12, clock: Callable[[], float] = now) -> None:
        self.totals: Counter[str] = Counter()
        self.levels: Counter[str] = Counter()
        self._clock = clock
        self.born: float = -inf
        self._ends = -inf
        self._width = seconds / slices
        self._number = 0
        self._slices: deque[Tally] = deque([Tally()], maxlen=slices)

    def count(self, name: str) -> None:
        self.totals[name] += 1
        self.at(self._clock()).counts[name] += 1

    def record(self, name: str, value: float) -> None:
        self.at(self._clock()).sketches[name].record(value)

    def change(self, name: str, by: int) -> None:
        now = self._clock()
        areas = self.at(now).areas  # a slice that begins before now begins with the level of before
        areas[name] += by * (self._ends - now)
        self.levels[name] += by

    def at(self, now: float) -> Tally:
        if now >= self._ends:
            self.born = now if self.born == -inf else self.born
            most = self._slices.maxlen or 1
            number = int((now - self.born) / self._width)
            for _ in range(min(number - self._number, most)):
                self._slices.append(Tally())
                for name, level in self.levels.items():
                    self._slices[-1].areas[name] = level * self._width
            self._number = number
            self._ends = self.born + (number + 1) * self._width
        return self._slices[-1]

    def tally(self, now: float) -> Tally:
        self.at(now)
        tally = Tally(self._slices)
        tally.seconds = now - self.born - (self._number + 1 - len(self._slices)) * self._width
        tally.totals.update(self.totals)
        for name, level in self.levels.items():
            tally.areas[name] -= level * (self._ends - now)
        return tally
