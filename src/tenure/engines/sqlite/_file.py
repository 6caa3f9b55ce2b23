"""One engine's open file: batches in, answers and hints out. Synchronous; used on one thread."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

from tenure.engine import Hint, Operation

from ._busy_retry import BusyRetry
from ._clock import Clocks
from ._errors import explain
from ._executor import Executor
from ._hints import Mailbox
from ._opening import open_file
from ._presence import Presence

_neighbours: dict[tuple[int, int], WeakSet[File]] = {}
_neighbours_lock = threading.Lock()


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
        self._db = open_file(path, clocks, synchronous, retry)
        self._executor = Executor(self._db, clocks, retry=retry, served=served, path=self._path)
        self._mailbox = Mailbox(self._rows)
        self._version = self._data_version()
        self._presence = Presence(self._db, path)
        self.poke = poke
        self._identity = self._presence.identity
        with _neighbours_lock:
            _neighbours.setdefault(self._identity, WeakSet()).add(self)

    def execute(self, operations: Sequence[Operation[Any]]) -> tuple[list[Any], list[Hint]]:
        """Apply a batch; see `Executor.execute`. Raises `FileLostError`."""
        self._presence.check()
        answers, hints, others = self._executor.execute(operations)
        if others:
            with _neighbours_lock:
                neighbours = [file for file in _neighbours[self._identity] if file is not self]
            for file in neighbours:
                file.poke()
        return answers, hints

    def begin_serving(self, process: str) -> None:
        """Read the hints for a process from now on. Raises `EngineError`."""
        try:
            self._mailbox.add(process)
        except sqlite3.Error as problem:
            raise explain(self._path, problem) from problem

    def look(self, processes: Container[str]) -> tuple[bool, list[Hint]]:
        """Whether another connection has changed the file since the last look, and the hints for the processes.

        Raises `FileLostError`.
        """
        self._presence.check()
        try:
            version = self._data_version()
            if version == self._version:
                return False, []
            self._version = version
            return True, self._mailbox.read(processes)
        except sqlite3.Error:
            # a look that fails proves nothing; the next batch reports what is wrong
            return False, []

    def close(self) -> None:
        """Close the file; the last to close it removes its log."""
        with _neighbours_lock:
            neighbours = _neighbours[self._identity]
            neighbours.discard(self)
            if not neighbours:
                del _neighbours[self._identity]
        self._db.close()

    def _rows(self, sql: str, **values: Any) -> list[Any]:
        return self._db.execute(sql, values).fetchall()

    def _data_version(self) -> int:
        return self._db.execute("PRAGMA data_version").fetchone()[0]
