"""The trace of a run: which task ran when, where it then waited, and which step failed."""

from __future__ import annotations

import linecache
import math
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ._waits import library_files, name_and_coroutine, suspended

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

LONGEST = 200
OWN = f"{Path(__file__).parent}{os.sep}"


class TraceLine(NamedTuple):
    at: str
    task: str
    what: str

    def __str__(self) -> str:
        return f"{self.at}  {self.task:<22} {self.what}" if self.task else f"             -- {self.what}"


class Trace:
    """The steps of one run. The last is still open until the next one begins or the trace is read."""

    def __init__(self) -> None:
        self._lines: list[TraceLine] = []
        self._open: tuple[str, str, Any] | None = None
        # Each error that was raised is kept, so that no other can have its id.
        self._raised: dict[int, tuple[int, str, BaseException]] = {}

    def step(self, number: int, task: Any, now: float) -> None:
        self._close()
        name, coroutine = name_and_coroutine(task)
        self._open = (f"{now:9.3f} s", f"{name.rpartition('.')[2]}#{number}", coroutine)

    def note(self, what: str) -> None:
        self._close()
        self._lines.append(TraceLine("", "", what))

    @contextmanager
    def watching(self) -> Generator[None]:
        """Note in which step each error is raised, while the block lasts; not below a debugger, which watches too."""
        if sys.gettrace() is not None:
            yield
            return
        sys.settrace(watch := self._watch)
        try:
            yield
        finally:
            if sys.gettrace() == watch:
                sys.settrace(None)

    def raised(self, error: BaseException) -> float:
        """The number of the step in which `error` was raised; larger than any other if not known."""
        return self._raised[id(error)][0] if id(error) in self._raised else math.inf

    def end_at(self, error: BaseException) -> None:
        """Leave out the steps after the step in which `error` was raised, if known."""
        self._close()
        if id(error) in self._raised:
            length, place, _ = self._raised[id(error)]
            del self._lines[length + 1 :]
            if self._lines[length:]:
                self._lines[length] = self._lines[length]._replace(what=place)

    @property
    def lines(self) -> list[TraceLine]:
        self._close()
        return self._lines

    def text(self, longest: int = LONGEST) -> str:
        lines = self.lines
        left_out = len(lines) - longest
        earlier = [f"  ... {left_out} earlier lines"] if left_out > 0 else []
        return "\n".join([*earlier, *map(str, lines[-longest:])])

    def _watch(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception":
            error = argument[1]
            if isinstance(error, BaseException) and id(error) not in self._raised:
                self._raised[id(error)] = (len(self._lines), _raised_in(frame), error)
        else:
            frame.f_trace_lines = False
        return self._watch

    def _close(self) -> None:
        if self._open is not None:
            at, task, coroutine = self._open
            self._open = None
            self._lines.append(TraceLine(at, task, where(coroutine)))


def where(coroutine: Any) -> str:
    if getattr(coroutine, "cr_frame", None) is None:
        return "ends"
    hidden = (*library_files(), OWN)
    shown = [frame for frame in suspended(coroutine)[0] if not frame.f_code.co_filename.startswith(hidden)]
    return f"waits in {_place(shown[-1])}" if shown else "waits"


def _raised_in(frame: FrameType | None) -> str:
    folders = library_files()
    while frame is not None and frame.f_code.co_filename.startswith(folders):
        frame = frame.f_back
    # Below the loop there are our own frames.
    ours = frame is None or frame.f_code.co_filename.startswith(OWN)
    return "fails" if frame is None or ours else f"fails in {_place(frame)}"


def _place(frame: FrameType) -> str:
    code = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return f"{code.co_name}, {Path(code.co_filename).name}:{frame.f_lineno}: {text}"
