"""The loans of a pool: which task borrowed what, where and when. Recorded only if leaks are reported."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import anyio

from tenure.waiting import now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.observe import Reporter

__all__ = ("Borrower", "Leak", "Loans")

FRAMES = 12


@dataclass(frozen=True, slots=True)
class Leak:
    """A resource that has been lent for longer than `leak_after`, and to whom."""

    task: str
    """The name of the task that took it."""
    seconds: float
    """For how long it has been lent."""
    where: str
    """The place of the call: the innermost frames, as a traceback prints them."""


class Borrower:
    """The task that took a resource, recorded when it is taken; its text is made on demand."""

    __slots__ = ("_stack", "_task", "fields", "reported", "since")

    def __init__(self, frames_up: int, fields: Mapping[str, object]) -> None:
        frames = traceback.walk_stack(sys._getframe(frames_up + 1))  # pyright: ignore[reportPrivateUsage]
        self._stack = traceback.StackSummary.extract(frames, limit=FRAMES, lookup_lines=False)
        self._task = anyio.get_current_task().name or "unnamed"
        self.fields = fields
        self.since = now()
        self.reported = False

    def leak(self, time: float) -> Leak:
        """Describe it."""
        return Leak(self._task, time - self.since, "".join(reversed(self._stack.format())))


class Loans:
    """The loans of one pool. `leak_after` is in seconds; infinite: nothing is noted.

    Thread safety: none; all on the thread of one loop.
    """

    __slots__ = ("_borrowers", "_leak_after", "_reporter", "noted")

    def __init__(self, leak_after: float, reporter: Reporter) -> None:
        self._leak_after = leak_after
        self._reporter = reporter
        self._borrowers: dict[Borrower, None] = {}
        self.noted = leak_after < inf

    def begin(self, frames_up: int, fields: Mapping[str, object]) -> Borrower:
        """Record a loan that was taken `depth` frames above the caller."""
        borrower = Borrower(frames_up, fields)
        self._borrowers[borrower] = None
        return borrower

    def end(self, borrower: Borrower) -> None:
        """Forget a loan that has ended."""
        del self._borrowers[borrower]

    def leaks(self) -> tuple[Leak, ...]:
        """Describe the loans that have lasted too long, the longest first."""
        time = now()
        return tuple(borrower.leak(time) for borrower in self._overdue(time))

    def leaked(self) -> int:
        """Count the loans that have lasted too long."""
        return len(self._overdue(now()))

    def report(self, time: float) -> None:
        """Report each of those once."""
        for borrower in self._overdue(time):
            if not borrower.reported:
                borrower.reported = True
                leak = borrower.leak(time)
                self._reporter.warn(
                    "pool.leak", **borrower.fields, task=leak.task, seconds=leak.seconds, where=leak.where
                )

    def next_look(self, time: float) -> float:
        """Return when `report` can have more, whatever happens meanwhile; `inf` for never."""
        pending = (borrower.since for borrower in self._borrowers if not borrower.reported)
        return min(next(pending, time), time) + self._leak_after

    def _overdue(self, time: float) -> list[Borrower]:
        return [borrower for borrower in self._borrowers if time >= borrower.since + self._leak_after]
