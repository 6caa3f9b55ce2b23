from __future__ import annotations

import json
import traceback
from datetime import UTC, datetime
from typing import NamedTuple

from tenure.handlers import describe
from tenure.observe import trimmed

from ._at_work import THIRTY_YEARS

_MOST_EARLIER = 10
_LONGEST_LINE = 200
_NEWLINE = "\n"
_LONGEST_TRACEBACK = 8192
"""Bytes in UTF-8; the end of a longer traceback is kept, with the innermost frames and the error."""


class Failures(NamedTuple):
    """The failures of a task: the last try, and one line for each of up to ten before it, the oldest first.

    `tried` says which try it was, when it began and how long it ran.

    `alone` has a number for each delivery that the task began alone: how many deliveries before it had no verdict.
    """

    tried: str = ""
    error: str = ""
    traceback: str = ""
    earlier: tuple[str, ...] = ()
    alone: tuple[int, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The failures, in a line each."""
        line = f"{self.tried}: {self.error.partition(_NEWLINE)[0]}"[:_LONGEST_LINE]
        return (*self.earlier, line) if self.error else ()


def tried_at(attempt: int, token: int, seconds: float | None) -> str:
    began = token / 1e6
    # the tokens of memory begin with the clock of the loop, which is no date
    date = f", {datetime.fromtimestamp(began, UTC):%Y-%m-%dT%H:%M:%SZ}" if began > THIRTY_YEARS else ""
    return f"try {attempt}{date}" + ("" if seconds is None else f", ran {seconds:.3f} s")


def recorded(error: BaseException, tried: str, before: bytes, *, with_traceback: bool) -> bytes:
    trace = _traceback_of(error) if with_traceback else ""
    return _written(Failures(tried, describe(error), trace, read(before).lines[-_MOST_EARLIER:]))


def noted(record: bytes, alone: tuple[int, ...]) -> bytes:
    return _written(read(record)._replace(alone=alone))


def read(record: bytes) -> Failures:
    if not record:
        return Failures()
    tried, error, trace, earlier, *alone = json.loads(record)
    return Failures(tried, error, trace, tuple(earlier), tuple(alone))


def _written(failures: Failures) -> bytes:
    fields = (*failures[:4], *failures.alone)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _traceback_of(error: BaseException) -> str:
    try:
        # from the user's frames on; each part is a frame, or the error
        parts = traceback.format_exception(type(error), error, trimmed(error.__traceback__))
    except BaseException as problem:  # noqa: BLE001 whatever the error is, the task must be settled
        return f"the traceback cannot be formatted: {describe(problem)}\n"
    kept: list[str] = []
    left = _LONGEST_TRACEBACK - 4
    for part in reversed(parts):
        size = len(part.encode(errors="replace"))
        if size > left:
            kept.append("...\n" if kept else part.encode(errors="replace")[:left].decode(errors="ignore"))
            break
        kept.append(part)
        left -= size
    return "".join(reversed(kept))
