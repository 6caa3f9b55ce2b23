"""Places: waiting for something that the engine grants, and asking again when no hint comes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from random import uniform
from typing import Any, NamedTuple, Protocol

import anyio

from tenure.engine import (
    CAP,
    Ask,
    Asked,
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
    Waiting,
)
from tenure.errors import CapacityMismatch, StoreClosed
from tenure.local._line import Line, Waiter
from tenure.local._park import checkpoint, this_task

from ._sessions import Held, Session, Sessions
from ._settling import Settlement
from ._timers import Timers
from ._wire import Call
from ._wires import Wires

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


class Obtained(NamedTuple):
    """What was obtained, from which session and under which name."""

    session: Session
    name: str
    answer: Any


class Places:
    """All who wait in this process for the engine to grant them something.

    Thread safety: none.
    """

    def __init__(self, wires: Wires, sessions: Sessions, timers: Timers) -> None:
        self._wires = wires
        self._sessions = sessions
        self._timers = timers
        self.line: Line[str, Any] = Line(_nothing)
        self._by_name: dict[str, Attempt] = {}
        self._by_key: dict[str, dict[Attempt, None]] = {}
        self._asking: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self.line)

    async def obtain(self, wish: Wish, ttl: float, ahead: Callable[[int], None] | None = None) -> Obtained:
        """Ask for it and wait until it is there; `ahead` is told how many are ahead in the line.

        Raises `CapacityMismatch`, `EngineError`, `StoreClosed`. The answer REFUSED is returned as it is.
        Cancellation: the place, or what was granted meanwhile, is given back.
        """
        while True:
            session = self._sessions.current(ttl, wish.key) or await self._sessions.get(ttl, wish.key)
            attempt = self.attempt(wish, session, ahead)
            try:
                answer = await attempt.answer()
            except BaseException:
                if attempt.untouched:
                    del self._by_name[attempt.name]
                else:
                    self.settle(wish, attempt.name, session)
                raise
            finally:
                attempt.end()
            # the session may have ended without anybody noticing yet
            if session.look() is None and answer is not Reply.GONE and not self._sessions.closed:
                if not isinstance(answer, (Granted, Claimed)):
                    del self._by_name[attempt.name]
                    if isinstance(answer, Mismatch):
                        raise CapacityMismatch(
                            wish.key, asked=getattr(wish, "capacity", 0), stored=answer.stored
                        )
                return Obtained(session, attempt.name, answer)
            self.settle(wish, attempt.name, session)
            if self._sessions.closed:
                raise StoreClosed("the store was closed")
            session.lose("gone")

    def settle(self, wish: Wish, name: str, session: Session) -> Settlement:
        """Give back what was obtained under this name, or its place. Synchronous; nothing can stop it."""
        self._by_name.pop(name, None)
        return Settlement(wish.undo(name), session)

    def attempt(self, wish: Wish, session: Session, ahead: Callable[[int], None] | None = None) -> Attempt:
        """One attempt, under a name of its own; follow with `Attempt.answer`."""
        attempt = Attempt(self, session, wish, ahead)
        # known here before anything is sent, so that no hint is missed
        self._by_name[attempt.name] = attempt
        return attempt

    def ask(self, attempt: Attempt, operation: Operation[Any]) -> None:
        """Send what an attempt asks. For attempts alone."""
        attempt.news = attempt.heard = None
        attempt.call = attempt.session.wire.send(operation, partial(self._on_answer, attempt))

    def leave(self, attempt: Attempt) -> None:
        """It no longer waits for an answer. For attempts alone."""
        key = attempt.wish.key
        group = self._by_key.get(key)
        if group is not None:
            group.pop(attempt, None)
            if not group:
                del self._by_key[key]

    def undo(self, attempt: Attempt, after: Call[Any] | None) -> Settlement:
        """Undo what an attempt asked for. For attempts alone."""
        self._by_name.pop(attempt.name, None)
        return Settlement(attempt.wish.undo(attempt.name), attempt.session, after)

    def _on_answer(self, attempt: Attempt, answer: object) -> None:
        attempt.heard = answer
        if isinstance(answer, (Queued, Waiting)):
            self._queued(attempt, answer)
        else:
            attempt.tell(answer)

    def _queued(self, attempt: Attempt, answer: Queued | Waiting) -> None:
        attempt.waits = answer
        if attempt.ended:
            return
        if isinstance(answer, Queued) and attempt.ahead is not None:
            attempt.ahead(answer.place - 1)
        self._by_key.setdefault(attempt.wish.key, {})[attempt] = None
        self._ask_later(attempt.wish.key, answer.ask_again_in)

    @property
    def closed(self) -> bool:
        """Whether the store closes or has closed: who waits from now on is woken by nobody."""
        return self._sessions.closed

    def close(self) -> None:
        """Wake all who wait with `StoreClosed`."""
        self.line.fail_all(lambda: StoreClosed("the store was closed"))

    # hints

    def on_hint(self, hint: Hint) -> None:
        """A hint for a holder, participant or claimer. What nobody waits for or holds is given back."""
        if (attempt := self._by_name.get(hint.name)) is not None:
            attempt.tell(hint.news)
            return
        match hint.news:
            case Granted():
                self._wires.of(hint.key).send(Release(hint.key, hint.name), _nothing)
            case Claimed():
                self._wires.of(hint.key).send(GiveBack(hint.key, hint.name), _nothing)
            case Notice.ROOM:
                self._wires.of(hint.key).send(Leave(hint.key, hint.name), _nothing)
            case _:
                pass  # the outcome of an arrival too: whoever ends one withdraws it, and wants the answer

    def knows(self, name: str) -> bool:
        """Whether somebody here waits or holds under this name."""
        return name in self._by_name

    # asking again

    def ask_everything(self) -> None:
        """Hints may have been lost."""
        for key in list(self._by_key):
            self._ask_now(key)

    def _ask_later(self, key: str, seconds: float) -> None:
        # one timer for all who wait for a key; it stays when they leave, so that a busy key does not pile them up
        pause = max(seconds, _LEAST_PAUSE)
        when = anyio.current_time() + pause + uniform(0, min(0.1 * pause, 0.5))
        if when < self._asking.get(key, inf):
            self._asking[key] = when
            self._timers.call_at(when, partial(self._on_time, key, when))

    def _on_time(self, key: str, when: float) -> None:
        if self._asking.get(key) == when:
            self._ask_now(key)

    def _ask_now(self, key: str) -> None:
        self._asking.pop(key, None)
        by_session: dict[Session, list[Attempt]] = {}
        for attempt in self._by_key.get(key, ()):
            by_session.setdefault(attempt.session, []).append(attempt)
        for session, group in by_session.items():
            self._ask_group(key, session, group)

    def _ask_group(self, key: str, session: Session, group: list[Attempt]) -> None:
        # a portion at a time, so that others get their turn between
        part, rest = group[:CAP], group[CAP:]
        ask = Ask(session.id, key, tuple(attempt.name for attempt in part))
        session.wire.send(ask, partial(self._on_answers, key, session, part, rest))

    def _on_answers(
        self, key: str, session: Session, part: list[Attempt], rest: list[Attempt], answers: object
    ) -> None:
        if not isinstance(answers, Asked):  # an error; GONE comes to light at the next heartbeat
            if key in self._by_key:
                self._ask_later(key, 1.0)
            return
        if rest := [attempt for attempt in rest if not attempt.ended]:
            self._ask_group(key, session, rest)
        for attempt, answer in zip(part, answers.answers, strict=True):
            match answer:
                case Queued():
                    self._queued(attempt, answer)
                case Granted():
                    attempt.tell(answer)
                case _:
                    attempt.tell(Notice.ASK)


class Attempt(Held):
    """One attempt to obtain something.

    `heard` is the engine's last answer, None while it is being asked; `waits` the last that told to wait.
    Thread safety: none.
    """

    __slots__ = (
        "_places",
        "_waiter",
        "ahead",
        "call",
        "ended",
        "heard",
        "name",
        "news",
        "session",
        "waits",
        "wish",
    )

    def __init__(
        self, places: Places, session: Session, wish: Wish, ahead: Callable[[int], None] | None
    ) -> None:
        self.session = session
        # tools that look for deadlocks read the task from it
        self.name = f"{session.new_name()}@{id(this_task()):x}"
        self.wish = wish
        self.ahead = ahead
        self.call: Call[Any] | None = None
        self.news: object = None
        self.heard: object = None
        self.waits: Queued | Waiting | None = None
        self.ended = False
        self._places = places
        self._waiter: Waiter[str, Any] | None = None

    @property
    def untouched(self) -> bool:
        """Whether the engine has surely not done what was asked: it was never sent, or refused at the first time."""
        if self.waits is not None or self.heard not in (None, Reply.GONE):
            return False
        tries = 0 if self.call is None else self.call.tries
        return tries <= (self.heard is Reply.GONE)

    async def answer(self) -> Any:
        """Ask, and wait for an answer that does not tell to wait; GONE if the session is lost meanwhile.

        Raises `EngineError`, `StoreClosed`. Cancellation: what was asked for is not undone.
        """
        operation = self.wish.ask(self.session.id, self.name)
        while True:
            self._places.ask(self, operation)
            if (news := self.news) is None:
                news = await self._wait()
            else:
                await checkpoint()
            if isinstance(news, Exception):
                raise news
            if not isinstance(news, Notice):
                return news
            if self._places.closed:
                return Reply.GONE

    def end(self) -> None:
        """What was not yet sent need not be sent, and what comes now comes too late."""
        if self.call is not None:
            self.call.wanted = False
        self._end()

    def withdraw(self) -> Settlement:
        """End it and undo it, synchronously, but not before the engine has answered to what was asked.

        So the two are never in one batch: sent again, that would ask anew for what has just been undone.
        """
        after = self.call if self.heard is None else None
        self._end()
        return self._places.undo(self, after)

    def _end(self) -> None:
        self.ended = True
        self.call = None  # it knows this attempt: together they would wait for the garbage collector
        self._places.leave(self)

    async def _wait(self) -> object:
        self.session.add(self)
        try:
            self._waiter = self._places.line.join(self.name)
            return await self._places.line.wait(self._waiter)
        finally:
            self._waiter = None
            self.session.drop(self)

    def tell(self, news: object) -> None:
        """Hand over what came; a second time nothing happens."""
        if self._waiter is None:
            self.news = news
        else:
            self._places.line.grant(self._waiter, news)

    def lose(self, reason: str) -> None:
        """The session is lost. For the session alone."""
        del reason
        self.tell(Reply.GONE)


def _nothing(_: object) -> None:
    pass
