"""The events of the last minute: counts, distributions and levels."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable

from ._sketch import Sketch


class Slice:
    """A part of the window: from when on, what was counted and measured in it, and the areas when it began."""

    __slots__ = ("areas", "began", "counts", "sketches")

    def __init__(self, began: float, areas: dict[str, float]) -> None:
        self.began: float = began
        self.counts: dict[str, int] = {}
        self.sketches: defaultdict[str, Sketch] = defaultdict(Sketch)
        self.areas: dict[str, float] = areas


class Level:
    """A level: the present number, and the area under it until a time."""

    __slots__ = ("area", "until", "value")

    def __init__(self, now: float) -> None:
        self.value = 0
        self.area = 0.0
        self.until = now


class Tally:
    """The sums of a window; tallies of windows of the same age add up too.

    `seconds` is how long the window has been; `counts`, `sketches`, and `means` of the levels are over that time,
    `totals` since the beginning.
    """

    __slots__ = ("counts", "means", "seconds", "sketches", "totals")

    def __init__(self) -> None:
        self.seconds: float = 0.0
        self.counts: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.means: defaultdict[str, float] = defaultdict(float)
        self.sketches: defaultdict[str, Sketch] = defaultdict(Sketch)

    def add(self, other: Tally) -> None:
        """Add the counts of another window."""
        self.seconds = max(self.seconds, other.seconds)
        self.counts.update(other.counts)
        self.totals.update(other.totals)
        for name, mean in other.means.items():
            self.means[name] += mean
        for name, sketch in other.sketches.items():
            self.sketches[name].merge(sketch)


def total_of(tallies: Iterable[Tally]) -> Tally:
    """Add tallies up."""
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
    return whole


class Window:
    """The last `seconds`, in slices that are forgotten one after the other; and totals.

    A level is how many of something there are at a time. Its mean is the area under it over the time, which by Little's
    law is the rate of arrivals times the mean stay; but it counts stays that go on as well. Times are the caller's.

    Thread safety: none. Source: Little 1961.
    """

    def __init__(self, now: float, *, seconds: float = 60.0, slices: int = 12) -> None:
        self.totals: dict[str, int] = {}
        self._born = now
        self._width = seconds / slices
        self._number = 0
        self._levels: dict[str, Level] = {}
        self._last = Slice(now, {})
        self._ends = now + self._width
        self._slices: deque[Slice] = deque([self._last], maxlen=slices)

    def count(self, name: str, now: float) -> None:
        """Count an event."""
        self.totals[name] = self.totals.get(name, 0) + 1
        counts = self.at(now).counts
        counts[name] = counts.get(name, 0) + 1

    def record(self, name: str, value: float, now: float) -> None:
        """Record a measurement."""
        self.at(now).sketches[name].record(value)

    def change(self, name: str, by: int, now: float) -> None:
        """Change a level by `by`."""
        self.at(now)  # a slice that begins before now begins with the level of before
        level = self._levels.get(name)
        if level is None:
            level = self._levels[name] = Level(now)
        level.area += level.value * (now - level.until)
        level.value += by
        level.until = now

    def level(self, name: str) -> int:
        """The present number."""
        return self._levels[name].value if name in self._levels else 0

    def at(self, now: float) -> Slice:
        """The slice of this moment."""
        if now >= self._ends:
            most = self._slices.maxlen or 1
            number = int((now - self._born) / self._width)
            for each in range(max(self._number + 1, number - most + 1), number + 1):
                began = self._born + each * self._width
                self._last = Slice(began, self._areas(began))
                self._slices.append(self._last)
            self._number = number
            self._ends = self._born + (number + 1) * self._width
        return self._last

    def tally(self, now: float) -> Tally:
        """Add up the slices in the window."""
        self.at(now)
        first = self._slices[0]
        tally = Tally()
        tally.seconds = now - first.began
        tally.totals.update(self.totals)
        for each in self._slices:
            tally.counts.update(each.counts)
            for name, sketch in each.sketches.items():
                tally.sketches[name].merge(sketch)
        if tally.seconds > 0:
            for name, area in self._areas(now).items():
                tally.means[name] = (area - first.areas.get(name, 0.0)) / tally.seconds
        return tally

    def _areas(self, now: float) -> dict[str, float]:
        return {name: each.area + each.value * (now - each.until) for name, each in self._levels.items()}
