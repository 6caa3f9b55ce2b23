"""What all families share: time, numbers, sessions, hints, watches and the step budget.

What is read here stays true until the transaction ends, since there is only one writer: a batch reads it once.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

from tenure.engine import CAP, Broken, Claimed, Granted, Hint, Notice, Tripped

from ._clock import FAR, Clocks
from ._sql import SESSIONS


@dataclass(frozen=True, slots=True)
class Session:
    """A process's life sign; ids are never used again."""

    id: int
    process: str
    ttl: int


class Given(NamedTuple):
    """The last answer to a numbered operation; it is repeated until then, on the clock of the boot."""

    n: int
    answer: Any
    until: int


class State:
    """The part of the file that belongs to no family, as this transaction sees it."""

    def __init__(self, db: sqlite3.Connection, clocks: Clocks, cap: int) -> None:
        self.db = db
        self.cap = cap
        self.now = 0.0
        self.wall = 0
        self.boot = 0
        self.last_token = self.last_task = self.last_ending = self.last_rank = 0
        self.soonest_session: int | None = None
        self.soonest_task: int | None = None
        self.soonest_rest: int | None = None
        self.soonest_record: int | None = None
        self.soonest_rate: float | None = None
        self.soonest_barrier: int | None = None
        self.soonest_queue: int | None = None
        self.watching = False
        self.unserved = False
        self.steps_left = cap
        self.operations = 0
        self.unfinished = False
        self.hints: list[Hint] = []
        self._clocks = clocks
        self._numbers: tuple[int, ...] = ()
        self._sessions: dict[str, Session | None] = {}
        self._given: dict[tuple[int, str], Given] = {}
        self._new_given: dict[tuple[int, str], Given] = {}
        self._given_due: list[tuple[int, tuple[int, str]]] = []

    # the transaction

    def begin(self) -> None:
        """Read what every batch has to know; the transaction has begun."""
        self.now = self._clocks.wall()
        self.wall = int(self.now * 1e6)
        self.boot = int(self._clocks.boot() * 1e6)
        row = self.db.execute(SESSIONS.beginning).fetchone()
        self._numbers = row[:4]
        self.last_token, self.last_task, self.last_ending, self.last_rank = row[:4]
        self.soonest_session, self.soonest_task, self.soonest_rest, self.soonest_record = row[4:8]
        self.soonest_rate, self.soonest_barrier, self.soonest_queue = row[8:11]
        self.watching, self.unserved = bool(row[11]), bool(row[12])
        self.hints = []
        self._sessions = {}
        self._new_given = {}
        self.operations = 0

    def save(self) -> None:
        """Write the numbers, if any was given out."""
        numbers = (self.last_token, self.last_task, self.last_ending, self.last_rank)
        if numbers != self._numbers:
            token, task, ending, rank = numbers
            self.run(SESSIONS.numbers, token=token, task=task, ending=ending, rank=rank)

    def committed(self) -> None:
        """From now on the answers of this batch may be repeated."""
        for name, given in self._new_given.items():
            if name not in self._given:
                heappush(self._given_due, (given.until, name))
            self._given[name] = given
        self._new_given = {}
        self._forget_given()

    # statements

    def run(self, sql: str, **values: Any) -> sqlite3.Cursor:
        return self.db.execute(sql, values)

    def one(self, sql: str, **values: Any) -> Any:
        """The first row, or None."""
        return self.db.execute(sql, values).fetchone()

    def all(self, sql: str, **values: Any) -> list[Any]:
        return self.db.execute(sql, values).fetchall()

    # numbers, hints and steps

    def token(self) -> int:
        self.last_token = max(self.last_token + 1, self.wall)
        return self.last_token

    def rank(self) -> int:
        self.last_rank += 1
        return self.last_rank

    def hint(
        self, process: str, key: str, name: str, news: Granted | Claimed | Tripped | Broken | Notice
    ) -> None:
        self.hints.append(Hint(process, key, name, news))

    def step(self) -> bool:
        """Take one step of the budget; without one left, the operation is unfinished."""
        if self.steps_left > 0:
            self.steps_left -= 1
            return True
        self.unfinished = True
        return False

    # sessions

    def session(self, name: str) -> Session | None:
        if name not in self._sessions:
            row = self.one(SESSIONS.find, name=name)
            self._sessions[name] = row and Session(*row)
        return self._sessions[name]

    def renew(self, session: Session, ttl: int) -> None:
        self.run(SESSIONS.renew, id=session.id, ttl=ttl, expires=self.boot + ttl)
        self.sessions_changed()

    def open(self, name: str, process: str, ttl: int) -> None:
        self.run(SESSIONS.open, name=name, process=process, ttl=ttl, expires=self.boot + ttl)
        self.sessions_changed()

    def forget(self, session: int) -> None:
        self.run(SESSIONS.forget, id=session)
        self.sessions_changed()

    def sessions_changed(self) -> None:
        self._sessions = {}
        self.soonest_session = self.one(SESSIONS.soonest)[0]

    def ask_again_in(self, due: int | None = None) -> float:
        """Seconds until the earliest moment at which asking again could help; `due` is on the wall clock."""
        soonest = FAR
        if self.soonest_session is not None:
            soonest = self.soonest_session - self.boot
        if due is not None:
            soonest = min(soonest, due - self.wall)
        return inf if soonest >= FAR else max(0, soonest) / 1e6

    # numbered answers: a session belongs to the process that opened it, so they need not be in the file

    def repeated(self, session: Session, n: int, name: str) -> Any:
        """The answer that was given to the same numbered operation before, or None for a new one."""
        given = self._new_given.get((session.id, name)) or self._given.get((session.id, name))
        if given is None or given.n != n or given.until <= self.boot:
            return None
        self.remember(session, n, name, given.answer)
        return given.answer

    def remember(self, session: Session, n: int, name: str, answer: Any) -> None:
        self._new_given[session.id, name] = Given(n, answer, self.boot + 2 * session.ttl)

    def _forget_given(self) -> None:
        """Forget some of those that are kept no longer: more than a batch can have left."""
        for _ in range(2 * CAP):
            if not self._given_due or self._given_due[0][0] > self.boot:
                return
            _, name = heappop(self._given_due)
            given = self._given[name]
            if given.until > self.boot:
                heappush(self._given_due, (given.until, name))
            else:
                del self._given[name]

    # watches: one-shot requests to be hinted, by topic

    def watch(self, kind: str, key: str, task: int, session: Session) -> None:
        self.run(SESSIONS.watch, kind=kind, key=key, task=task, session=session.id)
        self.watching = True

    def fire(self, kind: str, key: str, notice: Notice) -> None:
        if self.watching:
            watchers = self.all(SESSIONS.watchers, kind=kind, key=key, task=0)
            if watchers:
                self.run(SESSIONS.fired, kind=kind, key=key, task=0)
            for (process,) in watchers:
                self.hint(process, key, "", notice)

    def task_watchers(self, key: str, tasks: list[int]) -> dict[int, list[str]]:
        """The processes that watch these tasks."""
        watchers: dict[int, list[str]] = {}
        if self.watching:
            for task, process in self.all(SESSIONS.task_watchers, key=key, tasks=str(tasks)):
                watchers.setdefault(task, []).append(process)
        return watchers
