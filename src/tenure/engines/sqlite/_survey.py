"""Introspection: names by kind, the holds of sessions, and the health of the file."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

from tenure.engine import (
    CAP,
    FAMILIES,
    CheckHealth,
    DescribeSession,
    Health,
    KeyPage,
    ListKeys,
    Reply,
    SessionItem,
    SessionPage,
)

from ._opening import VERSION, file_system
from ._queue import Queues
from ._sql import SURVEY
from ._state import State

_END = "\U0010ffff"
_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
_MEBIBYTE = 2**20
_LEAST_SPACE = 100 * _MEBIBYTE
_LONG_LOG = 256 * _MEBIBYTE


class Introspection:
    """The operations that ask about all families together; `path` is the file's."""

    def __init__(self, state: State, queues: Queues, path: str) -> None:
        self._state = state
        self._queues = queues
        self._path = path

    def list_keys(self, op: ListKeys) -> KeyPage:
        self._queues.save()  # what this transaction has put counts
        limit = min(op.limit, CAP)
        looked = self._names(op, limit)
        names = tuple(name for name, counts in looked if counts)
        return KeyPage(names, looked[-1][0] if len(looked) == limit else "")

    def _names(self, op: ListKeys, limit: int) -> list[tuple[str, Any]]:
        """The next names, and whether they are meant."""
        run = self._state.all
        bounds = {"prefix": op.prefix, "end": op.prefix + _END}
        if op.kind == "pools":
            pools: list[tuple[str, Any]] = []
            after = op.after
            while (
                len(pools) < limit and (after := run(SURVEY.pools, **bounds, after=after)[0][0]) is not None
            ):
                pools.append((after, True))
            return pools
        rows = run(SURVEY.named[op.kind], **bounds, after=op.after, limit=limit)
        if op.kind == "queues":
            queues = ((name, self._queues.find(name)) for (name,) in rows)
            return [(name, queue and queue.put) for name, queue in queues]
        return rows

    def describe_session(self, op: DescribeSession) -> SessionPage | Reply:
        session = self._state.session(op.key)
        if session is None:
            return Reply.UNKNOWN
        rank, _, number = (op.after or "0:0").partition(":")
        rows = self._state.all(
            SURVEY.items, session=session.number, rank=int(rank), number=int(number), limit=op.limit
        )
        last = f"{rows[-1][0]}:{rows[-1][1]}" if len(rows) == op.limit else ""
        return SessionPage(
            session.process,
            tuple(SessionItem(FAMILIES[row[0]], row[2], row[3], bool(row[4]), row[5]) for row in rows),
            last,
        )

    def check_health(self, _op: CheckHealth) -> Health:
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
        return Health(self._state.now - time.time(), facts, tuple(problems))

    def _pragma(self, name: str) -> int:
        return self._state.one(f"PRAGMA {name}")[0]


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:,.0f} TiB"
