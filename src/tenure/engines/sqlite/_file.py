"""The open file of an engine: batches in, answers and hints out. Synchronous; used on one thread."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import tenure.engine as e
from tenure.errors import EngineError

from ._busy_retry import BusyRetry
from ._clock import Clocks
from ._errors import explain
from ._executor import Executor
from ._hints import Mailbox
from ._opening import end_other_boots, open_file
from ._presence import Presence
from ._waking import Waker

_neighbours: dict[tuple[int, int], WeakSet[File]] = {}
_neighbours_lock = threading.Lock()
_opening_lock = threading.Lock()
_open_before_fork: set[tuple[int, int]] = set()
"""The files that a parent had open. SQLite keeps a list of the locks of its process, and believes it after a fork."""


class File:
    """The open file. `poke` is called, from any thread, when there may be hints to be read.

    Thread safety: none, except where stated; used on the thread that made it.
    """

    def __init__(
        self,
        path: Path,
        clocks: Clocks,
        *,
        synchronous: str,
        retry: BusyRetry,
        served: Callable[[str], bool],
        poke: Callable[[], None],
    ) -> None:
        self._path = str(path)
        self.poke = poke
        with _opening_lock:
            _check_fork(path)
            self._db, self._old_sessions = open_file(path, clocks, synchronous, retry)
            self._end_other_boots = partial(retry.run, partial(end_other_boots, self._db, clocks))
            self._executor = Executor(self._db, clocks, retry=retry, served=served, path=self._path)
            self._mailbox = Mailbox(self._rows)
            self._version = self._data_version()
            self._presence = Presence(self._db, path)
            self.identity = self._presence.identity
            """The same in all processes that have opened it."""
            self._waker = Waker(self.identity)
            with _neighbours_lock:
                _neighbours.setdefault(self.identity, WeakSet()).add(self)

    def execute(self, operations: Sequence[e.Operation[Any]]) -> tuple[list[Any], list[e.Hint]]:
        """Apply a batch; see `Executor.execute`. Raises `FileLostError`."""
        self._presence.check()
        if self._old_sessions:
            try:
                self._end_other_boots()
            except sqlite3.Error as problem:
                raise explain(self._path, problem) from problem
            self._old_sessions = False
        answers, hints, others = self._executor.execute(operations)
        if others:
            self._waker.wake(others)
            with _neighbours_lock:
                neighbours = [file for file in _neighbours[self.identity] if file is not self]
            for file in neighbours:
                file.poke()
        return answers, hints

    def begin_serving(self, process: str) -> None:
        try:
            self._mailbox.add(process)
        except sqlite3.Error as problem:
            raise explain(self._path, problem) from problem

    def check(self, processes: Container[str]) -> tuple[bool, list[e.Hint]]:
        """True if another connection has changed the file, and the hints for the processes. Raises `FileLostError`."""
        self._presence.check()
        try:
            version = self._data_version()
            if version == self._version:
                return False, []
            self._version = version
            return True, self._mailbox.read(processes)
        except sqlite3.Error:
            # a check that fails proves nothing; the next batch reports the fault
            return False, []

    def close(self) -> None:
        self._db.close()
        self._waker.close()
        with _neighbours_lock:
            neighbours = _neighbours[self.identity]
            neighbours.discard(self)
            if not neighbours:
                del _neighbours[self.identity]

    def _rows(self, sql: str, **values: Any) -> list[Any]:
        return self._db.execute(sql, values).fetchall()

    def _data_version(self) -> int:
        return self._db.execute("PRAGMA data_version").fetchone()[0]


def _check_fork(path: Path) -> None:
    with suppress(OSError):
        status = path.stat()
        if (status.st_dev, status.st_ino) in _open_before_fork:
            raise EngineError(
                f"{path} was open in the parent when this process was forked, and SQLite cannot open it again here: "
                "close every store over it before the fork, open them after it, or start processes by spawning"
            )


def _before_fork() -> None:
    # a file that is half open would be missed
    _opening_lock.acquire()
    _neighbours_lock.acquire()


def _after_in_parent() -> None:
    _neighbours_lock.release()
    _opening_lock.release()


def _after_in_child() -> None:
    for lock in (_neighbours_lock, _opening_lock):
        if lock.locked():  # not if the fork was made by a program that calls this alone
            lock.release()
    _open_before_fork.update(_neighbours)
    _neighbours.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
