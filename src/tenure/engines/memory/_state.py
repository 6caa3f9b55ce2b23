"""What all families of the memory engine share: time, tokens, sessions, hints, watches and the step budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from tenure.engine import CAP, FAMILIES, Broken, Claimed, Granted, Hint, Notice, Reply, Tripped

from ._due import Due

THINGS = (*FAMILIES, "watches")
"""In the order in which an ending session gives up what it has."""

A_FEW = 16
"""How many names of a family an operation looks at, whose time to be forgotten may have come."""

Thing = tuple[str, ...]


@dataclass(slots=True)
class Given:
    """The last answer to a numbered operation; it is repeated until then."""

    n: int
    answer: Any
    until: float


@dataclass(slots=True)
class Session:
    """A process's life sign, with all that it has, by family and in the order in which it was made."""

    id: str
    process: str
    ttl: float
    expires: float
    number: int
    things: dict[str, dict[Thing, None]] = field(default_factory=lambda: {name: {} for name in THINGS})


class State:
    """The part of the memory that belongs to no family."""

    def __init__(self, cap: int = CAP) -> None:
        self.cap = cap
        self.now = 0.0
        self.last_token = 0
        self.sessions: dict[str, Session] = {}
        self.soonest_expiry = inf
        self.hints: list[Hint] = []
        self.watches: dict[Thing, dict[str, None]] = {}
        self.steps_left = cap
        self.unfinished = False
        self.unserved: dict[str, None] = {}
        self._given: dict[tuple[int, str], Given] = {}
        self._given_due = Due(self._look_at_given)
        self._opened = 0

    def token(self) -> int:
        self.last_token = max(self.last_token + 1, int(self.now * 1e6))
        return self.last_token

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

    def open(self, session: str, process: str) -> Session:
        self._opened += 1
        opened = self.sessions[session] = Session(session, process, 0.0, 0.0, self._opened)
        return opened

    def renew(self, session: Session) -> None:
        session.expires = self.now + session.ttl
        self.soonest_expiry = min((s.expires for s in self.sessions.values()), default=inf)

    def forget(self, session: Session) -> None:
        del self.sessions[session.id]
        self.soonest_expiry = min((s.expires for s in self.sessions.values()), default=inf)

    def ask_again_in(self, *due: float) -> float:
        """Seconds until the earliest moment at which asking again could help."""
        return max(0.0, min(self.soonest_expiry, *due, inf) - self.now)

    # numbered answers: they go by their time alone, so that the end of a session has nothing to do for them

    def repeated(self, session: str, n: int, name: str) -> Any:
        """The answer that was given to the same numbered operation before, GONE, or None for a new one."""
        known = self.sessions.get(session)
        if known is None:
            return Reply.GONE
        given = self._given.get((known.number, name))
        if given is None or given.n != n or given.until <= self.now:
            return None
        given.until = self.now + 2 * known.ttl
        return given.answer

    def remember(self, session: str, n: int, name: str, answer: Any) -> None:
        known = self.sessions[session]
        given = Given(n, answer, self.now + 2 * known.ttl)
        self._given[known.number, name] = given
        self._given_due.add((known.number, name), given.until)

    def forget_given(self) -> None:
        """Forget a few of those that are kept no longer."""
        self._given_due.look(self.now, A_FEW)

    def _look_at_given(self, name: tuple[int, str]) -> float | None:
        given = self._given[name]
        if given.until > self.now:
            return given.until
        del self._given[name]
        return None

    # watches: one-shot requests to be hinted, by topic

    def watch(self, session: str, topic: Thing) -> None:
        self.watches.setdefault(topic, {})[session] = None
        self.sessions[session].things["watches"][topic] = None

    def fire(self, topic: Thing, key: str, name: str, notice: Notice) -> None:
        for session in self.watches.pop(topic, {}):
            known = self.sessions[session]
            del known.things["watches"][topic]
            self.hint(known.process, key, name, notice)

    def unwatch(self, session: Session, topic: Thing) -> None:
        watchers = self.watches[topic]
        del watchers[session.id]
        if not watchers:
            del self.watches[topic]
