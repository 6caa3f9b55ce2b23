"""Looking around: names by kind, and the health of the file."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import tenure.engine as e
from tenure.engines.rules import page_of, place_in

from ._opening import VERSION, file_system
from ._queue import SqliteQueues
from ._sql import SURVEY
from ._state import SqliteState

_END = "\U0010ffff"
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
_MEBIBYTE = 2**20
_LEAST_SPACE = 100 * _MEBIBYTE
_LONG_LOG = 256 * _MEBIBYTE


class SqliteSurvey:
    def __init__(self, state: SqliteState, queues: SqliteQueues, path: str) -> None:
        self._state = state
        self._queues = queues
        self._path = path

    def names(self, op: e.Scan[e.Page[str]]) -> e.Page[str]:
        self._queues.save()  # what this transaction has put counts
        (after,) = place_in(op, "") or ("",)
        return page_of(op, [((name,), name if counts else None) for name, counts in self._names(op, after)])

    def _names(self, op: e.Scan[e.Page[str]], after: str) -> list[tuple[str, Any]]:
        kind, limit, run = op.index.name, op.limit + 1, self._state.all
        about: dict[str, Any] = {"prefix": op.only, "end": op.only + _END}
        if kind == "pools":
            pools: list[tuple[str, Any]] = []
            while len(pools) < limit and (after := run(SURVEY.pools, **about, after=after)[0][0]) is not None:
                pools.append((after, True))
            return pools
        if kind == "limiters":
            about["soon"] = self._state.now + e.ROUNDING
        rows = run(SURVEY.named[kind], **about, after=after, limit=limit)
        if kind == "queues":
            queues = ((name, self._queues.find(name)) for (name,) in rows)
            return [
                (name, queue and (queue.put or queue.revision or queue.is_kept)) for name, queue in queues
            ]
        return rows

    def health(self, _op: e.Scan[e.Page[e.Health]]) -> e.Page[e.Health]:
        path = Path(self._path)
        log = path.with_name(path.name + "-wal")
        log_size = log.stat().st_size if log.exists() else 0
        size = self._pragma("page_count") * self._pragma("page_size")
        space = shutil.disk_usage(path.parent).free
        problems: list[str] = []
        if space < _LEAST_SPACE:
            problems.append(f"the disk has {_size(space)} left; make room before writes fail")
        if log_size > _LONG_LOG:
            problems.append(
                f"the write-ahead log has grown to {_size(log_size)}: some process keeps a read transaction open;"
                " find it and end it"
            )
        facts = (
            ("engine", f"SQLite {sqlite3.sqlite_version}"),
            ("schema", f"version {self._pragma('user_version')}, this release knows {VERSION}"),
            ("file", f"{_size(size)}, log {_size(log_size)}, {_size(space)} left on the disk"),
            ("file system", file_system(path.parent) or "unknown"),
            ("journal", str(self._pragma("journal_mode"))),
            ("synchronous", _SYNCHRONOUS[self._pragma("synchronous")]),
        )
        return e.Page((e.Health(self._state.now - time.time(), facts, tuple(problems)),))

    def _pragma(self, name: str) -> int:
        return self._state.one(f"PRAGMA {name}")[0]


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:,.0f} TiB"
