"""The processes of `tenure work --processes N` and `--reload`."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from tenure.cli._stop import handled
from tenure.cli._table import many
from tenure.observe import log
from tenure.serving import ending_signals, is_hangup

from ._sources import ReloadWatcher

_TURN = 0.05
_LONGEST_PAUSE = 30.0
LONG = 60.0
"""A process that has lived for so many seconds is well: its deaths before do not count."""

_KINDS = 100
"""The number of kinds of deaths after which all are forgotten: errors that hold a time differ each time."""

_TIMEOUT = 5.0
"""Seconds beyond the grace in which a process has to end."""

_USAGE = 2

CHILD = "TENURE_WORK_CHILD"
"""The variable that tells a process its number, its parent, the file for what it tells the parent, and its deaths."""

TOLD = 200
"""The most bytes of what a process tells its parent: how many tasks it has, and then the error that ended it.

All processes tell it in one file, each in its place.
"""

RENEW = "+"
"""The first character of what a process has told that ends in order to be replaced."""


class _Child:
    def __init__(self, number: int, command: Sequence[str], file: int) -> None:
        self.number = number
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.due: float | None = 0.0
        self.code = 0
        self.limit: float | None = None
        """The time at which the process is killed."""
        self.renewed = False
        """True if the process was stopped so that it starts again."""
        self.failures = 0
        self.began = 0.0
        self._file = file
        self._place = 2 * TOLD * (number - 1)

    def __str__(self) -> str:
        return f"process {self.number}" + (f" ({self.process.pid})" if self.process else "")

    def start(self, deaths: int) -> None:
        self.forget(error=not self.failures)  # else it stays, for the process to know it again
        # a group of its own: Ctrl-C in a terminal reaches the whole group, and each signal counts
        self.process = subprocess.Popen(  # noqa: S603
            self.command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, CHILD: f"{self.number}:{os.getpid()}:{self._file}:{deaths}"},
            process_group=0,
            pass_fds=[self._file],
        )
        self.due = self.limit = None
        self.renewed = False
        self.began = time.monotonic()

    def stop(self, number: signal.Signals, seconds: float) -> None:
        self.due = None
        if self.process is not None:
            self.process.send_signal(number)
            limit = time.monotonic() + seconds
            self.limit = limit if self.limit is None else min(self.limit, limit)

    def pause(self) -> float:
        self.failures += 1
        return min(_LONGEST_PAUSE, 0.5 * 2.0 ** min(self.failures, 10))

    def told(self) -> tuple[str, bytes]:
        """Return what the process has told of its tasks, and the error that ended it."""
        text = os.pread(self._file, 2 * TOLD, self._place)
        return text[:TOLD].decode().rstrip("\0 "), text[TOLD:]

    def forget(self, *, error: bool) -> None:
        with suppress(OSError):  # a full disk
            os.pwrite(self._file, b"".ljust(TOLD * (1 + error)), self._place)


class Children:
    """Runs a command in several processes, until a signal comes or all have ended by themselves.

    A process that dies, or ends in order to be replaced, is started again. With `sources`, all are stopped and started
    again when a file has changed.
    """

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        grace: float,
        sources: ReloadWatcher | None,
    ) -> None:
        self._told = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - `run` closes it
        file = self._told.fileno()
        self._children = [_Child(number, command, file) for number in range(1, processes + 1)]
        self._deaths = Counter[tuple[int, bytes]]()
        """The number of deaths of each kind, until all processes are well."""
        self._grace = grace
        self._sources = sources
        self._signals: list[int] = []
        self._stopping = 0
        self._misused = False

    def run(self) -> int:
        """Return the exit code: 0 if each process has ended with 0, 2 if one was misused, else 1."""
        try:
            with handled(dict.fromkeys(ending_signals(), self._note)):
                while self._turn():
                    time.sleep(_TURN)
        finally:
            for child in self._children:
                if child.process is not None:  # a fault of ours: none may be left behind
                    child.process.kill()
                    child.process.wait()
            self._told.close()
        if self._misused:
            return _USAGE
        return 0 if all(child.code == 0 for child in self._children) else 1

    def _note(self, number: int, frame: FrameType | None) -> None:
        # the processes are signalled in the next turn: Python may be about to collect one here
        del frame
        self._signals.append(number)

    def _turn(self) -> bool:
        while self._signals:
            number = self._signals.pop(0)
            if not (self._stopping and is_hangup(number)):
                self._stop(signal.Signals(number).name)
        if self._sources is not None and self._sources.changed() and not self._stopping:
            self._renew()
        for child in self._children:
            self._look_at(child)
        waits_for_change = self._sources is not None and not self._stopping
        return waits_for_change or any(
            child.process is not None or child.due is not None for child in self._children
        )

    def _stop(self, reason: str) -> None:
        """Pass a stop on: the first lets the processes drain, further ones make them give back what they have."""
        self._stopping += 1
        if self._stopping == 1:
            log(logging.INFO, f"{reason}: stops {many(len(self._children), 'process', 'processes')}")
        for child in self._children:
            if self._stopping == 1:
                child.stop(signal.SIGTERM, self._grace + _TIMEOUT)
            else:
                child.stop(signal.SIGINT, _TIMEOUT)

    def _renew(self) -> None:
        log(logging.INFO, "a file has changed: starts again")
        for child in self._children:
            child.renewed = True
            if child.process is None:
                child.due = time.monotonic()
            else:
                child.stop(signal.SIGTERM, self._grace + _TIMEOUT)

    def _look_at(self, child: _Child) -> None:
        if child.process is not None:
            if child.process.poll() is None:
                if child.limit is not None and time.monotonic() >= child.limit:
                    log(logging.WARNING, f"{child} does not end: kills it")
                    child.limit = None
                    child.process.kill()
                if child.failures and time.monotonic() - child.began >= LONG:
                    child.failures = 0
                    child.forget(error=True)
                    if not any(other.failures for other in self._children):
                        log(logging.INFO, "all processes have run for a minute")
                        self._deaths.clear()
                return
            self._ended(child, child.process.returncode)
        if child.due is not None and time.monotonic() >= child.due:
            child.start(self._deaths.total())

    def _ended(self, child: _Child, code: int) -> None:
        name = str(child)
        child.process, child.code = None, code
        told, error = child.told()
        if code == 0 and told.startswith(RENEW):
            child.renewed = True
        if self._stopping or (code == 0 and not child.renewed):
            return
        if child.renewed:
            child.due = time.monotonic()
        elif self._sources is not None:
            log(logging.ERROR, f"{name} {_death(code)}{told}; waits until a file changes")
        elif code == _USAGE:
            self._misused = True
            self._stop("wrong usage")
        else:
            pause = child.pause()
            child.due = time.monotonic() + pause
            if len(self._deaths) == _KINDS:
                self._deaths.clear()
            self._deaths[code, error] += 1
            count = self._deaths[code, error]
            if not count & (count - 1):  # the first, second, fourth, eighth of all processes
                like = f", like {count - 1} others before" if count > 2 else ""
                log(logging.ERROR, f"{name} {_death(code)}{told}{like}; starts it again in {pause:g} s")


def _death(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"was killed by signal {number}" if code < 0 else f"ended with exit code {code}"
    text = f"was killed by {name}" if code < 0 else f"ended with exit code {code} ({name})"
    return f"{text} (often: out of memory)" if name == "SIGKILL" else text
