"""The error that ends `tenure work`, in the format of its log."""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tenure.cli._errors import one_line
from tenure.observe import is_ours, log
from tenure.upkeep import leaves

from ._children import TOLD

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def report(
    problem: BaseException, module: str, *, text: bool, ours: bool, told: tuple[int, int] | None
) -> None:
    """Log the first of the errors, with the place and the frames that are of the user's `module` or program.

    In `text`, a traceback is followed by the line with which each command ends; so is the log of the user, which may be
    elsewhere (not `ours`). Nothing is logged of an error that the file `told` has already, of this or another process.
    """
    error = next(leaves(problem))
    package = module.partition(".")[0]
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = _users(link.__traceback__, package)
        link = link.__cause__ or link.__context__
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    line = one_line(error, "" if last is None else f"{_place(last)}: {_name(type(error))}: ")
    if told is not None:
        file, place = told
        known = line.encode("utf-8", "replace")[:TOLD].ljust(TOLD)
        others = b""
        with suppress(OSError):  # a full disk, or no locks
            os.lockf(file, os.F_LOCK, 0)  # other processes may die at the same time
            others = os.pread(file, os.fstat(file).st_size, 0)
            os.pwrite(file, known, place + TOLD)
            os.lockf(file, os.F_ULOCK, 0)
        if any(others[i : i + TOLD] == known for i in range(TOLD, len(others), 2 * TOLD)):
            return
    log(logging.ERROR, line, *([] if last is None else [{"error": error}]))
    if not ours or (text and error.__traceback__ is not None):
        print(f"tenure: {line}", file=sys.stderr)


def _users(trace: TracebackType | None, package: str) -> TracebackType | None:
    if trace is None:
        return None
    rest = _users(trace.tb_next, package)
    frame = trace.tb_frame
    name = frame.f_globals.get("__name__", "")
    file = frame.f_code.co_filename
    if name.partition(".")[0] != package and (is_ours(file) or file.startswith((*_LIBRARIES, "<"))):
        return rest
    return TracebackType(rest, frame, trace.tb_lasti, trace.tb_lineno)


def _place(trace: TracebackType) -> str:
    file = Path(trace.tb_frame.f_code.co_filename)
    with suppress(OSError, ValueError):  # the working directory was deleted, or is elsewhere
        file = file.relative_to(Path.cwd())
    return f"{file}:{trace.tb_lineno}"


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
