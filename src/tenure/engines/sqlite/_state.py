"""The state that all families share: time, numbers, sessions, hints, watches and the step budget.

A batch reads the values once: they stay true until the transaction ends, since there is only one writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import tenure.engine as e
from tenure.engines.rules import SETTINGS, Counters, Layout, News

from ._clock import FAR, Clocks, micros, moment, seconds
from ._replies import CachedReplies
from ._session import SqliteSession
from ._sql import SESSIONS, repeated
from ._tables import SqliteTable

_MOST = 64
"""The most rows of parameters that a statement has. They are powers of two, so that few are to be prepared."""


@dataclass(slots=True)
class Soonest:
    """The next times at which time changes something, None for never.

    The time for sessions is on the clock of the boot, the other times are on the clock of the wall.
    """

    session: int | None = None
    task: int | None = None
    letter: int | None = None
    rest: float | None = None
    record: int | None = None
    limiter: float | None = None
    queue: int | None = None
    sweep: float | None = None
    timeout: float | None = None
    family: float | None = None
    line: float | None = None


def sooner(moment: int, other: int | None) -> int:
    return moment if other is None or moment < other else other


class SqliteState:
    def __init__(self, db: sqlite3.Connection, clocks: Clocks, cap: int) -> None:
        self.db = db
        self.cap = cap
        self.now = 0.0
        self.moment = 0
        self.boot = 0
        self.last = Counters()
        self.soonest = Soonest()
        self.watching = False
        self.following = False
        self.steps_left = cap
        self.operations = 0
        self.unfinished = False
        self.hints: list[e.Hint] = []
        self.replies = CachedReplies()
        self._clocks = clocks
        self._stored = Counters()
        self._sessions: dict[str, SqliteSession | None] = {}
        self._processes: dict[int, str] = {}
        self._tables: dict[str, SqliteTable] = {}
        self._sweep_at = 0.0
        self._settings: dict[str, tuple[int, e.Settings]] = {}
        self.write_tasks: Callable[[], None]
        """Writes the changes of tasks, before a statement has to find them."""

    def settings(self, queue: str, revision: int) -> e.Settings:
        known, settings = self._settings.get(queue, (0, e.DEFAULTS))
        if known != revision:
            stored = self.table(SETTINGS).each("name", queue)
            settings = e.settings_of([(setting.name, setting.value) for setting in stored])
            self._settings[queue] = revision, settings
        return settings

    # the transaction

    def begin(self) -> None:
        self.now = self._clocks.wall()
        self.moment = int(self.now * 1e6)
        self.boot = int(self._clocks.boot() * 1e6)
        row = self.db.execute(SESSIONS.beginning).fetchone()
        self.last, self._stored = Counters(*row[:3]), Counters(*row[:3])
        self.soonest = Soonest(*row[3:10])
        if row[10]:
            self.soonest.sweep, self.soonest.timeout, self.soonest.family = self.one(SESSIONS.families)
        if self.soonest.sweep is not None:  # each process pauses by itself
            self.soonest.sweep = min(self._sweep_at, self.now + e.SWEEP_PAUSE)
        self.watching, self.following, unserved = map(bool, row[11:])
        self.soonest.line = self.now if unserved else None
        self.hints = []
        self._sessions = {}
        self._processes = {}
        self.replies.begin(self.boot)
        self.operations = 0

    def save(self) -> None:
        self._sweep_at = self.soonest.sweep or 0.0
        last = self.last
        if last != self._stored:
            self.run(SESSIONS.numbers, token=last.token, ending=last.ending, rank=last.rank)

    # tables and statements

    def table(self, layout: Layout) -> SqliteTable:
        if layout.name not in self._tables:
            self._tables[layout.name] = SqliteTable(self.db, layout)
        return self._tables[layout.name]

    def run(self, sql: str, **values: Any) -> sqlite3.Cursor:
        return self.db.execute(sql, values)

    def one(self, sql: str, **values: Any) -> Any:
        return self.db.execute(sql, values).fetchone()

    def all(self, sql: str, **values: Any) -> list[Any]:
        return self.db.execute(sql, values).fetchall()

    def many(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run a statement for several rows of parameters at once: each of its steps may wait for Python's lock."""
        found: list[Any] = []
        done = 0
        while left := len(rows) - done:
            count = min(_MOST, 1 << left.bit_length() - 1)
            values = [value for row in rows[done : done + count] for value in row]
            found += self.db.execute(repeated(sql, count), values).fetchall()
            done += count
        return found

    # numbers, hints and steps

    def token(self) -> int:
        self.last.token = max(self.last.token + 1, self.moment)
        return self.last.token

    def rank(self) -> int:
        self.last.rank += 1
        return self.last.rank

    def hint(self, process: str, key: str, name: str, news: News) -> None:
        self.hints.append(e.Hint(process, key, name, news))

    def step(self) -> bool:
        if self.steps_left > 0:
            self.steps_left -= 1
            return True
        self.unfinished = True
        return False

    def cached_reply(self, session: str, n: int, name: str) -> Any:
        known = self.session(session)
        return e.Reply.GONE if known is None else self.replies.cached(known, n, name)

    def cache_reply(self, session: str, n: int, name: str, answer: object) -> None:
        known = self.session(session)
        assert known is not None
        self.replies.cache(known, n, name, answer)

    # sessions

    def session(self, name: str) -> SqliteSession | None:
        if name not in self._sessions:
            row = self.one(SESSIONS.find, name=name)
            self._sessions[name] = row and SqliteSession(*row)
        return self._sessions[name]

    def process(self, session: int) -> str:
        if session not in self._processes:
            self._processes[session] = self.one(SESSIONS.process, id=session)[0]
        return self._processes[session]

    def first_watch(self, session: SqliteSession) -> Any:
        return self.one(SESSIONS.next_watch, session=session.number)

    def unwatch(self, thing: Any) -> None:
        self.run(SESSIONS.unwatch, id=thing[0])

    def open(self, name: str, process: str, ttl: float) -> None:
        expires = self.boot + micros(ttl)
        self.run(SESSIONS.open, name=name, process=process, ttl=micros(ttl), expires=expires)
        self._sessions_changed()

    def renew(self, session: SqliteSession, ttl: float) -> None:
        expires = self.boot + micros(ttl)
        self.run(SESSIONS.renew, id=session.number, ttl=micros(ttl), expires=expires)
        self._sessions_changed()

    def end(self, session: SqliteSession) -> None:
        self.run(SESSIONS.end, id=session.number)
        self._sessions_changed()

    def ended(self) -> list[SqliteSession]:
        return [SqliteSession(*row) for row in self.all(SESSIONS.expired, now=self.boot)]

    def forget(self, session: SqliteSession) -> None:
        self.run(SESSIONS.forget, id=session.number)
        self._sessions_changed()

    def _sessions_changed(self) -> None:
        self._sessions = {}
        self.soonest.session = self.one(SESSIONS.soonest)[0]

    def wake_at(self, kind: str, when: float | None) -> None:
        former = getattr(self.soonest, kind)
        setattr(self.soonest, kind, when if when is None or former is None else min(when, former))

    # the times of tasks, in microseconds of the wall clock

    def after(self, seconds: float) -> int:
        return self.moment + micros(seconds)

    def seconds_since(self, moment: int) -> float:
        return seconds(self.moment - moment)

    def clock_time(self, when: int | None) -> float | None:
        return moment(when)

    def ask_again_in(self, due: float | None = None) -> float:
        dues = [when - self.now for when in (due, self.soonest.timeout) if when is not None]
        seconds = min(dues, default=inf)
        if self.soonest.session is not None and self.soonest.session - self.boot < FAR:
            seconds = min(seconds, (self.soonest.session - self.boot) / 1e6)
        return max(0.0, seconds if self.soonest.sweep is None else min(seconds, e.SWEEP_PAUSE))

    # watches: one-shot requests to be hinted, by topic

    def subscribe_once(self, kind: str, key: str, session: str) -> None:
        known = self.session(session)
        assert known is not None
        self.watch(kind, key, 0, known)

    def watch_task(self, kind: str, key: str, task: int, session: str) -> None:
        known = self.session(session)
        assert known is not None
        self.watch(kind, key, task, known)

    def watch(self, kind: str, key: str, task: int, session: SqliteSession) -> None:
        self.run(SESSIONS.watch, kind=kind, key=key, task=task, session=session.number)
        self.watching = True
        self.following |= kind == "change"

    def notify_watchers(self, kind: str, key: str, notice: e.Notice) -> None:
        if self.watching:
            watchers = self.all(SESSIONS.watchers, kind=kind, key=key, task=0)
            if watchers:
                self.run(SESSIONS.fired, kind=kind, key=key, task=0)
            for (process,) in watchers:
                self.hint(process, key, "", notice)

    def fire(self, kind: str, tasks: list[int], notice: e.Notice) -> None:
        if self.following if kind == "change" else self.watching:
            watchers = self.all(SESSIONS.task_watchers, kind=kind, tasks=str(tasks))
            if watchers:
                self.run(SESSIONS.fired_tasks, kind=kind, tasks=str(tasks))
            for key, task, process in watchers:
                self.hint(process, key, str(task), notice)
