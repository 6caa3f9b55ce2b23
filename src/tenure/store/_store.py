from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import token_hex
from time import perf_counter
from typing import Self

import anyio.lowlevel
from anyio import AsyncContextManagerMixin

import tenure.engine as e
from tenure.arguments import AsyncBlock, Seconds, check_name, check_seconds
from tenure.errors import EngineError, StoreUnavailable
from tenure.observe import Observer
from tenure.upkeep import BackgroundTask, Upkeep, in_one_task, unwrapped_task_group
from tenure.waiting import now, runs_in_real_time

from ._codec import Codec, JsonCodec, check_codec
from ._handle import StoreHandle
from ._opening import serve
from ._sessions import LEAST_TTL

_LEFT_ELSEWHERE = "how-to/threads-and-processes#a-store-for-hooks-in-different-tasks"


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

    - `namespace` separates the users of one engine.
    - `ttl` is for how many seconds holds outlive a process that died, at least 0.5.
    - `codec` turns payloads into bytes.
    - `settle_timeout`: seconds for which leaving a block waits for the acknowledgement.
    - `close_timeout`: seconds for which closing waits for bodies that still hold something.
    - `max_block`: seconds for which a blocked event loop keeps its leases.
    - `retry`: seconds for which opening tries again while the engine cannot be reached, with a warning (`link.lost`).

    An engine whose link ends for good, or that raises a fault, ends the store: its block is cancelled and
    raises that error, all waiters get `StoreClosed`, and holds are lost ("closed").

    Thread safety: none. In another thread or loop than its own, or in a forked process, it raises `RuntimeError` at
    once, and nothing is sent.
    """

    _instead = "tenure.blocking.open_store"

    def __init__(
        self,
        engine: e.Engine,
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
        self.codec: Codec = check_codec(codec) or JsonCodec()
        self.observer = observer
        """The observer that receives the events."""
        self._handle = StoreHandle(
            engine=engine,
            process=_new_process(),
            namespace=self.namespace,
            ttl=self.ttl,
            codec=self.codec,
            settle_timeout=self.settle_timeout,
            observer=observer,
            max_block=check_seconds("max_block", max_block),
        )

    @property
    def url(self) -> str:
        """The engine's address, without a password."""
        return self._handle.url

    @property
    def process(self) -> str:
        """The name of this process at the engine."""
        return self._handle.process

    @property
    def unready(self) -> str | None:
        """The reason why the store cannot work, in words; None if it works, as far as is known.

        It works if it is open, its engine can be reached, and each session in use is alive.
        """
        handle, home = self._handle, self._handle.home
        if (trouble := handle.availability.trouble) is not None:
            return f"the store {self.url} {trouble}"
        if home.upkeep is None or home.closed:
            return f"the store {self.url} is {'closed' if home.closed else 'not open'}"
        if all(session.usable for session in handle.sessions if session.lost is None):
            return None
        return f"the session at the store {self.url} is not open"

    def __repr__(self) -> str:
        home = self._handle.home
        state = "new" if home.upkeep is None else "closing" if home.closed else "open"
        return f"<Store {self.url} {state} pending={self._handle.dispatchers.pending}>"

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        handle, home = self._handle, self._handle.home
        if home.upkeep is not None:
            raise RuntimeError("a store can be opened only once; call open_store again")
        if home.settle():
            # its siblings were forked with the same name
            handle.process = handle.sessions.process = _new_process()
        async with in_one_task("store", _LEFT_ELSEWHERE), unwrapped_task_group() as group:
            home.upkeep = upkeep = Upkeep(group, handle.fail)
            try:
                link = await self._open_link(upkeep)
                carriers = [
                    *(upkeep.start("wire", dispatcher.run) for dispatcher in handle.dispatchers.all),
                    upkeep.start("timers", handle.run_timers),
                    link,
                ]
                try:
                    yield self
                except* handle.consequences:
                    pass  # of a fault that leaves through the group
                finally:
                    await handle.close(carriers, self.close_timeout)
            finally:
                # whatever stopped the closing, a native cancellation for instance: nothing is left
                home.closed = True
                handle.watchdog.stop()
                upkeep.cancel()
                handle.dispatchers.close("the store was closed")
                handle.reporter.settle()
                await handle.watchdog.ended(min(self.ttl, self.close_timeout))

    async def _open_link(self, upkeep: Upkeep) -> BackgroundTask:
        handle = self._handle
        try:
            job = await upkeep.open(
                "link", serve, handle.link, self.process, handle.on_hint, self.retry, handle.availability
            )
        except (StoreUnavailable, EngineError) as problem:
            # where in the engine this was found out does not help
            raise problem.with_traceback(None) from None
        handle.availability.back(handle.link)
        return job

    async def ping(self) -> float:
        """Send an operation that does nothing, and return the seconds until its answer.

        Raises `EngineError`, `StoreClosed`, `StoreUnavailable`.
        """
        # uvloop's time has steps of a millisecond
        time = perf_counter if runs_in_real_time() else now
        start = time()
        await self._handle.call(e.Ping())
        return time() - start

    async def statistics(self) -> StoreStatistics:
        """The statistics of this store; also while it closes. Raises `RuntimeError` if it was never opened."""
        await anyio.lowlevel.checkpoint()
        handle, home = self._handle, self._handle.home
        home.check()
        assert home.upkeep is not None
        sessions = [session for session in handle.sessions if session.lost is None]
        return StoreStatistics(
            url=self.url,
            process=self.process,
            sessions=len(sessions),
            held=sum(len(session.held) for session in sessions),
            waiting=len(handle.acquisitions),
            pending=handle.dispatchers.pending,
            jobs=home.upkeep.names,
            available=handle.availability.trouble is None,
            closing=home.closed,
            blocks=handle.watchdog.blocks,
            watchdog_renewals=handle.watchdog.renewals,
        )


def _new_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{token_hex(4)}"


def check_ttl(ttl: Seconds) -> float:
    return check_seconds("ttl", ttl, least=LEAST_TTL)


def handle_of(store: Store) -> StoreHandle:
    if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance] users are not all type-checked
        cls = type(store)
        shown = cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"
        raise TypeError(f"store must be an open store, from open_store(...), not {shown}")
    return store._handle  # pyright: ignore[reportPrivateUsage] the one place where other rooms get it
