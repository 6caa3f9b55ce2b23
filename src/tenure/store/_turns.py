"""Turns: one numbered operation at a time for one object, made at the last moment of what has gathered."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from tenure.engine import Operation, Reply
from tenure.errors import EngineError, StoreClosed

from ._sessions import Session

if TYPE_CHECKING:
    from ._store import Store
    from ._wire import Call


class Speaker(Protocol):
    """What an object has to say to the engine."""

    def next_operation(self, session: Session, n: int) -> Operation[Any] | None:
        """The next operation, made of all that has gathered; None if there is nothing to say."""
        ...

    def on_answer(self, session: Session, answer: Any) -> None:
        """The answer to the last operation."""
        ...

    def on_gone(self, *, resent: bool) -> None:
        """The session of the last operation has ended. Unless it was `resent`, it was not applied."""
        ...

    def on_error(self, error: Exception) -> None:
        """The last operation failed alone, or no session could be opened."""
        ...


class Turns:
    """Lets a speaker speak, one numbered operation at a time, under the session for a ttl.

    Thread safety: none.
    """

    def __init__(self, store: Store, ttl: float, speaker: Speaker) -> None:
        self._store = store
        self._ttl = ttl
        self._speaker = speaker
        self._numbers = count(1)
        self._busy = False
        self._opening = False
        self._call: Call[Any] | None = None

    def kick(self) -> None:
        """There may be something to say: it leaves at the end of the loop's turn, or when the answer before is there."""
        if not self._busy:
            self._store.compose_soon(self)

    def compose(self) -> None:
        """Say it. For the wire alone."""
        if self._busy:
            return
        session = self._store.session_at_once(self._ttl)
        if session is None:
            self._open()
            return
        operation = self._speaker.next_operation(session, next(self._numbers))
        if operation is None:
            return
        self._busy, self._call = True, None
        call = self._store.send(operation, lambda answer: self._answered(session, answer))
        if self._busy:
            self._call = call

    def _answered(self, session: Session, answer: Any) -> None:
        resent = self._call is not None and self._call.tries > 1
        self._busy, self._call = False, None
        if answer is Reply.GONE:
            session.lose("gone")
            self._speaker.on_gone(resent=resent)
        elif isinstance(answer, Exception):
            self._speaker.on_error(answer)
        else:
            self._speaker.on_answer(session, answer)

    def _open(self) -> None:
        if not self._opening:
            self._opening = True
            try:
                self._store.start_job("session", self._open_session)
            except StoreClosed:
                self._opening = False

    async def _open_session(self) -> None:
        try:
            await self._store.session(self._ttl)
        except (EngineError, StoreClosed) as problem:
            self._speaker.on_error(problem)
        finally:
            self._opening = False
        self._store.compose_soon(self)
