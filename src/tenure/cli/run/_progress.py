"""Progress: one line that is drawn over on a terminal, a quiet line now and then elsewhere."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from shutil import get_terminal_size
from threading import RLock
from typing import Any, TextIO, cast

import anyio

from tenure.observe import printable
from tenure.shared import QueueStatistics, WorkQueue

from ._inputs import Position
from ._leader import INPUT
from ._tally import RunTotals, total

_REDRAW = 0.5
_FIRST, _GROWTH, _LONGEST = 10.0, 1.5, 60.0
_WINDOW = 20
_BAR = 20
_CLEAR = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment: of `known` inputs (`exactly`: there are no more) `ended` have ended.

    `guess` is the number to be expected, as far as that is known; `rate` is endings per second.
    """

    done: int
    dead: int
    others: int
    retried: int
    known: int
    exactly: bool
    guess: int | None
    rate: float
    paused: bool = False
    leads: bool = True

    @property
    def ended(self) -> int:
        return self.done + self.dead + self.others

    @property
    def seconds_left(self) -> float | None:
        """The seconds that are left at this rate; None if unknown, as for a process that waits for the lead."""
        if self.guess is None or self.rate <= 0 or not self.leads:
            return None
        return max(0, self.guess - self.ended) / self.rate


def snapshot(statistics: QueueStatistics, cursors: dict[str, Any], retried: int, rate: float) -> Snapshot:
    position: Position = cursors.get(INPUT) or {"end": False, "share": None}
    inputs, share = statistics.put, position["share"]
    guess = inputs if position["end"] else ceil(inputs / share) if share else None
    others = statistics.discarded + statistics.cancelled + statistics.expired
    return Snapshot(
        done=statistics.done,
        dead=statistics.dead,
        others=others,
        retried=retried,
        known=inputs,
        exactly=position["end"],
        guess=guess,
        rate=rate,
        paused=statistics.paused,
    )


def bar(s: Snapshot) -> str:
    of = s.guess or s.known
    full = 0 if not of else _BAR * s.ended // of
    sign = "" if s.exactly else "~" if s.guess is not None else ">"
    parts = [f"[{'#' * min(full, _BAR):.<{_BAR}}] {s.ended:,}/{sign}{of:,}", *_figures(s)]
    return "  ".join(parts)


def quiet_line(s: Snapshot) -> str:
    of = (
        f"{s.known:,}"
        if s.exactly
        else f"about {s.guess:,}"
        if s.guess is not None
        else f"{s.known:,} or more"
    )
    return ", ".join([f"{s.ended:,} of {of} ended", *_figures(s)])


def _figures(s: Snapshot) -> list[str]:
    parts = [f"{s.rate:,.0f}/s" if s.rate >= 10 else f"{s.rate:.2g}/s"]
    if s.seconds_left is not None:
        parts.append(f"{duration(s.seconds_left)} left")
    if s.retried:
        parts.append(f"{s.retried:,} retried")
    if s.dead:
        parts.append(f"{s.dead:,} dead")
    if s.paused:
        parts.append("paused")
    return parts


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{ceil(seconds)} s"
    minutes, secs = divmod(ceil(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {secs} s"
    return f"{minutes // 60} h {minutes % 60} min"


class Screen:
    """The terminal on which progress is shown; lines printed in between do not mix with the bar.

    Thread safety: any.
    """

    def __init__(self, stream: TextIO) -> None:
        self.is_terminal = stream.isatty()
        self._stream = stream
        self._bar = ""
        self._lock = RLock()

    def say(self, text: str) -> None:
        self.above(self._stream, f"{printable(text)}\n")

    def draw(self, text: str) -> None:
        with self._lock:
            if text or self._bar:
                self._bar = text[: get_terminal_size().columns - 1]
                self._write(f"{_CLEAR}{self._bar}")

    def above(self, stream: TextIO, text: str) -> None:
        with self._lock:
            if not self._bar:
                stream.write(text)
                stream.flush()
            elif stream is self._stream:
                self._write(f"{_CLEAR}{text}{self._bar}")
            else:
                self._write(_CLEAR)
                stream.write(text)
                stream.flush()
                self._write(self._bar)

    @property
    def has_bar(self) -> bool:
        return bool(self._bar)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Above:
    def __init__(self, stream: TextIO, screen: Screen) -> None:
        self._stream = stream
        self._screen = screen
        self._partial = ""
        self._lock = RLock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._lock:
            lines, end, self._partial = (self._partial + text).rpartition("\n")
            if lines or end:
                self._screen.above(self._stream, lines + end)
            if self._partial and not self._screen.has_bar:
                self.finish()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def finish(self) -> None:
        with self._lock:
            partial_line, self._partial = self._partial, ""
            if partial_line:
                self._stream.write(partial_line)
                self._stream.flush()


@contextmanager
def prints_above(screen: Screen) -> Generator[None]:
    before = sys.stdout, sys.stderr
    changed = [
        _Above(stream, screen) if screen.is_terminal and stream.isatty() else stream for stream in before
    ]
    sys.stdout, sys.stderr = cast("tuple[TextIO, TextIO]", changed)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in changed:
            if isinstance(stream, _Above):
                stream.finish()


class Progress:
    def __init__(
        self, queue: WorkQueue, tally: RunTotals, screen: Screen, leads: Callable[[], bool] = lambda: True
    ) -> None:
        self._queue = queue
        self._tally = tally
        self._screen = screen
        self._leads = leads
        self._seen: deque[tuple[float, int]] = deque(maxlen=_WINDOW)

    async def show(self) -> None:
        pause = _REDRAW if self._screen.is_terminal else _FIRST
        shown: Snapshot | None = None  # a bar does not go back
        try:
            while True:
                seen = await self._look()
                if self._screen.is_terminal:
                    shown = seen if shown is None or seen.ended >= shown.ended else shown
                    self._screen.draw(bar(shown))
                elif len(self._seen) > 1:
                    self._screen.say(quiet_line(seen))
                    pause = min(_LONGEST, pause * _GROWTH)
                await anyio.sleep(pause)
        finally:
            self._screen.draw("")

    async def _look(self) -> Snapshot:
        # the cursors first: the input is read on meanwhile, and a share of more than was put would be too much
        cursors, statistics = await self._queue.cursors(), await self._queue.statistics()
        retried = self._tally.retried + total(cursors, without=self._queue.store.process).retried
        seen = snapshot(statistics, cursors, retried, 0.0)
        self._seen.append((anyio.current_time(), seen.ended))
        (first, before), (last, now) = self._seen[0], self._seen[-1]
        rate = max(0.0, (now - before) / (last - first)) if last > first else 0.0
        return replace(seen, rate=rate, leads=self._leads())
