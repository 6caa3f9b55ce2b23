"""Sessions: opened, renewed and closed; an ended session drops its holds family by family."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import tenure.engine as e

from ._state import Session

Family = tuple[Callable[[Any], Any], Callable[[Any], object]]
"""Finds the first hold or place of a family that a session has, and drops it."""


class SessionState(Protocol):
    def session(self, name: str, /) -> Any: ...

    def open(self, name: str, process: str, ttl: float, /) -> None: ...

    def renew(self, session: Any, ttl: float, /) -> None: ...

    def end(self, session: Any, /) -> None: ...

    def ended(self) -> Iterable[Session]:
        """The sessions whose time has passed, in the order of their ends, then of their names."""
        ...

    def forget(self, session: Any, /) -> None: ...

    def step(self) -> bool: ...


class Sessions:
    def __init__(self, state: SessionState, families: list[Family]) -> None:
        self._state = state
        self._families = families

    def ping(self, _op: e.Ping) -> e.Reply:
        return e.Reply.OK

    def open_session(self, op: e.OpenSession) -> e.Reply:
        session = self._state.session(op.key)
        if session is None:
            self._state.open(op.key, op.process, op.ttl)
        else:
            self._state.renew(session, op.ttl)
        return e.Reply.OK

    def renew_session(self, op: e.RenewSession) -> e.Reply:
        session = self._state.session(op.key)
        if session is None:
            return e.Reply.GONE
        self._state.renew(session, session.ttl)
        return e.Reply.OK

    def close_session(self, op: e.CloseSession) -> e.Reply:
        session = self._state.session(op.key)
        if session is None:
            return e.Reply.GONE
        self._state.end(session)
        self.end_expired()
        return e.Reply.OK

    def end_expired(self) -> None:
        for session in self._state.ended():
            for first, drop in self._families:
                while (thing := first(session)) is not None:
                    if not self._state.step():
                        return
                    drop(thing)
            self._state.forget(session)
