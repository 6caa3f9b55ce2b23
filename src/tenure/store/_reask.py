from __future__ import annotations

from functools import partial
from math import inf
from typing import Protocol

import tenure.engine as e
from tenure.waiting import now

from ._sessions import Session
from ._timers import Timers, jittered

_LEAST_PAUSE = 0.05
_AFTER_AN_ERROR = 1.0


class InQueue(Protocol):
    name: str
    session: Session
    ended: bool

    def on_queued(self, answer: e.Queued, /) -> None: ...

    def on_news(self, news: object, /) -> None: ...


class Reasker:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._by_key: dict[str, dict[InQueue, None]] = {}
        self._due: dict[str, float] = {}

    def add(self, key: str, acquisition: InQueue, ask_again_in: float) -> None:
        self._by_key.setdefault(key, {})[acquisition] = None
        self._ask_later(key, ask_again_in)

    def drop(self, key: str, acquisition: InQueue) -> None:
        group = self._by_key.get(key)
        if group is not None:
            group.pop(acquisition, None)
            if not group:
                del self._by_key[key]

    def ask_everything(self) -> None:
        """Ask for all of them now: hints may have been lost."""
        for key in list(self._by_key):
            self._ask_now(key)

    def _ask_later(self, key: str, seconds: float) -> None:
        # one timer for all that wait for a key; it stays when they leave, so that a busy key does not pile them up
        when = now() + jittered(seconds, least=_LEAST_PAUSE)
        if when < self._due.get(key, inf):
            self._due[key] = when
            self._timers.call_at(when, partial(self._on_time, key, when))

    def _on_time(self, key: str, when: float) -> None:
        if self._due.get(key) == when:
            self._ask_now(key)

    def _ask_now(self, key: str) -> None:
        self._due.pop(key, None)
        by_session: dict[Session, list[InQueue]] = {}
        for acquisition in self._by_key.get(key, ()):
            by_session.setdefault(acquisition.session, []).append(acquisition)
        for session, group in by_session.items():
            self._ask_group(key, session, group)

    def _ask_group(self, key: str, session: Session, group: list[InQueue]) -> None:
        # a portion at a time, so that others get their turn between
        part, others = group[: e.CAP], group[e.CAP :]
        ask = e.Ask(session.id, key, tuple(acquisition.name for acquisition in part))
        session.dispatcher.send(ask, partial(self._on_answers, key, session, part, others))

    def _on_answers(
        self, key: str, session: Session, part: list[InQueue], others: list[InQueue], answers: object
    ) -> None:
        if not isinstance(answers, e.HoldStatuses):  # an error; GONE comes to light at the next heartbeat
            if key in self._by_key:
                self._ask_later(key, _AFTER_AN_ERROR)
            return
        if others := [acquisition for acquisition in others if not acquisition.ended]:
            self._ask_group(key, session, others)
        for acquisition, answer in zip(part, answers.answers, strict=True):
            match answer:
                case e.Queued():
                    acquisition.on_queued(answer)
                case e.Granted():
                    acquisition.on_news(answer)
                case _:
                    acquisition.on_news(e.Notice.ASK)
