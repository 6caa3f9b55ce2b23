"""The open handle on an engine."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel
from anyio import AsyncContextManagerMixin, CancelScope

from tenure.arguments import AsyncBlock, Seconds, check_name, check_seconds
from tenure.engine import A, Engine, Enlisted, Enlistment, Hint, Notice, Operation, Ping, SessionItem
from tenure.errors import EngineError, LeaseLost, StoreClosed, StoreUnavailable
from tenure.observe import Observer, Reporter
from tenure.upkeep import Job, Upkeep, in_one_task, unwrapped_task_group
from tenure.waiting import now

from ._acquire import Acquisitions, PendingRelease, SettleTimeouts
from ._availability import Availability
from ._codec import Codec, JsonCodec, check_codec
from ._dispatch import Call, Dispatchers, Home
from ._opening import serve
from ._reconciling import OF_QUEUES, Reconciler, release_for
from ._sessions import LEAST_TTL, Session, Sessions
from ._timers import Timers
from ._watchdog import Watchdog

T = TypeVar("T")

_LEFT_ELSEWHERE = "how-to/threads-and-processes#a-store-for-hooks-in-different-tasks"


class Listener(Protocol):
    """An object of this process that receives the hints for one key."""

    def on_hint(self, hint: Hint) -> None:
        """A hint came; MISSED means that others may have been lost. Must not raise."""
        ...

    def on_found(self, session: Session, item: SessionItem) -> None:
        """The engine has this item of a session. The listener releases it if it does not know it. Must not raise."""
        ...

    def close(self) -> None:
        """The store closes: all that wait get `StoreClosed`. Must not raise."""
        ...


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A store at one moment.

    `sessions` are alive, `held` leases and waiters depend on them, `waiting` callers wait for a grant, `pending`
    operations have not been answered, `jobs` are the names of the background jobs. `available` says whether the engine
    can be reached, as its connection and the last answer show, `closing` whether the store refuses new calls. `blocks`
    counts how often the event loop was blocked for half a ttl, `watchdog_renewals` the renewals of sessions meanwhile.
    """

    url: str
    process: str
    sessions: int
    held: int
    waiting: int
    pending: int
    jobs: tuple[str, ...]
    available: bool
    closing: bool
    blocks: int = 0
    watchdog_renewals: int = 0


