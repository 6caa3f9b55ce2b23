"""Acquiring: asking the engine for something under a name of our own, waiting for the grant, and releasing it.

`reply` is the engine's last answer, `queued` its last answer that said to wait, `news` what ends the wait:

| state   | `call` | `reply` | `queued`    | `news` | event -> next state                                          |
|---------|--------|---------|-------------|--------|--------------------------------------------------------------|
| new     | None   | None    | None        | None   | `answer()` sends the question -> asked                       |
| asked   | set    | None    | None or set | None   | "wait" -> queued; any other answer, a hint, a loss -> done   |
| queued  | set    | set     | set         | None   | asking again says "wait" -> queued; hint, grant, loss -> done |
| done    | set    | any     | any         | set    | a `Notice` -> asked (once more); else `answer()` returns it  |
| ended   | None   | any     | any         | any    | `end()` or `withdraw()`: news is ignored                     |

A store knows the name from before the question is sent until what was granted under it is released. So an early hint
finds its acquisition, and a late grant is released. A release is handed over synchronously, before the caller's first
await, so that nothing can stop it:

| state   | `_refused` | `settled` | event                   | goes to                            |
|---------|------------|-----------|-------------------------|------------------------------------|
| waiting | False      | False     | `after` is answered     | sent (without `after` at once)     |
| sent    | False      | False     | an acknowledgement      | settled: `answer` is set           |
|         |            |           | an `EngineError`        | refused                            |
|         |            |           | `StoreClosed`           | settled, without an answer         |
| refused | True       | False     | the session's heartbeat | sent                               |

Until it is settled it stands in `Session.unreleased`; a release that stands there for a ttl ends the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from anyio import CancelScope

import tenure.engine as e
from tenure.errors import CapacityMismatch, StoreClosed
from tenure.waiting import Parked, checkpoint, now, park, this_task, wake

from ._dispatch import Call, Dispatchers, Home
from ._reask import Reasker
from ._sessions import Held, Session, Sessions
from ._timers import Timers


class AcquireRequest(Protocol):
    @property
    def key(self) -> str: ...

    def ask(self, session: str, name: str) -> e.Operation[Any]: ...

    def undo(self, name: str) -> e.Operation[Any]: ...


@dataclass(slots=True, eq=False)
class Grant:
    session: Session
    name: str
    answer: Any


class Acquisitions:
    def __init__(self, dispatchers: Dispatchers, sessions: Sessions, timers: Timers) -> None:
        self.by_name: dict[str, Acquisition] = {}
        self.reasker: Reasker = Reasker(timers)
        self._dispatchers = dispatchers
        self._sessions = sessions
        self.home: Home = dispatchers.home

    def __len__(self) -> int:
        return sum(acquisition.waiting for acquisition in self.by_name.values())

    async def acquire(
        self, request: AcquireRequest, ttl: float, on_position: Callable[[int], None] | None = None
    ) -> Grant:
        """Ask for it and wait until it is granted, or REFUSED; `on_position(n)` is called when n others are before it.

        Cancellation: the place in the queue is left, and what was granted meanwhile is released.
        """
        self.home.running()
        while True:
            session = self._sessions.current(ttl, request.key) or await self._sessions.get(ttl, request.key)
            acquisition = Acquisition(self, session, request, on_position)
            try:
                answer = await acquisition.answer()
            except BaseException:
                if acquisition.never_applied:
                    del self.by_name[acquisition.name]
                else:
                    self.release(request, acquisition.name, session)
                raise
            finally:
                acquisition.end()
            # the session may have ended without anybody noticing yet
            if session.check() is None and answer is not e.Reply.GONE and not self.home.closed:
                if isinstance(answer, (e.Granted, e.Claimed)):
                    return Grant(session, acquisition.name, answer)
                del self.by_name[acquisition.name]
                if isinstance(answer, e.Mismatch) and isinstance(acquisition.operation, e.Acquire):
                    asked = acquisition.operation.capacity
                    raise CapacityMismatch(request.key, asked=asked, stored=answer.stored)
                return Grant(session, acquisition.name, answer)
            self.release(request, acquisition.name, session)
            if self.home.closed:
                raise StoreClosed("the store was closed")
            session.lose("gone")

    def attempt(self, request: AcquireRequest, session: Session) -> Acquisition:
        self.home.running()
        return Acquisition(self, session, request)

    def release(self, request: AcquireRequest, name: str, session: Session) -> PendingRelease:
        """Release the hold of this name, or leave the queue. Synchronous; nothing can stop it."""
        self.by_name.pop(name, None)
        return PendingRelease(request.undo(name), session)

    def close(self) -> None:
        for acquisition in list(self.by_name.values()):
            if acquisition.waiting:
                acquisition.on_news(StoreClosed("the store was closed"))

    def on_hint(self, hint: e.Hint) -> None:
        if (acquisition := self.by_name.get(hint.name)) is not None:
            acquisition.on_news(hint.news)
            return
        match hint.news:
            case e.Granted():
                undo = e.Release(hint.key, hint.name)
            case e.Claimed():
                undo = e.GiveBack(hint.key, hint.name)
            case e.Notice.ROOM:
                undo = e.Leave(hint.key, hint.name)
            case _:
                return
        self._dispatchers.of(hint.key).send(cast("e.Operation[Any]", undo), _nothing)


class Acquisition(Held):
    __slots__ = (
        "_acquisitions",
        "_asked_again",
        "_call",
        "_news",
        "_on_position",
        "_parked",
        "_reply",
        "ended",
        "name",
        "operation",
        "queued",
        "request",
        "session",
    )

    def __init__(
        self,
        acquisitions: Acquisitions,
        session: Session,
        request: AcquireRequest,
        on_position: Callable[[int], None] | None = None,
    ) -> None:
        self.session: Session = session
        # tools that look for deadlocks read the task from the name
        self.name: str = f"{session.new_name()}@{id(this_task()):x}"
        self.request: AcquireRequest = request
        self.operation: e.Operation[Any] = request.ask(session.id, self.name)
        self.queued: e.Queued | None = None
        self.ended: bool = False
        self._acquisitions = acquisitions
        self._on_position = on_position
        self._call: Call[Any] | None = None
        self._reply: object = None
        self._news: object = None
        self._asked_again = False
        self._parked: Parked | None = None
        # known before anything is sent, so that no hint is missed
        acquisitions.by_name[self.name] = self

    @property
    def waiting(self) -> bool:
        return self._parked is not None and not self._parked.done()

    @property
    def never_applied(self) -> bool:
        """True if the engine has surely not applied the request: it was never sent, or was refused at the first try."""
        if self._asked_again or self._reply not in (None, e.Reply.GONE):
            return False
        tries = 0 if self._call is None else self._call.tries
        return tries <= (self._reply is e.Reply.GONE)

    async def answer(self, last: type[e.Notice] | tuple[()] = ()) -> Any:
        """Ask, and wait for an answer that does not say to wait, or for a notice of the type `last`.

        GONE if the session is lost meanwhile. Cancellation: what was asked for is not undone.
        """
        while True:
            self._call = self.session.dispatcher.send(self.operation, self._on_answer)
            if self._news is None:
                self.session.add(self)
                self._parked = park()
                try:
                    await self._parked
                finally:
                    self._parked = None
                    self.session.drop(self)
            else:
                await checkpoint()
            news = self._news
            if isinstance(news, Exception):
                try:
                    raise news
                finally:
                    # its traceback holds this frame: let go of it, or both wait for the garbage collector
                    del news
            if not isinstance(news, e.Notice) or isinstance(news, last):
                return news
            if self._acquisitions.home.closed:
                return e.Reply.GONE
            self._asked_again = True
            self._news = self._reply = None

    def end(self) -> None:
        if self._call is not None:
            self._call.wanted = False
        self.ended = True
        # what knows this acquisition would wait for the garbage collector together with it
        self._call = self._news = self._reply = None
        if self.queued is not None:
            self._acquisitions.reasker.drop(self.request.key, self)

    def withdraw(self) -> PendingRelease:
        """End the attempt and undo it, synchronously, but not before the engine has answered the request.

        So the two are never in one batch: sent again, that would ask anew for what has just been undone.
        """
        after = self._call if self._reply is None else None
        self._call = None  # it stays wanted
        self.end()
        undo = self.request.undo(self.name)
        return PendingRelease(undo, self.session, after)

    def forget(self) -> None:
        """Know the name no longer: what is granted under it is released."""
        self._acquisitions.by_name.pop(self.name, None)

    def on_queued(self, answer: e.Queued) -> None:
        self.queued = answer
        if self.ended:
            return
        if self._on_position is not None:
            self._on_position(answer.place - 1)
        self._acquisitions.reasker.add(self.request.key, self, answer.ask_again_in)

    def on_news(self, news: object) -> None:
        parked = self._parked
        if self._news is None and (parked is None or not parked.done()):
            self._news = news
            if parked is not None:
                # `wake`, without the call
                parked.set_result(None)

    def _lose(self, reason: str) -> None:
        del reason
        self.on_news(e.Reply.GONE)

    def _on_answer(self, answer: object) -> None:
        self._reply = answer
        if isinstance(answer, e.Queued):
            self.on_queued(answer)
        else:
            self.on_news(answer)


class PendingRelease:
    __slots__ = ("_operation", "_parked", "_refused", "answer", "session", "settled", "since")

    def __init__(self, operation: e.Operation[Any], session: Session, after: Call[Any] | None = None) -> None:
        self.answer: Any = None
        self._operation = operation
        self.session: Session = session
        self._refused = False
        self.settled: bool = False
        self.since: float = now()
        self._parked: tuple[Parked, ...] = ()
        if after is None:
            session.dispatcher.send(operation, self._on_answer)
        else:
            after.on_answer = self._send
        if not self.settled:
            session.unreleased[self] = self.since

    def send_again(self) -> None:
        if self._refused:
            self._refused = False
            self._send()

    def _send(self, _: object = None) -> None:
        self.session.dispatcher.send(self._operation, self._on_answer)

    def _on_answer(self, answer: Any) -> None:
        self.settled = not isinstance(answer, Exception) or isinstance(answer, StoreClosed)
        if not self.settled:
            self._refused = True
            return
        if not isinstance(answer, StoreClosed):
            self.answer = answer
        self.session.unreleased.pop(self, None)
        self.wake()

    def wake(self) -> None:
        for parked in self._parked:
            wake(parked)

    def waiter(self) -> Parked | None:
        if self.settled:
            return None
        parked = park()
        self._parked = (*self._parked, parked)
        return parked

    async def wait(self, seconds: float) -> None:
        if self.settled:
            return
        with CancelScope(deadline=now() + seconds, shield=True):
            # the loss of the session wakes it too
            while (waiter := self.waiter()) is not None:
                await waiter


class SettleTimeouts:
    """Ends waits for acknowledgements when their time is over: all with one timer, since all take equally long."""

    def __init__(self, call_at: Callable[[float, Callable[[], None]], None], seconds: float) -> None:
        self._call_at = call_at
        self._seconds = seconds
        self._waited_for: deque[PendingRelease] = deque()
        self._armed = False
        self._closed = False

    def waiter(self, release: PendingRelease) -> Parked | None:
        parked = None if release.settled or self._closed or release.session.lost else release.waiter()
        if parked is not None:
            waited_for = self._waited_for
            while waited_for and waited_for[0].settled:
                waited_for.popleft()
            waited_for.append(release)
            if not self._armed:
                self._arm()
        return parked

    def close(self) -> None:
        self._closed = True
        while self._waited_for:
            self._waited_for.popleft().wake()

    def _arm(self) -> None:
        self._armed = True
        self._call_at(self._waited_for[0].since + self._seconds, self._on_time)

    def _on_time(self) -> None:
        time, waited_for = now(), self._waited_for
        while waited_for and (waited_for[0].settled or waited_for[0].since + self._seconds <= time):
            waited_for.popleft().wake()
        self._armed = False
        if waited_for:
            self._arm()


def _nothing(_: object) -> None:
    pass
