"""Telling that nothing can ever happen again, and where everybody waits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class DeadlockError(AssertionError):
    """Every task waits, no timer is set, and nothing came from outside while the virtual clock was patient.

    The message lists the tasks and where each of them waits, innermost call first.
    """


def describe(tasks: Iterable[tuple[str, Any]]) -> str:
    """A report of `tasks`, given as pairs of name and coroutine."""
    lines = ["every task waits and no timer is set:"]
    for name, coroutine in tasks:
        lines.append(f"  {name}")
        lines += [f"    {frame}" for frame in reversed(_frames(coroutine))]
    return "\n".join(lines)


def _frames(awaitable: Any) -> list[str]:
    """The suspended calls of `awaitable`, outermost first, without those inside the loop's own library."""
    loops = [sys.modules[name].__file__ for name in ("anyio", "asyncio", "trio") if name in sys.modules]
    folders = tuple(str(Path(file).parent) for file in loops if file)
    frames: list[str] = []
    while awaitable is not None:
        for prefix, following in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            frame = getattr(awaitable, f"{prefix}_frame", None)
            if frame is not None:
                if not frame.f_code.co_filename.startswith(folders):
                    frames.append(
                        f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
                    )
                awaitable = getattr(awaitable, following, None)
                break
        else:
            awaitable = None
    return frames
