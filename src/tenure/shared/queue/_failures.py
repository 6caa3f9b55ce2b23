from __future__ import annotations

import json
import traceback
from typing import NamedTuple

from tenure.handlers import describe
from tenure.observe import trimmed

_MOST_EARLIER = 10
_LONGEST_LINE = 200
_NEWLINE = "\n"
_LONGEST_TRACEBACK = 8192
"""Bytes in UTF-8; the end of a longer traceback is kept, with the innermost frames and the error."""


class Failures(NamedTuple):
    """The failures of a task: the last try, and one line for each of up to ten before it, the oldest first.

    `alone` has a number for each delivery that the task began alone: how many deliveries before it had no verdict.
    """

    attempt: int = 0
    error: str = ""
    traceback: str = ""
    earlier: tuple[str, ...] = ()
    alone: tuple[int, ...] = ()

    @property
    def line(self) -> str:
        return f"try {self.attempt}: {self.error.partition(_NEWLINE)[0]}"[:_LONGEST_LINE]


def recorded(error: BaseException, attempt: int, before: bytes, *, with_traceback: bool) -> bytes:
    last = read(before)
    earlier = (*last.earlier, last.line) if last.error else ()
    trace = _traceback_of(error) if with_traceback else ""
    failures = Failures(attempt, describe(error), trace, earlier[-_MOST_EARLIER:])
    return _written(failures)


def noted(record: bytes, alone: tuple[int, ...]) -> bytes:
    return _written(read(record)._replace(alone=alone))


def read(record: bytes) -> Failures:
    if not record:
        return Failures()
    attempt, error, trace, earlier, *alone = json.loads(record)
    return Failures(attempt, error, trace, tuple(earlier), tuple(alone))


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
