"""Sessions: opened, renewed and closed; what an ended one leaves behind is dropped family by family."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tenure.engine import CloseSession, OpenSession, Ping, RenewSession, Reply

from ._state import SESSION_ITEMS, ItemKey, Session, State

Drop = Callable[[Session, ItemKey], object]
"""Drops one item that an ended session had."""


class Sessions:
    """The family of sessions; `drop` has for each of `SESSION_ITEMS` the function that drops one."""

    def __init__(self, state: State, drop: dict[str, Drop]) -> None:
        self._state = state
        self._drop = drop

    def ping(self, _op: Ping) -> Reply:
        return Reply.OK

    def open_session(self, op: OpenSession) -> Reply:
        session = self._state.sessions.get(op.key)
        if session is None:
            session = self._state.open(op.key, op.process)
        session.ttl = op.ttl
        self._state.renew(session)
        return Reply.OK

    def renew_session(self, op: RenewSession) -> Reply:
        session = self._state.sessions.get(op.key)
        if session is None:
            return Reply.GONE
        self._state.renew(session)
        return Reply.OK

    def close_session(self, op: CloseSession) -> Reply:
        session = self._state.sessions.get(op.key)
        if session is None:
            return Reply.GONE
        session.expires = self._state.soonest_expiry = -1.0
        self.end_expired()
        return Reply.OK

    def end_expired(self) -> None:
        """End the sessions that have expired, for as long as there are steps left."""
        state = self._state
        expired = [session for session in state.sessions.values() if session.expires <= state.now]
        for session in sorted(expired, key=lambda s: (s.expires, s.id)):
            for family in SESSION_ITEMS:
                items = session.items[family]
                drop = partial(self._drop[family], session)
                while items:
                    if not state.step():
                        return
                    item = next(iter(items))
                    del items[item]
                    drop(item)
            state.forget(session)
