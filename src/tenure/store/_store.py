"""The open handle on an engine."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import token_hex
from threading import get_ident
from typing import Any, Protocol, Self, TypeVar, cast
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel
from anyio import AsyncContextManagerMixin, CancelScope

from tenure.arguments import check_name, check_seconds
from tenure.engine import A, Belonging, Engine, Hint, Joins, Notice, Operation, Ping
from tenure.errors import EngineError, LeaseLost, StoreClosed
from tenure.local._park import this_task
from tenure.observe import Observer
from tenure.upkeep import Job, Upkeep, unwrapped_task_group

from ._codec import Codec, JsonCodec
from ._home import Home
from ._places import Attempt, Obtained, Places, Wish
from ._reconciling import OF_QUEUES, Reconciler, undoing
from ._sessions import LEAST_TTL, Session, Sessions
from ._settling import Settlement
from ._timers import Timers
from ._wire import Call, Source
from ._wires import Wires

T = TypeVar("T")

_LEFT_ELSEWHERE = (
    "the store was left in another task than the one that has entered it; it is closed. Enter and leave it in one "
    "task, such as one that waits in between: "
    "see docs/how-to/threads-and-processes.md#a-store-for-hooks-in-different-tasks"
)
_NOT_OPEN = "the store is not open: use `async with open_store(...) as store`"


class Listener(Protocol):
    """Something of this process that wants the hints for one key."""

    def on_hint(self, hint: Hint) -> None:
        """A hint came; MISSED and RESYNC mean that others may have been lost. Must not raise."""
        ...

    def on_found(self, session: Session, one: Belonging) -> None:
        """The engine has this of a session. What nobody here knows is to be given back. Must not raise."""
        ...

    def close(self) -> None:
        """The store closes: whoever waits gets `StoreClosed`. Must not raise."""
        ...


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A store at one moment.

    `sessions` are alive, `held` leases and places depend on them, `waiting` callers wait for a grant, `pending`
    operations have not been answered, `jobs` are the names of the background jobs, `available` tells whether the
    engine answered last time, `closing` whether the store takes no new calls.
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


class Store(AsyncContextManagerMixin):
    """This process's open handle on an engine: made by `open_store`, entered with `async with`.

    `namespace` parts users of one engine, `ttl` is how many seconds what is held outlives a process that died (0.5 at
    least), `codec` makes bytes of payloads, `settle_timeout` is for how many seconds leaving a block waits for the
    acknowledgement, `close_timeout` for how many seconds closing waits for bodies that still hold something.

    An engine whose link ends for good, or that raises what it may not, ends the store: its block is cancelled and
    raises that error, all who wait get `StoreClosed`, and what is held is lost ("closed").

    Thread safety: none; a store belongs to the event loop in which it was opened. Used from another thread, or in a
    forked process, it raises `RuntimeError` at once, and nothing is sent.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        namespace: str = "tenure",
        ttl: float = 30.0,
        codec: Codec | None = None,
        settle_timeout: float = 1.0,
        close_timeout: float = 5.0,
        observer: Observer | None = None,
    ) -> None:
        self.ttl = check_ttl(ttl)
        self.namespace = check_name("namespace", namespace)
        if ":" in self.namespace:
            raise ValueError(
                f"namespace must not have a colon, which would let two namespaces meet: {namespace!r}"
            )
        self.settle_timeout = check_seconds("settle_timeout", settle_timeout)
        self.close_timeout = check_seconds("close_timeout", close_timeout)
        self.codec: Codec = codec or JsonCodec()
        self.observer = observer
        self.process = _new_process()
        self._home = Home()
        self._engine = engine
        self._upkeep: Upkeep | None = None
        self._closing = False
        self._fault: Exception | None = None
        self._wires = Wires(engine, self._home)
        self._timers = Timers()
        self._sessions = Sessions(self.process, self._wires, self._running)
        self._places = Places(self._wires, self._sessions, self._timers)
        self._reconciler = Reconciler(self._on_found)
        self._listeners: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self.entered: dict[tuple[str, object], object] = {}
        """What is held exclusively, by key and task."""

    @property
    def url(self) -> str:
        """Where the state is kept."""
        return self._engine.url

    def __repr__(self) -> str:
        state = "new" if self._upkeep is None else "closing" if self._closing else "open"
        return f"<Store {self.url} {state} pending={self._wires.pending}>"

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        if self._upkeep is not None:
            raise RuntimeError("a store can be opened only once; call open_store again")
        if self._home.settle():
            # its siblings were forked with the same name
            self.process = self._sessions.process = _new_process()
        async with _in_one_task(), unwrapped_task_group() as group:
            self._upkeep = upkeep = Upkeep(group, self._fail)
            try:
                link = await upkeep.open("link", self._engine.serve, self.process, self._on_hint)
                carriers = [
                    *(upkeep.start("wire", wire.run) for wire in self._wires.all),
                    upkeep.start("timers", self._timers.run),
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
                self._closing = self._sessions.closed = True
                upkeep.cancel()
                self._wires.close("the store was closed")

    async def ping(self) -> float:
        """Go to the engine and back; gives the seconds that it took.

        Raises `EngineError`, `StoreClosed`. Waits while the engine is away. Cancellation: has no effect.
        """
        start = anyio.current_time()
        await self.call(Ping())
        return anyio.current_time() - start

    async def statistics(self) -> StoreStatistics:
        """This store at this moment; also while it closes. Raises `RuntimeError` if it was never opened.

        Cancellation: has no effect.
        """
        await anyio.lowlevel.checkpoint()
        self.check_here()
        assert self._upkeep is not None
        sessions = [session for session in self._sessions if session.lost is None]
        return StoreStatistics(
            url=self.url,
            process=self.process,
            sessions=len(sessions),
            held=sum(len(session.held) for session in sessions),
            waiting=len(self._places),
            pending=self._wires.pending,
            jobs=self._upkeep.names,
            available=self._wires.down is None,
            closing=self._closing,
        )

    # what the patterns use

    def key(self, kind: str, name: str) -> str:
        """The engine's key of a named object; checks the name, and the store of who calls `Store.key(store, ...)`."""
        if not isinstance(self, Store):  # pyright: ignore[reportUnnecessaryIsInstance] users are not all type-checked
            raise TypeError(f"store must be an open store, from open_store(...), not {type(self).__name__}")
        return f"{self.namespace}:{kind}:{check_name('name', name)}"

    def check_here(self) -> None:
        """Raise `RuntimeError` unless the store has been opened, in this thread and process."""
        if self._upkeep is None:
            raise RuntimeError(_NOT_OPEN)
        self._home.check()

    async def call(self, operation: Operation[A]) -> A:
        """Send an operation and wait for its answer. Raises `EngineError`, `StoreClosed`.

        Cancellation: the operation may or may not be applied.
        """
        self._running()
        return await self._wires.carrier(operation).call(operation)

    def send(self, operation: Operation[A], on_answer: Callable[[A | Exception], object]) -> Call[A]:
        """Send an operation from plain code; also while the store closes."""
        return self._wires.carrier(operation).send(operation, on_answer)

    def compose_soon(self, source: Source, key: str = "") -> None:
        """Have `source.compose()` called at the end of the loop's turn, to send what concerns a key.

        Also while the store closes.
        """
        self.check_here()
        self._wires.of(key).compose_soon(source)

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        """Have a plain function called when the loop's clock shows `when`."""
        self._timers.call_at(when, function)

    def start_job(self, name: str, function: Callable[..., Any], *args: Any) -> Job:
        """Start a background job that its owner ends."""
        return self._running().start(name, function, *args)

    def joins(self) -> Joins:
        """The engine, if it can take part in a transaction of the user's. From any thread. For the patterns alone.

        Raises `EngineError` if it cannot, `StoreClosed`.
        """
        if self._home.forked:
            raise self._home.error()
        self._check_open()
        if not hasattr(self._engine, "join"):
            raise EngineError(
                f"{self.url}: this engine takes no part in transactions on connections of yours"
            )
        return cast("Joins", self._engine)

    async def session(self, ttl: float, key: str = "") -> Session:
        """The session for a ttl, and for what is in the same lane of the engine as `key`.

        Raises `EngineError`, `StoreClosed`. Cancellation: has no effect.
        """
        self._running()
        return self._sessions.current(ttl, key) or await self._sessions.get(ttl, key)

    def session_at_once(self, ttl: float, key: str = "") -> Session | None:
        """The session for a ttl and a key if it is open already."""
        return self._sessions.current(ttl, key)

    async def obtain(self, wish: Wish, ttl: float, ahead: Callable[[int], None] | None = None) -> Obtained:
        """Obtain what is wished for, or wait for it. Raises `CapacityMismatch`, `EngineError`, `StoreClosed`.

        Cancellation: nothing is held, no place is kept.
        """
        self._running()
        return await self._places.obtain(wish, ttl, ahead)

    def attempt(self, wish: Wish, session: Session) -> Attempt:
        """One attempt to obtain it, by a pattern that sees to the outcome itself. Raises `StoreClosed`."""
        self._running()
        return self._places.attempt(wish, session)

    def settle(self, wish: Wish, obtained: Obtained) -> Settlement:
        """Give it back; handed over synchronously."""
        return self._places.settle(wish, obtained.name, obtained.session)

    def listen(self, key: str, make: Callable[[], T]) -> T:
        """The one listener of this process for a key, made if there is none yet.

        It hears hints for as long as somebody keeps it: whoever asked for it, or what the engine still counts on.
        """
        listener = self._listeners.get(key)
        if listener is None:
            listener = self._listeners[key] = make()
        return listener

    def unlisten(self, key: str, listener: Listener) -> None:
        """This listener for a key wants no more hints; another one that was made since does."""
        if self._listeners.get(key) is listener:
            del self._listeners[key]

    def notice(self, event: str, /, **fields: object) -> None:
        """Tell the observer, if there is one."""
        if self.observer is not None:
            self.observer.notice(event, **fields)

    # inside

    def _running(self) -> Upkeep:
        upkeep = self._check_open()
        if get_ident() != self._home.thread:
            raise self._home.error()
        return upkeep

    def _check_open(self) -> Upkeep:
        if self._upkeep is None:
            raise RuntimeError(_NOT_OPEN)
        if self._closing:
            raise StoreClosed("the store is closed") from self._fault
        return self._upkeep

    def _on_hint(self, hint: Hint) -> None:
        listener = self._listeners.get(hint.key)
        if hint.news is Notice.RESYNC or hint.news is Notice.MISSED:
            self._places.ask_everything()
            for listener in list(self._listeners.values()):
                listener.on_hint(hint)
            for session in self._sessions if hint.news is Notice.RESYNC else ():
                if session.usable:
                    self._reconciler.reconcile(session)
        elif listener is None or hint.news is Notice.ASK or not isinstance(hint.news, Notice):
            self._places.on_hint(hint)
        else:
            listener.on_hint(hint)

    def _on_found(self, session: Session, one: Belonging) -> None:
        listener = self._listeners.get(one.key) if one.family in OF_QUEUES else None
        if listener is not None:
            listener.on_found(session, one)
        elif not self._places.knows(one.name):
            Settlement(undoing(session.id, one), session)

    def _fail(self, fault: Exception) -> None:
        """A job has ended by a fault: nothing can be sent any more."""
        assert self._upkeep is not None
        self._fault = self._fault or fault
        self._upkeep.cancel()
        self._closing = self._sessions.closed = True
        self._wires.close(f"the store has ended by a fault: {fault!r}")
        self._refuse()
        for session in self._sessions:
            session.lose("closed")

    @property
    def _consequences(self) -> tuple[type[Exception], ...]:
        """What in the store's block tells no more than that the store has ended."""
        return () if self._fault is None else (StoreClosed, LeaseLost)

    def _refuse(self) -> None:
        self._places.close()
        for listener in list(self._listeners.values()):
            listener.close()
        # the sessions last until the bodies have ended: what these clean up, they still hold
        for session in self._sessions:
            session.dismiss("closed")

    async def _close(self, carriers: list[Job]) -> None:
        """Refuse, wake, end the bodies, settle, close the sessions, end the jobs: in this order."""
        self._closing = self._sessions.closed = True
        with CancelScope(shield=True):
            self._refuse()
            with anyio.move_on_after(self.close_timeout):
                for session in self._sessions:
                    await session.left()
            limit = anyio.current_time() + self.settle_timeout
            with CancelScope(deadline=limit):
                await self._wires.settled()
            for session in self._sessions:
                session.lose("closed")
            await self._sessions.end()
            with CancelScope(deadline=limit):
                await self._wires.settled()
            for job in carriers:
                await job.end()


@asynccontextmanager
async def _in_one_task() -> AsyncGenerator[None]:
    """Say what to do where the loop only says that its scopes have been mixed up."""
    task = this_task()
    try:
        yield
    except (RuntimeError, BaseExceptionGroup) as problem:
        if this_task() is task:
            raise
        raise RuntimeError(_LEFT_ELSEWHERE) from problem


def _new_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{token_hex(4)}"


def check_ttl(ttl: float) -> float:
    """A ttl that can be kept: 0.5 seconds at least."""
    return check_seconds("ttl", ttl, least=LEAST_TTL)
