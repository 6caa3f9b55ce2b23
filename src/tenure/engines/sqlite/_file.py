"""One engine's open file: batches in, answers and hints out. Synchronous; used on one thread."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

from tenure.engine import Hint, Operation

from ._book import Book
from ._clock import Clocks
from ._hints import Mailbox
from ._opening import open_file
from ._patience import Patience
from ._presence import Presence
from ._refusals import explain

_neighbours: dict[tuple[int, int], WeakSet[File]] = {}
_neighbours_lock = threading.Lock()


class File:
    """The open file. `poke` is called, from any thread, when there may be hints to be read.

    Thread safety: none but where a method says so; used on the thread that made it.
    """

    def __init__(
        self,
        path: Path,
        clocks: Clocks,
        *,
        synchronous: str,
        patience: Patience,
        served: Callable[[str], bool],
        poke: Callable[[], None],
    ) -> None:
        self._path = str(path)
        self._db = open_file(path, clocks, synchronous, patience)
        self._book = Book(self._db, clocks, patience=patience, served=served, path=self._path)
        self._mailbox = Mailbox(self._rows)
        self._version = self._data_version()
        self._presence = Presence(self._db, path)
        self.poke = poke
        self._identity = self._presence.identity
        with _neighbours_lock:
            _neighbours.setdefault(self._identity, WeakSet()).add(self)

    def execute(self, operations: Sequence[Operation[Any]]) -> tuple[list[Any], list[Hint]]:
        """Apply a batch; see `Book.execute`. Raises `FileLostError`."""
        self._presence.check()
        answers, hints, others = self._book.execute(operations)
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
        """Whether somebody else has changed the file since the last look, and the hints that came for the processes.

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
            # a look that fails says nothing; the next batch will tell what is wrong
            return False, []

    def close(self) -> None:
        """Close the file; who closes it last puts its log away."""
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
