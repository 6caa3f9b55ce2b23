"""Progress: one line that is drawn over on a terminal, a quiet line now and then elsewhere."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil
from shutil import get_terminal_size
from typing import Any, TextIO

import anyio

from tenure.shared import QueueStatistics, WorkQueue

from ._inputs import Position
from ._steward import INPUT
from ._tally import Tally, total

_REDRAW = 0.5
_FIRST, _GROWTH, _LONGEST = 10.0, 1.5, 60.0
_WINDOW = 20
_BAR = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment: of `known` inputs (`exactly`: there are no more) so many have ended.

    `guess` is how many there will be, as far as it can be told; `rate` is endings per second.
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

    @property
    def ended(self) -> int:
        """How many have ended in any way."""
        return self.done + self.dead + self.others

    @property
    def seconds_left(self) -> float | None:
        """How long it will take at this rate; None if it cannot be told."""
        if self.guess is None or self.rate <= 0:
            return None
        return max(0, self.guess - self.ended) / self.rate


def snapshot(statistics: QueueStatistics, cursors: dict[str, Any], retried: int, rate: float) -> Snapshot:
    """What the store tells, with the rate measured here."""
    position: Position = cursors.get(INPUT) or {"end": False, "share": None}
    known, share = statistics.put, position["share"]
    guess = known if position["end"] else ceil(known / share) if share else None
    others = statistics.discarded + statistics.cancelled + statistics.expired
    return Snapshot(
        done=statistics.done,
        dead=statistics.dead,
        others=others,
        retried=retried,
        known=known,
        exactly=position["end"],
        guess=guess,
        rate=rate,
        paused=statistics.paused,
    )


def bar(s: Snapshot) -> str:
    """The line for a terminal."""
    of = s.guess or s.known
    full = 0 if not of else _BAR * s.ended // of
    about = "" if s.exactly else "~" if s.guess is not None else ">"
    parts = [f"[{'#' * min(full, _BAR):.<{_BAR}}] {s.ended:,}/{about}{of:,}", *_figures(s)]
    return "  ".join(parts)


def quiet_line(s: Snapshot) -> str:
    """The line for a log."""
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
    """So many seconds, as one says it."""
    if seconds < 60:
        return f"{ceil(seconds)} s"
    minutes, rest = divmod(ceil(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


class Screen:
    """Where progress is shown; lines that are said in between do not mix with the bar.

    Thread safety: none.
    """

    def __init__(self, stream: TextIO) -> None:
        self.is_terminal = stream.isatty()
        self._stream = stream
        self._bar = ""

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(f"\r\x1b[K{text}\n{self._bar}" if self._bar else f"{text}\n")

    def draw(self, text: str) -> None:
        """The bar, over the one before; an empty one takes it away."""
        if text or self._bar:
            self._bar = text[: get_terminal_size().columns - 1]
            self._write(f"\r\x1b[K{self._bar}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Progress:
    """Shows how one run goes.

    Thread safety: none.
    """

    def __init__(self, queue: WorkQueue, tally: Tally, screen: Screen) -> None:
        self._queue = queue
        self._tally = tally
        self._screen = screen
        self._seen: deque[tuple[float, int]] = deque(maxlen=_WINDOW)

    async def show(self) -> None:
        """Show it until cancelled. Cancellation: the bar is taken away."""
        pause = _REDRAW if self._screen.is_terminal else _FIRST
        try:
            while True:
                seen = await self._look()
                if self._screen.is_terminal:
                    self._screen.draw(bar(seen))
                elif len(self._seen) > 1:
                    self._screen.say(quiet_line(seen))
                    pause = min(_LONGEST, pause * _GROWTH)
                await anyio.sleep(pause)
        finally:
            self._screen.draw("")

    async def _look(self) -> Snapshot:
        statistics, cursors = await self._queue.statistics(), await self._queue.cursors()
        retried = self._tally.retried + total(cursors, without=self._queue.store.process).retried
        seen = snapshot(statistics, cursors, retried, 0.0)
        self._seen.append((anyio.current_time(), seen.ended))
        (first, before), (last, now) = self._seen[0], self._seen[-1]
        rate = (now - before) / (last - first) if last > first else 0.0
        return snapshot(statistics, cursors, retried, rate)
