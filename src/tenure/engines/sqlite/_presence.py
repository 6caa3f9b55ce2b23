"""A check that the paths still lead to the open files: other processes would open others."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import monotonic

from tenure.errors import EngineError

_EVERY = 0.01
"""Seconds between two looks at the files."""


class FileLostError(EngineError):
    """The open file was deleted or replaced."""


class Presence:
    """The identities of the file, its log and its shared memory, as they were on opening.

    Thread safety: none; used on the thread of the connection.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        # the other two are beside the file itself, should the path be a link
        (_, _, real) = db.execute("PRAGMA database_list").fetchone()
        paths = (path, Path(f"{real}-wal"), Path(f"{real}-shm"))
        self._known = {path: _identity(path) for path in paths}
        self.identity = self._known[path]
        """The device of the file, and its number there."""
        self._next = 0.0

    def check(self) -> None:
        """Raise `FileLostError` if any of them has gone; looks every 10 ms at most."""
        if (now := monotonic()) < self._next:
            return
        for path, known in self._known.items():
            try:
                there = _identity(path) == known
            except OSError:
                there = False
            if not there:
                raise FileLostError(
                    f"{path} was deleted, moved or replaced while it was open; what was held is lost, since others "
                    "may hold the same in a new file; close every store before you move its files"
                )
        self._next = now + _EVERY


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
