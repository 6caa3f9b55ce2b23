"""Batching: one numbered operation at a time for one object, made at the last moment from all gathered requests.

| state    | `busy` | `_opening` | event                  | goes to                                                |
|----------|--------|------------|------------------------|--------------------------------------------------------|
| idle     | False  | False      | `schedule()`           | due                                                    |
| due      | False  | False      | end of the loop's turn | busy; idle if nothing has gathered; opening: no session |
| opening  | False  | True       | the session is open    | due                                                    |
|          |        |            | it cannot be opened    | idle: `on_error(error, None)`                          |
| busy     | True   | False      | the answer             | `on_answer`, `on_error` or `on_session_lost`; idle     |

The owner of a busy batcher calls `schedule` again in `on_answer`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import tenure.engine as e
from tenure.errors import EngineError, StoreClosed, StoreUnavailable
from tenure.waiting import Expired, Line, Waiter

from ._sessions import Session, numbers

if TYPE_CHECKING:
    from ._dispatch import Call
    from ._handle import StoreHandle

T = TypeVar("T")
V = TypeVar("V")


class BatchOwner(Protocol):
    def next_operation(self, session: Session, n: int) -> e.Operation[Any] | None: ...

    # True: what has gathered leaves before any task runs
    def on_answer(self, session: Session, answer: Any) -> bool | None: ...

    def on_session_lost(self, *, resent: bool) -> None: ...

    def on_error(self, error: Exception, session: Session | None) -> None: ...


class Batcher:
    def __init__(self, store: StoreHandle, key: str, ttl: float, owner: BatchOwner) -> None:
        self.busy: bool = False
        self.call: Call[Any] | None = None
        """The operation that is under way; None for an operation that was answered at once."""
        self._store = store
        self._sessions = store.sessions
        self._dispatcher = store.dispatchers.of(key)
        self._key = key
        self._ttl = ttl
        self._owner = owner
        self._opening = False
        self._due = False

    def schedule(self) -> None:
        if not (self.busy or self._due):
            self._dispatcher.call_soon(self._flush)
            self._due = True

    async def answered(self, line: Line[T, V], waiter: Waiter[T, V], outcome: Callable[[], str]) -> V:
        """Wait for what an answer grants the waiter. Raises `StoreUnavailable`, with the outcome, if none comes."""
        try:
            return await line.wait(waiter, self.patience)
        except Expired:
            raise self.no_answer(outcome()) from None

    @property
    def patience(self) -> float:
        return self._dispatcher.patience

    def no_answer(self, outcome: str) -> StoreUnavailable:
        return self._dispatcher.no_answer(outcome)

    def _flush(self) -> None:
        self._due = False
        if self.busy:
            return
        session = self._sessions.current(self._ttl, self._key)
        if session is None:
            self._open()
            return
        operation = self._owner.next_operation(session, next(numbers))
        if operation is None:
            return
        self.busy, self.call = True, None
        call = self._dispatcher.send(operation, partial(self._on_answer, session))
        if self.busy:
            self.call = call

    def _on_answer(self, session: Session, answer: Any) -> None:
        call, self.call = self.call, None
        resent = call is not None and call.tries > 1
        self.busy = False
        if answer is e.Reply.GONE:
            session.lose("gone")
            self._owner.on_session_lost(resent=resent)
        elif isinstance(answer, Exception):
            self._owner.on_error(answer, None if isinstance(answer, StoreClosed) else session)
        elif self._owner.on_answer(session, answer) and call is not None:
            self._flush()

    def _open(self) -> None:
        if not self._opening:
            try:
                self._store.start_job("session", self._open_session)
            except StoreClosed as problem:
                self._owner.on_error(problem, None)
            else:
                self._opening = True

    async def _open_session(self) -> None:
        try:
            await self._store.session(self._ttl, self._key)
        except (EngineError, StoreClosed) as problem:
            # the owner fails whatever has gathered, so that callers do not ask over and over
            self._owner.on_error(problem, None)
        else:
            self._dispatcher.call_soon(self._flush)
        finally:
            self._opening = False
