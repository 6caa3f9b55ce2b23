from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import InitVar, dataclass
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio import CancelScope

import tenure.engine as e
from tenure.arguments import check_name
from tenure.errors import EngineError, LeaseLost, StoreClosed
from tenure.observe import Observer, Reporter
from tenure.upkeep import BackgroundTask
from tenure.waiting import now

from ._acquire import Acquisitions, PendingRelease, SettleTimeouts
from ._availability import Availability
from ._codec import Codec
from ._dispatch import Call, Dispatchers, Home
from ._reconciling import OF_QUEUES, Reconciler, release_for
from ._sessions import Session, Sessions
from ._timers import Timers
from ._watchdog import Watchdog

T = TypeVar("T")


class Listener(Protocol):
    """An object of this process that receives the hints for one key. Its methods must not raise."""

    def on_hint(self, hint: e.Hint) -> None:
        """Receive a hint; MISSED means that others may have been lost."""
        ...

    def on_found(self, session: Session, item: e.SessionItem) -> None: ...

    def close(self) -> None:
        """Fail all waiters with `StoreClosed`."""
        ...


@dataclass(eq=False, repr=False, kw_only=True)
class StoreHandle:
    engine: InitVar[e.Engine]
    process: str
    namespace: str
    ttl: float
    codec: Codec
    settle_timeout: float
    observer: Observer | None
    max_block: InitVar[float]

    def __post_init__(self, engine: e.Engine, max_block: float) -> None:
        self.url: str = engine.url
        self.reporter: Reporter = Reporter(
            self.observer, later=lambda function: self.call_at(now() + 1, function)
        )
        self.home: Home = Home()
        self._engine = engine
        self.link: e.Engine = engine.link()
        self.dispatchers: Dispatchers = Dispatchers(self.link, self.home, self.reporter)
        self.availability: Availability = self.dispatchers.availability
        self._timers = Timers()
        self.settle_timeouts: SettleTimeouts = SettleTimeouts(self._timers.call_at, self.settle_timeout)
        self.sessions: Sessions = Sessions(
            self.process, self.dispatchers, self.reporter, self._watch_over_loop
        )
        self.watchdog: Watchdog = Watchdog(engine.url, self.sessions, engine.another, max_block)
        self.acquisitions: Acquisitions = Acquisitions(self.dispatchers, self.sessions, self._timers)
        self._reconciler = Reconciler(self._on_found)
        self._listeners: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self.entered: dict[tuple[str, object], AbstractAsyncContextManager[Any, None]] = {}
        """The blocks that hold something exclusively, or are about to, by key and task."""

    def key(self, kind: str, name: str) -> str:
        return self.prefix(kind) + check_name("name", name)

    def prefix(self, kind: str) -> str:
        return f"{self.namespace}:{kind}:"

    async def call(self, operation: e.Operation[e.A], *, patient: bool = False) -> e.A:
        """Send an operation and wait for its answer, for at most `response_timeout` unless it is `patient`.

        Raises `EngineError`, `StoreClosed`, `StoreUnavailable`.
        """
        self.home.running()
        return await self.dispatchers.of(operation.key).call(operation, patient=patient)

    @contextmanager
    def promptly(self, key: str, outcome: str) -> Generator[None]:
        dispatcher = self.dispatchers.of(key)
        with anyio.move_on_after(dispatcher.patience) as scope:
            yield
        if scope.cancelled_caught:
            raise dispatcher.no_answer(outcome)

    def send(self, operation: e.Operation[e.A], on_answer: Callable[[e.A | Exception], object]) -> Call[e.A]:
        return self.dispatchers.of(operation.key).send(operation, on_answer)

    def call_soon(self, function: Callable[[], object], key: str = "") -> None:
        """Call a plain function at the end of the loop's turn, to send what concerns a key; equal functions once."""
        self.dispatchers.of(key).call_soon(function)

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        self._timers.call_at(when, function)

    def start_job(self, name: str, function: Callable[..., Any], *args: Any) -> BackgroundTask:
        return self.home.running().start(name, function, *args)

    def enlist(self, operation: e.Enlisted[e.A]) -> e.Enlistment[e.A]:
        if self.home.forked:
            raise self.home.error()
        self.home.check_open()
        return self._engine.enlist(operation)

    @property
    def has_families(self) -> bool:
        return self._engine.families

    def check_families(self) -> None:
        if not self.has_families:
            raise EngineError(f"{self.url}: this engine has no steps and children of tasks yet")

    async def session(self, ttl: float, key: str = "") -> Session:
        self.home.running()
        return self.sessions.current(ttl, key) or await self.sessions.get(ttl, key)

    def listen(self, key: str, make: Callable[[], T]) -> T:
        """The only listener of this process for a key, made if there is none yet.

        It lasts as long as something refers to it: its user, or a session on which the engine counts.
        """
        listener = self._listeners.get(key)
        if listener is None:
            listener = self._listeners[key] = make()
        return listener

    def unlisten(self, key: str, listener: Listener) -> None:
        """Send this listener for a key no more hints; a listener that was made since keeps receiving them."""
        if self._listeners.get(key) is listener:
            del self._listeners[key]

    # what the store uses

    async def run_timers(self) -> None:
        try:
            await self._timers.run()
        finally:
            # also when the loop is torn down around the store: nothing would end a shielded wait
            self.settle_timeouts.close()

    def on_hint(self, hint: e.Hint) -> None:
        listener = self._listeners.get(hint.key)
        if hint.news is e.Notice.MISSED:
            self.availability.check()
            self.acquisitions.reasker.ask_everything()
            for listener in list(self._listeners.values()):
                listener.on_hint(hint)
            for session in self.sessions:
                if session.usable:
                    self._reconciler.reconcile(session)
        elif hint.news is e.Notice.BROKEN:
            self.sessions.lose_one(hint.name, "broken")
        elif hint.news is e.Notice.WAKE:
            for session in self.sessions:
                if session.id == hint.name:
                    session.on_wake()
        elif hint.news is e.Notice.LOST:
            self.availability.check()
        elif hint.news is e.Notice.HELD:
            # limiters listen by their kind: a listener for each would cost a part of each spending
            _, kind, _ = hint.key.split(":", 2)
            if limiters := self._listeners.get(self.prefix(kind)):
                limiters.on_hint(hint)
        elif listener is None or hint.news is e.Notice.ASK or not isinstance(hint.news, e.Notice):
            self.acquisitions.on_hint(hint)
        else:
            listener.on_hint(hint)

    def fail(self, fault: Exception) -> None:
        assert self.home.upkeep is not None
        self.home.fault = self.home.fault or fault
        self.home.upkeep.cancel()
        self.home.closed = True
        self.dispatchers.close(f"the store has ended by a fault: {fault!r}")
        self._refuse()
        for session in self.sessions:
            session.lose("closed")

    @property
    def consequences(self) -> tuple[type[Exception], ...]:
        """The errors that the store's block may raise only because the store has ended."""
        return () if self.home.fault is None else (StoreClosed, LeaseLost)

    async def close(self, carriers: list[BackgroundTask], timeout: float) -> None:
        """Refuse calls, wake waiters, end bodies, wait for releases, close sessions, end jobs: in this order."""
        self.home.closed = True
        with CancelScope(shield=True):
            self._refuse()
            with anyio.move_on_after(timeout):
                for session in self.sessions:
                    await session.left()
            limit = now() + self.settle_timeout
            with CancelScope(deadline=limit):
                await self.dispatchers.settled()
            for session in self.sessions:
                session.lose("closed")
            await self.sessions.end()
            with CancelScope(deadline=limit):
                await self.dispatchers.settled()
            for job in carriers:
                await job.end()

    # inside

    def _refuse(self) -> None:
        self.acquisitions.close()
        for listener in list(self._listeners.values()):
            listener.close()
        # the sessions last until the bodies have ended: what these clean up, they still hold
        for session in self.sessions:
            session.dismiss("closed")

    def _on_found(self, session: Session, item: e.SessionItem) -> None:
        listener = self._listeners.get(item.key) if item.family in OF_QUEUES else None
        if listener is not None:
            listener.on_found(session, item)
        elif item.name not in self.acquisitions.by_name:
            PendingRelease(release_for(session.id, item), session)

    def _watch_over_loop(self) -> None:
        self.watchdog.watch()
