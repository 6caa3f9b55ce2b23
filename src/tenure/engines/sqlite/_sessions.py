"""Sessions: opened, renewed and closed; what an ended one leaves behind is cleared up family by family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.engine import CloseSession, OpenSession, Ping, RenewSession, Reply

from ._clock import micros
from ._sql import SESSIONS
from ._state import State

Drop = Callable[[Any], None]
"""Clears up one thing, given as the row that its statement found."""


class Sessions:
    """The family of sessions; `families` are a statement that finds the next thing and what drops it, in order."""

    def __init__(self, state: State, families: list[tuple[str, Drop]]) -> None:
        self._state = state
        self._families = [*families, (SESSIONS.next_watch, self._unwatch)]

    def ping(self, _op: Ping) -> Reply:
        return Reply.OK

    def open_session(self, op: OpenSession) -> Reply:
        session = self._state.session(op.key)
        if session is None:
            self._state.open(op.key, op.process, micros(op.ttl))
        else:
            self._state.renew(session, micros(op.ttl))
        return Reply.OK

    def renew_session(self, op: RenewSession) -> Reply:
        session = self._state.session(op.key)
        if session is None:
            return Reply.GONE
        self._state.renew(session, session.ttl)
        return Reply.OK

    def close_session(self, op: CloseSession) -> Reply:
        session = self._state.session(op.key)
        if session is None:
            return Reply.GONE
        self._state.run(SESSIONS.end, id=session.id)
        self._state.sessions_changed()
        self.end_expired()
        return Reply.OK

    def end_expired(self) -> None:
        """Clear up after the sessions that have ended, for as long as there are steps left."""
        state = self._state
        for (session,) in state.all(SESSIONS.expired, now=state.boot):
            for find, drop in self._families:
                while (thing := state.one(find, session=session)) is not None:
                    if not state.step():
                        return
                    drop(thing)
            state.forget(session)

    def _unwatch(self, thing: Any) -> None:
        self._state.run(SESSIONS.unwatch, id=thing[0])
