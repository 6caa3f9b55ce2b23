"""The loans of a pool: which task borrowed what, where and when. Recorded only if leaks are reported."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import anyio

from tenure.waiting import now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import CodeType

    from tenure.observe import Reporter

__all__ = ("Borrower", "Leak", "Loans")

FRAMES = 5
_LIBRARIES = {"anyio", "asyncio", "contextlib", "tenure"}
# below these frames is the call that runs the loop
_LOOPS = ("asyncio.base_events", "asyncio.events", "asyncio.runners", "trio._core")


@dataclass(frozen=True, slots=True)
class Leak:
    """A resource that has been lent for longer than `leak_after`, and to whom."""

    task: str
    """The name of the task that took it."""
    seconds: float
    """The seconds since the resource was lent."""
    where: str
    """The calls that led there, in one line, innermost last, with its line of code."""


class Borrower:
    """The task that took a resource, recorded when it is taken; its text is made on demand."""

    __slots__ = ("_calls", "_task", "fields", "reported", "since")

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._calls = list(islice(_calls_of_the_user(), FRAMES))
        self._task = anyio.get_current_task().name or "unnamed"
        self.fields = fields
        self.since = now()
        self.reported = False

    def leak(self, time: float) -> Leak:
        """Describe the loan."""
        where = " > ".join(
            f"{code.co_filename}:{line} in {code.co_name}" for code, line in reversed(self._calls)
        )
        if self._calls:
            code, line = self._calls[0]
            where += f": {linecache.getline(code.co_filename, line).strip()}"
        return Leak(self._task, time - self.since, where)


def _calls_of_the_user() -> Iterator[tuple[CodeType, int]]:
    """Go outwards through the calls of this task that are not made by a library between it and the event loop."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if module.startswith(_LOOPS):
            return
        if package not in _LIBRARIES:
            yield frame.f_code, frame.f_lineno
        frame = frame.f_back


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

    def begin(self, fields: Mapping[str, object]) -> Borrower:
        """Record a loan of the running task."""
        borrower = Borrower(fields)
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
