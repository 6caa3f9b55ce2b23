from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import anyio

from tenure.waiting import now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import CodeType

    from tenure.observe import Reporter

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


class Wish:
    __slots__ = ("borrower", "exclusive", "key", "number", "task")

    key: object
    exclusive: bool
    number: int
    """The place among all waiters of the pool."""
    task: object
    """The task that has the resource."""
    borrower: Borrower | None


class Borrower:
    __slots__ = ("_calls", "_fields", "_reported", "_task", "since")

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._calls = list(islice(_calls_of_the_user(), FRAMES))
        self._task = anyio.get_current_task().name or "unnamed"
        self._fields = fields
        self.since = now()
        self._reported = False

    def leak(self, time: float) -> Leak:
        where = " > ".join(
            f"{code.co_filename}:{line} in {code.co_name}" for code, line in reversed(self._calls)
        )
        if self._calls:
            code, line = self._calls[0]
            where += f": {linecache.getline(code.co_filename, line).strip()}"
        return Leak(self._task, time - self.since, where)

    def report(self, time: float, reporter: Reporter) -> None:
        if not self._reported:
            self._reported = True
            leak = self.leak(time)
            reporter.warn("pool.leak", **self._fields, task=leak.task, seconds=leak.seconds, where=leak.where)


def _calls_of_the_user() -> Iterator[tuple[CodeType, int]]:
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if module.startswith(_LOOPS):
            return
        if package not in _LIBRARIES:
            yield frame.f_code, frame.f_lineno
        frame = frame.f_back
