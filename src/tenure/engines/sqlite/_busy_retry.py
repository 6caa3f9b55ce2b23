"""Waiting for another writer in short steps, since SQLite's own back-off starves the third in the queue."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from tenure.errors import StoreUnavailable

from ._errors import is_busy

T = TypeVar("T")

_STEP = 0.0003
"""Seconds between two tries."""

_WHAT_TO_DO = (
    "A call of the store within a transaction of yours waits for the end of that transaction, which has written to "
    "the file: commit first. put_in and complete_in are for calls within it."
)


class BusyRetry:
    """Tries again for at most `limit` seconds while another connection has the lock.

    Thread safety: `lose` may be called from any thread.
    """

    def __init__(self, path: str, limit: float) -> None:
        self._path = path
        self._limit = limit
        self._given_up = False

    def give_up(self) -> None:
        self._given_up = True

    def run(self, step: Callable[[], T]) -> T:
        """Return what `step` returns. Raises `StoreUnavailable` if the lock cannot be had; then nothing was done."""
        deadline = None
        while True:
            try:
                return step()
            except sqlite3.OperationalError as problem:
                if not is_busy(problem):
                    raise
            now = time.monotonic()
            deadline = now + self._limit if deadline is None else deadline
            if self._given_up or now >= deadline:
                unavailable = StoreUnavailable(
                    f"{self._path}: locked for {self._limit:g} s by another connection to the file, of this process or "
                    "another; nothing was done"
                )
                unavailable.add_note(_WHAT_TO_DO)
                raise unavailable
            time.sleep(_STEP)
