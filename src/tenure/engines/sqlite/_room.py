"""Room on the disk: deleting and releasing need free space too, so the file stops growing before the disk is full.

Committed data goes to the log, and to the end of the file by a later checkpoint. A checkpoint without room leaves the
log, which grows until nothing can be written. So an operation that makes the file grow is refused unless there is room
for both copies, and for a put something more. While room is scarce, each growth goes to the file at once, and the log
is reused.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import tenure.engine as e
from tenure.errors import EngineError

_AMPLE = 1 << 30
"""Bytes: with so much room on the disk nothing is counted."""

_EVERY = 0.05
"""Seconds between two looks at a disk with ample room."""

_RESERVE = 16 << 20
"""Bytes that a put leaves to other operations; on small disks a sixteenth."""


class DiskFullError(EngineError):
    """The disk has no room for what an operation adds to the file."""


class Room:
    """Watches the room of a connection's file. `begin` and `check` are called inside a transaction.

    Thread safety: none; used on the thread of the connection.
    """

    def __init__(self, db: sqlite3.Connection, path: str) -> None:
        self._db = db
        self._path = Path(path)
        self._scarce = False
        self._next = 0.0
        self._pages = self._free = self._reserve = self._growth = 0

    def begin(self) -> None:
        if (now := monotonic()) < self._next:
            return
        disk = shutil.disk_usage(self._path.parent)
        self._scarce = disk.free < _AMPLE
        self._next = 0.0 if self._scarce else now + _EVERY
        if self._scarce:
            self._free, self._reserve = disk.free, min(_RESERVE, disk.total // 16)
            self._pages = self._number("page_count")

    def check(self, operations: Sequence[e.Operation[Any]]) -> None:
        """Raise `DiskFullError` if the applied operations take too much, before they are committed."""
        if not self._scarce:
            return
        pages = self._number("page_count")
        self._growth = pages * self._number("page_size") - self._path.stat().st_size
        keep = self._reserve if any(isinstance(operation, e.Put) for operation in operations) else 0
        if pages > self._pages and self._free < 2 * self._growth + keep:
            raise DiskFullError(
                f"{self._path} cannot grow: the disk is full ({self._free} bytes are free, and {self._reserve} of them "
                "are kept so that tasks can be taken, settled and purged); nothing that was stored is lost"
            )

    def committed(self) -> None:
        if self._scarce and self._free < 4 * self._growth + 2 * self._reserve:
            self.use_log_again()

    def use_log_again(self) -> None:
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _number(self, name: str) -> int:
        return self._db.execute(f"PRAGMA {name}").fetchone()[0]
