"""The state that all families of the memory engine share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import inf
from time import time
from typing import Any

import tenure.engine as e
from tenure.engines.rules import Counters, Layout, News

from ._due import Due
from ._tables import MemoryTable
from ._task import MemoryTask

Topic = tuple[str, ...]
"""A subject that can be watched: its kind, its key, and its name there."""


@dataclass(slots=True)
class CachedReply:
    n: int
    answer: Any
    until: float


@dataclass(slots=True)
class MemorySession:
    id: str
    process: str
    ttl: float
    expires: float
    number: int
    tasks: dict[int, MemoryTask] = field(default_factory=dict["int", "MemoryTask"])
    watches: dict[Topic, None] = field(default_factory=dict["Topic", None])


class MemoryState:
    def __init__(self, cap: int = e.CAP) -> None:
        self.cap = cap
        self.now = 0.0
        self.last = Counters()
        self._epoch: float | None = None
        self.sessions: dict[str, MemorySession] = {}
        self.session: Callable[[str], MemorySession | None] = self.sessions.get
        self.soonest_expiry = inf
        self.hints: list[e.Hint] = []
        self.watches: dict[Topic, dict[str, None]] = {}
        self.steps_left = cap
        self.unfinished = False
        self.kept_lately = 0
        """The records and keys that the last operation left behind."""
        self.tables: dict[str, MemoryTable] = {}
        self.soonest: dict[str, float] = {}
        self.next_due = inf
        """The time before which nothing of `soonest` is due."""
        self.ask_again_at = inf
        """The next end of a session, or of a wait for an entry."""
        self.numbered: dict[int, MemorySession] = {}
        self.rank: Callable[[], int] = count(1).__next__
        self._replies: dict[tuple[int, str], CachedReply] = {}
        self.replies_due = Due(self._check_reply)
        self._opened = 0

    def wall_time(self) -> float:
        """Seconds since 1970: the host's clock, read once, and the engine's clock since."""
        if self._epoch is None:
            self._epoch = time() - self.now
        return self._epoch + self.now

    # the times of tasks

    @property
    def moment(self) -> float:
        return self.now

    def after(self, seconds: float) -> float:
        return self.now + seconds

    def seconds_since(self, moment: float) -> float:
        return self.now - moment

    def clock_time(self, moment: float | None) -> float | None:
        return moment

    # numbers, tables and hints

    def token(self) -> int:
        self.last.token = max(self.last.token + 1, int(self.now * 1e6))
        return self.last.token

    def table(self, layout: Layout) -> MemoryTable:
        if layout.name not in self.tables:
            self.tables[layout.name] = MemoryTable(layout)
        return self.tables[layout.name]

    def wake_at(self, kind: str, when: float | None) -> None:
        if when is None:
            self.soonest.pop(kind, None)
            self.next_due = min(self.soonest.values(), default=inf)
        elif when < self.soonest.get(kind, inf):
            self.soonest[kind] = when
            self.next_due = min(when, self.next_due)
        if kind == "timeout":
            self._set_ask_again()

    def _set_ask_again(self) -> None:
        self.ask_again_at = min(self.soonest_expiry, self.soonest.get("timeout", inf))

    def is_due(self, kind: str) -> bool:
        return self.soonest.get(kind, inf) <= self.now

    def hint(self, process: str, key: str, name: str, news: News) -> None:
        self.hints.append(e.Hint(process, key, name, news))

    def step(self) -> bool:
        if self.steps_left > 0:
            self.steps_left -= 1
            return True
        self.unfinished = True
        return False

    # sessions

    def process(self, session: int) -> str:
        return self.numbered[session].process

    def open(self, name: str, process: str, ttl: float) -> None:
        self._opened += 1
        session = MemorySession(name, process, ttl, 0.0, self._opened)
        self.sessions[name] = self.numbered[self._opened] = session
        self.renew(session, ttl)

    def renew(self, session: MemorySession, ttl: float) -> None:
        session.ttl, session.expires = ttl, self.now + ttl
        self._sessions_changed()

    def end(self, session: MemorySession) -> None:
        session.expires = -1.0
        self._sessions_changed()

    def ended(self) -> list[MemorySession]:
        ended = [session for session in self.sessions.values() if session.expires <= self.now]
        return sorted(ended, key=lambda session: (session.expires, session.id))

    def forget(self, session: MemorySession) -> None:
        del self.sessions[session.id], self.numbered[session.number]
        self._sessions_changed()

    def _sessions_changed(self) -> None:
        self.soonest_expiry = min((session.expires for session in self.sessions.values()), default=inf)
        self._set_ask_again()

    def ask_again_in(self, due: float | None = None) -> float:
        seconds = max(0.0, min(self.ask_again_at, inf if due is None else due) - self.now)
        return min(seconds, e.SWEEP_PAUSE) if "sweep" in self.soonest else seconds

    # cached replies: time alone removes them, so that ending a session has nothing to do for them

    def cached_reply(self, session: str, n: int, name: str) -> Any:
        known = self.sessions.get(session)
        if known is None:
            return e.Reply.GONE
        reply = self._replies.get((known.number, name))
        if reply is None or reply.n != n or reply.until <= self.now:
            return None
        reply.until = self.now + 2 * known.ttl
        return reply.answer

    def cache_reply(self, session: str, n: int, name: str, answer: Any) -> None:
        known = self.sessions[session]
        reply = CachedReply(n, answer, self.now + 2 * known.ttl)
        self._replies[known.number, name] = reply
        self.replies_due.add((known.number, name), reply.until)

    def _check_reply(self, name: tuple[int, str]) -> float | None:
        reply = self._replies[name]
        if reply.until > self.now:
            return reply.until
        del self._replies[name]
        return None

    # watches: one-shot requests to be hinted, by topic

    def subscribe_once(self, kind: str, key: str, session: str) -> None:
        self.watch(session, (kind, key))

    def watch_task(self, kind: str, key: str, task: int, session: str) -> None:
        self.watch(session, (kind, key, str(task)))

    def notify_watchers(self, kind: str, key: str, notice: e.Notice) -> None:
        if self.watches:
            self.fire((kind, key), key, "", notice)

    def watch(self, session: str, topic: Topic) -> None:
        self.watches.setdefault(topic, {})[session] = None
        self.sessions[session].watches[topic] = None

    def fire(self, topic: Topic, key: str, name: str, notice: e.Notice) -> None:
        for session in self.watches.pop(topic, {}):
            known = self.sessions[session]
            del known.watches[topic]
            self.hint(known.process, key, name, notice)

    def first_watch(self, session: MemorySession) -> tuple[MemorySession, Topic] | None:
        topic = next(iter(session.watches), None)
        return None if topic is None else (session, topic)

    def unwatch(self, found: tuple[MemorySession, Topic]) -> None:
        session, topic = found
        del session.watches[topic]
        watchers = self.watches[topic]
        del watchers[session.id]
        if not watchers:
            del self.watches[topic]
