"""Places: waiting for something that the engine grants, and asking again when no hint comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import uniform
from typing import Any, Protocol

import anyio

from tenure.engine import (
    Ask,
    Asked,
    Broken,
    Claimed,
    GiveBack,
    Granted,
    Hint,
    Leave,
    Mismatch,
    Notice,
    Operation,
    Queued,
    Release,
    Reply,
    Tripped,
    Waiting,
    Withdraw,
)
from tenure.errors import CapacityMismatch, StoreClosed
from tenure.local._line import Line, Waiter

from ._sessions import Session, Sessions
from ._settling import Settlement
from ._timers import Timers
from ._wire import Wire

_LEAST_PAUSE = 0.05


class Wish(Protocol):
    """What to ask the engine for, under a session and a name, and how to undo it."""

    @property
    def key(self) -> str:
        """The engine's key of what is wanted."""
        ...

    def ask(self, session: str, name: str) -> Operation[Any]:
        """The operation that obtains it, or a place in the line."""
        ...

    def undo(self, name: str) -> Operation[Any]:
        """The operation that gives it back, or leaves the line."""
        ...


@dataclass(frozen=True, slots=True)
class Obtained:
    """What was obtained, from which session and under which name."""

    session: Session
    name: str
    answer: Any


class Places:
    """All who wait in this process for the engine to grant them something.

    Thread safety: none.
    """

    def __init__(self, wire: Wire, sessions: Sessions, timers: Timers) -> None:
        self._wire = wire
        self._sessions = sessions
        self._timers = timers
        self._line: Line[str, Any] = Line(lambda _: None)
        self._by_name: dict[str, _Waiting | None] = {}
        self._by_key: dict[str, dict[_Waiting, None]] = {}
        self._asking: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._line)

    async def obtain(self, wish: Wish, ttl: float, ahead: Callable[[int], None] = lambda _: None) -> Obtained:
        """Ask for it and wait until it is there; `ahead` is told how many are ahead in the line.

        Raises `CapacityMismatch`, `EngineError`, `StoreClosed`. The answer REFUSED is returned as it is.
        Cancellation: the place, or what was granted meanwhile, is given back.
        """
        while True:
            session = self._sessions.current(ttl) or await self._sessions.get(ttl)
            name = session.new_name()
            waiting = _Waiting(session, wish.key, name, self._line)
            self._by_name[name] = waiting
            session.add(waiting)
            try:
                answer = await self._ask(waiting, wish, ahead)
            except BaseException:
                self.settle(wish, name, session)
                raise
            finally:
                session.drop(waiting)
                self._leave_line(waiting)
            if session.lost is None and answer is not Reply.GONE:
                if isinstance(answer, (Granted, Claimed)):
                    return Obtained(session, name, answer)
                del self._by_name[name]
                if isinstance(answer, Mismatch):
                    raise CapacityMismatch(wish.key, asked=getattr(wish, "capacity", 0), stored=answer.stored)
                return Obtained(session, name, answer)
            self.settle(wish, name, session)
            session.lose("gone")
            if self._sessions.closed:
                raise StoreClosed("the store was closed")

    def settle(self, wish: Wish, name: str, session: Session) -> Settlement:
        """Give back what was obtained under this name, or its place. Synchronous; nothing can stop it."""
        self._by_name.pop(name, None)
        return Settlement(self._wire, wish.undo(name), session)

    async def _ask(self, waiting: _Waiting, wish: Wish, ahead: Callable[[int], None]) -> Any:
        operation = wish.ask(waiting.session.id, waiting.name)
        while True:
            waiter = waiting.join()
            answer = await self._wire.call(operation)
            if not isinstance(answer, (Queued, Waiting)):
                return answer
            if isinstance(answer, Queued):
                ahead(answer.place - 1)
            self._by_key.setdefault(waiting.key, {})[waiting] = None
            self._ask_later(waiting.key, answer.ask_again_in)
            news = await self._line.wait(waiter)
            if not isinstance(news, Notice):
                return news

    # hints

    def on_hint(self, hint: Hint) -> None:
        """A hint for a holder, participant or claimer. What nobody waits for or holds is given back."""
        if hint.name in self._by_name:
            waiting = self._by_name[hint.name]
            if waiting is not None:
                waiting.tell(hint.news)
            return
        match hint.news:
            case Granted():
                self._wire.send(Release(hint.key, hint.name), _ignore)
            case Claimed():
                self._wire.send(GiveBack(hint.key, hint.name), _ignore)
            case Tripped() | Broken():
                self._wire.send(Withdraw(hint.key, hint.name), _ignore)
            case Notice.ROOM:
                self._wire.send(Leave(hint.key, hint.name), _ignore)
            case _:
                pass

    def close(self) -> None:
        """Wake all who wait with `StoreClosed`."""
        self._line.fail_all(lambda: StoreClosed("the store was closed"))

    # asking again

    def ask_everything(self) -> None:
        """Hints may have been lost."""
        for key in list(self._by_key):
            self._ask_now(key)

    def _ask_later(self, key: str, seconds: float) -> None:
        pause = max(seconds, _LEAST_PAUSE)
        when = anyio.current_time() + pause + uniform(0, min(0.1 * pause, 0.5))
        if when < self._asking.get(key, when + 1):
            self._asking[key] = when
            self._timers.call_at(when, partial(self._on_time, key, when))

    def _on_time(self, key: str, when: float) -> None:
        if self._asking.get(key) == when:
            self._ask_now(key)

    def _ask_now(self, key: str) -> None:
        self._asking.pop(key, None)
        by_session: dict[Session, list[_Waiting]] = {}
        for waiting in self._by_key.get(key, ()):
            by_session.setdefault(waiting.session, []).append(waiting)
        for session, group in by_session.items():
            names = tuple(waiting.name for waiting in group)
            self._wire.send(Ask(session.id, key, names), partial(self._on_answers, key, group))

    def _on_answers(self, key: str, group: list[_Waiting], answers: object) -> None:
        if not isinstance(answers, Asked):  # GONE comes to light at the next heartbeat
            self._ask_later(key, 1.0)
            return
        for waiting, answer in zip(group, answers.answers, strict=True):
            match answer:
                case Queued(ask_again_in=seconds):
                    self._ask_later(key, seconds)
                case Granted():
                    waiting.tell(answer)
                case _:
                    waiting.tell(Notice.ASK)

    def _leave_line(self, waiting: _Waiting) -> None:
        waiting.end()
        group = self._by_key.get(waiting.key)
        if group is not None and group.pop(waiting, waiting) is None and not group:
            del self._by_key[waiting.key]
            self._asking.pop(waiting.key, None)


class _Waiting:
    """One attempt to obtain something: known here before anything is sent, so that no hint is missed."""

    __slots__ = ("_line", "_waiter", "key", "name", "session")

    def __init__(self, session: Session, key: str, name: str, line: Line[str, Any]) -> None:
        self.session = session
        self.key = key
        self.name = name
        self._line = line
        self._waiter: Waiter[str, Any] | None = None

    def join(self) -> Waiter[str, Any]:
        self.end()
        self._waiter = self._line.join(self.key)
        return self._waiter

    def tell(self, news: object) -> None:
        """Hand over what came; a second time nothing happens."""
        if self._waiter is not None:
            self._line.grant(self._waiter, news)

    def lose(self, reason: str) -> None:
        del reason
        self.tell(Reply.GONE)

    def end(self) -> None:
        """Step out of the local line; the engine's is another matter."""
        if self._waiter is not None and not self._waiter.granted:
            self._line.leave(self._waiter)
        self._waiter = None


def _ignore(_: object) -> None:
    pass
