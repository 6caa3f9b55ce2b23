"""Turns: one numbered operation at a time for one object, made at the last moment of what has gathered."""

from __future__ import annotations

from functools import partial
from math import inf
from random import uniform
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from tenure.engine import Operation, Reply
from tenure.errors import EngineError, StoreClosed

from ._sessions import Session, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._store import Store
    from ._wire import Call

_LEAST_PAUSE = 0.02


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

    def on_error(self, error: Exception, session: Session | None) -> None:
        """The last operation failed alone; without a session: none can be opened, so nothing can be said."""
        ...


class Turns:
    """Lets a speaker speak of a key, one numbered operation at a time, under the session for a ttl.

    Thread safety: none.
    """

    def __init__(self, store: Store, key: str, ttl: float, speaker: Speaker) -> None:
        self.busy = False
        """Whether an operation is under way."""
        self._store = store
        self._key = key
        self._ttl = ttl
        self._speaker = speaker
        self._opening = False
        self._call: Call[Any] | None = None

    def kick(self) -> None:
        """There may be something to say: it leaves at the end of the loop's turn, or after the answer to the last."""
        if not self.busy:
            self._store.compose_soon(self, self._key)

    def compose(self) -> None:
        """Say it. For the wire alone."""
        if self.busy:
            return
        session = self._store.session_at_once(self._ttl, self._key)
        if session is None:
            self._open()
            return
        operation = self._speaker.next_operation(session, next(numbers))
        if operation is None:
            return
        self.busy, self._call = True, None
        call = self._store.send(operation, lambda answer: self._answered(session, answer))
        if self.busy:
            self._call = call

    def _answered(self, session: Session, answer: Any) -> None:
        resent = self._call is not None and self._call.tries > 1
        self.busy, self._call = False, None
        if answer is Reply.GONE:
            session.lose("gone")
            self._speaker.on_gone(resent=resent)
        elif isinstance(answer, Exception):
            self._speaker.on_error(answer, None if isinstance(answer, StoreClosed) else session)
        else:
            self._speaker.on_answer(session, answer)

    def _open(self) -> None:
        if not self._opening:
            try:
                self._store.start_job("session", self._open_session)
            except StoreClosed as problem:
                self._speaker.on_error(problem, None)
            else:
                self._opening = True

    async def _open_session(self) -> None:
        try:
            await self._store.session(self._ttl, self._key)
        except (EngineError, StoreClosed) as problem:
            # whoever waits is told, so that nothing is left to be said, and nobody asks over and over
            self._speaker.on_error(problem, None)
        else:
            self._store.compose_soon(self, self._key)
        finally:
            self._opening = False


class Alarm:
    """Calls a function at the time that was set last; setting it anew costs next to nothing.

    Thread safety: none.
    """

    def __init__(self, store: Store, ring: Callable[[], None]) -> None:
        self._store = store
        self._ring = ring
        self._due = inf
        self._armed = inf

    def set(self, seconds: float) -> None:
        """Ring after so many seconds and a little more, chosen at random; no more at the time set before."""
        pause = max(_LEAST_PAUSE, seconds)
        self._due = anyio.current_time() + pause + uniform(0, min(0.1 * pause, 0.2))
        if self._due < self._armed:
            self._arm()

    def _arm(self) -> None:
        self._armed = self._due
        self._store.call_at(self._armed, partial(self._on_time, self._armed))

    def _on_time(self, when: float) -> None:
        if when == self._armed:
            self._armed = inf
            if self._due <= when:
                self._due = inf
                self._ring()
            elif self._due < inf:
                self._arm()