class Store(AsyncBlock, AsyncContextManagerMixin):
    """A process's open handle on an engine: made by `open_store`, entered with `async with`.

    `namespace` separates the users of one engine. `ttl` is for how many seconds holds outlive a process that
    died, at least 0.5. `codec` turns payloads into bytes. Leaving a block waits for the acknowledgement for at most
    `settle_timeout` seconds; closing waits for bodies that still hold something for at most `close_timeout` seconds.
    A blocked event loop keeps its leases for `max_block` seconds (see `tenure.store._watchdog`).
    Opening tries again for `retry` seconds, and ends the try that it has begun, while the engine cannot be reached; the
    logger `tenure` warns of it at once (`link.lost`), and says when the engine has come (`link.back`).

    An engine whose link ends for good, or that raises what it must not, ends the store: its block is cancelled and
    raises that error, all waiters get `StoreClosed`, and holds are lost ("closed").

    Thread safety: none; a store belongs to the event loop in which it was opened. Used from another thread or
    loop, or in a forked process, it raises `RuntimeError` at once, and nothing is sent.
    """

    _instead = "tenure.blocking.open_store"

    def __init__(
        self,
        engine: Engine,
        *,
        namespace: str = "tenure",
        ttl: Seconds = 30.0,
        codec: Codec | None = None,
        settle_timeout: Seconds = 1.0,
        close_timeout: Seconds = 5.0,
        observer: Observer | None = None,
        retry: Seconds | None = None,
        max_block: Seconds = 60.0,
    ) -> None:
        self.ttl: float = check_ttl(ttl)
        self.namespace: str = check_name("namespace", namespace)
        if ":" in self.namespace:
            raise ValueError(
                f"namespace must not have a colon, which would let two namespaces meet: {namespace!r}"
            )
        self.settle_timeout: float = check_seconds("settle_timeout", settle_timeout)
        self.close_timeout: float = check_seconds("close_timeout", close_timeout)
        self.retry: float = 0.0 if retry is None else check_seconds("retry", retry)
        max_block = check_seconds("max_block", max_block)
        self.codec: Codec = check_codec(codec) or JsonCodec()
        self.reporter: Reporter = Reporter(observer, later=self._log_later)
        self.observer = observer
        """The observer that receives the events."""
        self.process: str = _new_process()
        self.home: Home = Home()
        self._engine = engine
        self._link = link = engine.link()
        self.dispatchers: Dispatchers = Dispatchers(link, self.home, self.reporter)
        self.availability: Availability = self.dispatchers.availability
        self._timers = Timers()
        self.settle_timeouts: SettleTimeouts = SettleTimeouts(self._timers.call_at, self.settle_timeout)
        self.sessions: Sessions = Sessions(
            self.process, self.dispatchers, self.reporter, self._watch_over_loop
        )
        self._watchdog = Watchdog(engine.url, self.sessions, engine.another, max_block)
        self.acquisitions: Acquisitions = Acquisitions(self.dispatchers, self.sessions, self._timers)
        self._reconciler = Reconciler(self._on_found)
        self._listeners: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self.entered: dict[tuple[str, object], AbstractAsyncContextManager[Any, None]] = {}
        """The blocks that hold something exclusively, or are about to, by key and task."""

    @property
    def url(self) -> str:
        """The engine's address, without a password."""
        return self._engine.url

    @property
    def unready(self) -> str | None:
        """The reason why the store cannot work, in words, as far as is known.

        None if it is open, its engine can be reached, and each session in use is alive.
        """
        if (trouble := self.availability.trouble) is not None:
            return f"the store {self.url} {trouble}"
        if self.home.upkeep is None or self.home.closed:
            return f"the store {self.url} is {'closed' if self.home.closed else 'not open'}"
        if all(session.usable for session in self.sessions if session.lost is None):
            return None
        return f"the session at the store {self.url} is not open"

    def __repr__(self) -> str:
        state = "new" if self.home.upkeep is None else "closing" if self.home.closed else "open"
        return f"<Store {self.url} {state} pending={self.dispatchers.pending}>"

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        if self.home.upkeep is not None:
            raise RuntimeError("a store can be opened only once; call open_store again")
        if self.home.settle():
            # its siblings were forked with the same name
            self.process = self.sessions.process = _new_process()
        async with in_one_task("store", _LEFT_ELSEWHERE), unwrapped_task_group() as group:
            self.home.upkeep = upkeep = Upkeep(group, self._fail)
            try:
                link = await self._open_link(upkeep)
                carriers = [
                    *(upkeep.start("wire", dispatcher.run) for dispatcher in self.dispatchers.all),
                    upkeep.start("timers", self._run_timers),
                    link,
                ]
                try:
                    yield self
                except* self._consequences:
                    pass  # of a fault that leaves through the group
                finally:
                    await self._close(carriers)
            finally:
                # whatever stopped the closing, a native cancellation for instance: nothing is left
                self.home.closed = True
                self._watchdog.stop()
                upkeep.cancel()
                self.dispatchers.close("the store was closed")
                self.reporter.settle()
                await self._watchdog.ended(min(self.ttl, self.close_timeout))

    async def _open_link(self, upkeep: Upkeep) -> Job:
        try:
            job = await upkeep.open(
                "link", serve, self._link, self.process, self._on_hint, self.retry, self.availability
            )
        except (StoreUnavailable, EngineError) as problem:
            # where in the engine this was found out does not help
            raise problem.with_traceback(None) from None
        self.availability.back(self._link)
        return job

    async def ping(self) -> float:
        """Send an operation that does nothing, and return for how many seconds the answer took.

        Raises `EngineError`, `StoreClosed`, `StoreUnavailable`.
        """
        start = anyio.current_time()
        await self.call(Ping())
        return anyio.current_time() - start

    async def statistics(self) -> StoreStatistics:
        """The statistics of this store; also while it closes. Raises `RuntimeError` if it was never opened."""
        await anyio.lowlevel.checkpoint()
        self.home.check()
        assert self.home.upkeep is not None
        sessions = [session for session in self.sessions if session.lost is None]
        return StoreStatistics(
            url=self.url,
            process=self.process,
            sessions=len(sessions),
            held=sum(len(session.held) for session in sessions),
            waiting=len(self.acquisitions),
            pending=self.dispatchers.pending,
            jobs=self.home.upkeep.names,
            available=self.availability.trouble is None,
            closing=self.home.closed,
            blocks=self._watchdog.blocks,
            watchdog_renewals=self._watchdog.renewals,
        )

    # what the patterns use

    def key(self, kind: str, name: str) -> str:
        """The engine's key of a named object; `Store.key(store, ...)` also checks that `store` is one."""
        if not isinstance(self, Store):  # pyright: ignore[reportUnnecessaryIsInstance] users are not all type-checked
            cls = type(self)
            shown = cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"
            raise TypeError(f"store must be an open store, from open_store(...), not {shown}")
        return self.prefix(kind) + check_name("name", name)

    def prefix(self, kind: str) -> str:
        """The beginning of the engine's keys of all objects of a kind."""
        return f"{self.namespace}:{kind}:"

    async def call(self, operation: Operation[A], *, patient: bool = False) -> A:
        """Send an operation and wait for its answer. Raises `EngineError`, `StoreClosed`, `StoreUnavailable`.

        The last is raised when no answer has come within the engine's `response_timeout`, unless the call is `patient`:
        for what waits by its name, for jobs of the background, and within a lease, whose loss ends the wait.
        Cancellation: the operation may or may not be applied.
        """
        self.home.running()
        return await self.dispatchers.of(operation.key).call(operation, patient=patient)

    @contextmanager
    def promptly(self, key: str, outcome: str) -> Generator[None]:
        """A block that waits for answers alone. Raises `StoreUnavailable`, with this outcome, if none comes in time."""
        dispatcher = self.dispatchers.of(key)
        with anyio.move_on_after(dispatcher.patience) as scope:
            yield
        if scope.cancelled_caught:
            raise dispatcher.no_answer(outcome)

    def send(self, operation: Operation[A], on_answer: Callable[[A | Exception], object]) -> Call[A]:
        """Send an operation from plain code; also while the store closes."""
        return self.dispatchers.of(operation.key).send(operation, on_answer)

    def call_soon(self, function: Callable[[], object], key: str = "") -> None:
        """Call a plain function at the end of the loop's turn, to send what concerns a key; equal ones are called once.

        Also while the store closes.
        """
        self.dispatchers.of(key).call_soon(function)

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        """Have a plain function called when the loop's clock shows `when`."""
        self._timers.call_at(when, function)

    def start_job(self, name: str, function: Callable[..., Any], *args: Any) -> Job:
        """Start a background job that its owner ends."""
        return self.home.running().start(name, function, *args)

    def enlist(self, operation: Enlisted[A]) -> Enlistment[A]:
        """The way to apply an operation within a transaction of the user's. From any thread.

        Raises `EngineError` if the engine takes no part in such transactions, `StoreClosed`.
        """
        if self.home.forked:
            raise self.home.error()
        self.home.check_open()
        return self._engine.enlist(operation)

    @property
    def has_families(self) -> bool:
        """True if the engine keeps entries of tasks. For the trees of tasks alone."""
        return self._engine.families

    def check_families(self) -> None:
        """Raise `EngineError` if the engine keeps no entries of tasks. For the tasks of queues alone."""
        if not self.has_families:
            raise EngineError(f"{self.url}: this engine has no steps and children of tasks yet")

    async def session(self, ttl: float, key: str = "") -> Session:
        """The session for a ttl, and for the objects in the same shard of the engine as `key`.

        Raises `EngineError`, `StoreClosed`.
        """
        self.home.running()
        return self.sessions.current(ttl, key) or await self.sessions.get(ttl, key)

    def listen(self, key: str, make: Callable[[], T]) -> T:
        """The only listener of this process for a key, made if there is none yet.

        It receives hints for as long as something refers to it: its user, or a session on which the engine counts.
        """
        listener = self._listeners.get(key)
        if listener is None:
            listener = self._listeners[key] = make()
        return listener

    def unlisten(self, key: str, listener: Listener) -> None:
        """Send this listener for a key no more hints; a listener that was made since keeps receiving them."""
        if self._listeners.get(key) is listener:
            del self._listeners[key]

    # inside

    def _watch_over_loop(self) -> None:
        self._watchdog.watch()

    def _log_later(self, function: Callable[[], None]) -> None:
        self._timers.call_at(now() + 1, function)

    async def _run_timers(self) -> None:
        try:
            await self._timers.run()
        finally:
            # also when the loop is torn down around the store: nothing would end a shielded wait
            self.settle_timeouts.close()

    def _on_hint(self, hint: Hint) -> None:
        listener = self._listeners.get(hint.key)
        if hint.news is Notice.MISSED:
            self.availability.check()
            self.acquisitions.reasker.ask_everything()
            for listener in list(self._listeners.values()):
                listener.on_hint(hint)
            for session in self.sessions:
                if session.usable:
                    self._reconciler.reconcile(session)
        elif hint.news is Notice.BROKEN:
            self.sessions.lose_one(hint.name, "broken")
        elif hint.news is Notice.LOST:
            self.availability.check()
        elif hint.news is Notice.HELD:
            # limiters listen by their kind: a listener for each would cost a part of each spending
            _, kind, _ = hint.key.split(":", 2)
            if limiters := self._listeners.get(self.prefix(kind)):
                limiters.on_hint(hint)
        elif listener is None or hint.news is Notice.ASK or not isinstance(hint.news, Notice):
            self.acquisitions.on_hint(hint)
        else:
            listener.on_hint(hint)

    def _on_found(self, session: Session, item: SessionItem) -> None:
        listener = self._listeners.get(item.key) if item.family in OF_QUEUES else None
        if listener is not None:
            listener.on_found(session, item)
        elif item.name not in self.acquisitions.by_name:
            PendingRelease(release_for(session.id, item), session)

    def _fail(self, fault: Exception) -> None:
        """A job has ended by a fault: nothing more can be sent."""
        assert self.home.upkeep is not None
        self.home.fault = self.home.fault or fault
        self.home.upkeep.cancel()
        self.home.closed = True
        self.dispatchers.close(f"the store has ended by a fault: {fault!r}")
        self._refuse()
        for session in self.sessions:
            session.lose("closed")

    @property
    def _consequences(self) -> tuple[type[Exception], ...]:
        """The errors that the store's block may raise only because the store has ended."""
        return () if self.home.fault is None else (StoreClosed, LeaseLost)

    def _refuse(self) -> None:
        self.acquisitions.close()
        for listener in list(self._listeners.values()):
            listener.close()
        # the sessions last until the bodies have ended: what these clean up, they still hold
        for session in self.sessions:
            session.dismiss("closed")

    async def _close(self, carriers: list[Job]) -> None:
        """Refuse calls, wake waiters, end bodies, wait for releases, close sessions, end jobs: in this order."""
        self.home.closed = True
        with CancelScope(shield=True):
            self._refuse()
            with anyio.move_on_after(self.close_timeout):
                for session in self.sessions:
                    await session.left()
            limit = anyio.current_time() + self.settle_timeout
            with CancelScope(deadline=limit):
                await self.dispatchers.settled()
            for session in self.sessions:
                session.lose("closed")
            await self.sessions.end()
            with CancelScope(deadline=limit):
                await self.dispatchers.settled()
            for job in carriers:
                await job.end()


def _new_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{token_hex(4)}"


def check_ttl(ttl: Seconds) -> float:
    """A ttl that can be kept: 0.5 seconds at least."""
    return check_seconds("ttl", ttl, least=LEAST_TTL)
