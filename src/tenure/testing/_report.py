"""The message about a schedule that failed."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tenure.upkeep import leaves

from ._deadlock import DeadlockError
from ._runs import hint

if TYPE_CHECKING:
    from ._trace import Trace, TraceLine

MOST_TASKS = 8
MOST_STEPS = 8
MOST_TURNS = 12


def first_line(error: BaseException) -> str:
    return _told(next(leaves(error))).partition("\n")[0]


def report(
    error: BaseException, backend: str, trace: Trace | None, *, notes: list[str], how: str = ""
) -> str:
    errors = list(leaves(error))
    error = errors[0] if trace is None else min(errors, key=trace.raised)
    first, _, rest = _told(error).partition("\n")
    parts = [first, f"on {backend}{how}", hint(error, backend), *notes]
    if len(errors) > 1:
        others = ", ".join(first_line(each) for each in errors if each is not error)
        parts.append(f"after it: {others}")
    if trace is not None:
        trace.end_at(error)
        lines = trace.lines
        parts[1] += f", {_order(lines)}" if lines else ""
        if not isinstance(error, DeadlockError):
            # A deadlock has told it already.
            rest = "\n".join([rest, *_stood(lines)]) if rest else "\n".join(_stood(lines))
        parts += [rest, "the last steps:" if lines else "", trace.text(MOST_STEPS)]
    else:
        parts.append(rest)
    return "\n".join(part for part in parts if part)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _order(lines: list[TraceLine]) -> str:
    names = [line.task or f"({line.what})" for line in lines]
    turns = [
        name if (times := len(list(group))) == 1 else f"{name} x{times}" for name, group in groupby(names)
    ]
    left_out = len(turns) - MOST_TURNS
    shown = turns if left_out <= 0 else [f"{left_out} turns", *turns[-MOST_TURNS:]]
    return f"{len(turns) - 1} switches: {', '.join(shown)}"


def _stood(lines: list[TraceLine]) -> list[str]:
    last = {line.task: line.what for line in lines if line.task}
    order = dict.fromkeys(line.task for line in reversed(lines) if line.task)
    stood = [f"  {task:<22} {last[task]}" for task in order if last[task] != "ends"]
    more = len(stood) - MOST_TASKS
    return [
        *(["where each task stood:"] if stood else []),
        *stood[:MOST_TASKS],
        *([f"  ... and {more} more"] if more > 0 else []),
    ]
