"""Benchmarks in processes of their own, whose rows come one by one, and which end at once when they are to.

A benchmark and all that it starts are one process group. Whatever handlers of signals a peer leaves behind are in that
group, and not in the process that the user interrupts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn

from benchmarks._inside import SEPARATOR
from benchmarks._measure import Row

ROOT = Path(__file__).parents[1]
GRACE = 2.0
"""Seconds to remove temporary files, after which what is left of a group is killed."""


class Interrupted(BaseException):
    """SIGINT or SIGTERM has come."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Failed(Exception):
    """A benchmark ended before its end; the text is the last line that it printed."""


@contextmanager
def interruptible() -> Generator[None]:
    """Raise Interrupted at the first SIGINT or SIGTERM, and ignore more of them."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, _: FrameType | None) -> NoReturn:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def rows_of(name: str, *words: str, environment: Mapping[str, str] | None = None) -> Iterator[Row | str]:
    """The rows of a benchmark as they come, and between them the lines that it prints.

    Raises Failed. Nothing that the benchmark has started is left when this ends, however it ends.
    """
    # a short name, since paths of sockets must be short; PostgreSQL, as another user, must be able to enter it
    with TemporaryDirectory(prefix="bench") as folder:
        Path(folder).chmod(0o711)
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._inside", name, *words],
            cwd=ROOT,
            env={**os.environ, **(environment or {}), "TMPDIR": folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            last = ""
            for line in process.stdout:
                # what was printed before a row may have no line's end
                before, _, row = line.partition(SEPARATOR)
                if text := before.strip():
                    last = text
                    yield text
                if row:
                    yield json.loads(row)
            if process.wait():
                raise Failed(last or f"ended with {process.returncode}")
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End the group: servers stop, Python unwinds; what does not within GRACE is killed."""
    give_up = time.monotonic() + GRACE
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        try:
            while time.monotonic() < give_up:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.02)
        finally:
            # also if Interrupted comes just then
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    process.wait()
