"""The trace of a run: which task ran when, and where it waited afterwards."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from typing import Any

LONGEST = 200


class Trace:
    """The steps of one run. The last is still open until the next one begins or `text` is asked for."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open: tuple[str, Any] | None = None

    def step(self, number: int, task: Any, now: float) -> None:
        """Task `number` takes a step at the time `now`."""
        self._close()
        name = (task.name if hasattr(task, "name") else task.get_name()).rpartition(".")[2]
        coroutine = task.coro if hasattr(task, "coro") else task.get_coro()
        self._open = (f"{now:9.3f} s  {name}#{number}", coroutine)

    def note(self, what: str) -> None:
        """Add a line for an event between two steps."""
        self._close()
        self._lines.append(f"             -- {what}")

    def text(self) -> str:
        """All of it, one line for each step; of a very long run the end."""
        self._close()
        left_out = len(self._lines) - LONGEST
        if left_out <= 0:
            return "\n".join(self._lines)
        return "\n".join([f"  ... {left_out} earlier lines", *self._lines[-LONGEST:]])

    def _close(self) -> None:
        if self._open is not None:
            name, coroutine = self._open
            self._open = None
            self._lines.append(f"{name:<36} {where(coroutine)}")


def where(coroutine: Any) -> str:
    """The place in which a task waits: the innermost line outside of the loops' own libraries, with its text."""
    if getattr(coroutine, "cr_frame", None) is None:
        return "ends"
    frame = _innermost(coroutine)
    if frame is None:
        return "waits"
    code = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return f"waits in {code.co_name}, {Path(code.co_filename).name}:{frame.f_lineno}: {text}"


def _innermost(awaitable: Any) -> Any:
    loops = [loop.__file__ for name in ("anyio", "asyncio", "trio") if (loop := sys.modules.get(name))]
    folders = tuple(str(Path(file).parent) for file in loops if file)
    innermost = None
    while awaitable is not None:
        for prefix, following in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            frame = getattr(awaitable, f"{prefix}_frame", None)
            if frame is not None:
                if not frame.f_code.co_filename.startswith(folders):
                    innermost = frame
                awaitable = getattr(awaitable, following, None)
                break
        else:
            break
    return innermost
