"""The handle on a store for synchronous code."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import anyio

import tenure.engine as e
from tenure import engines
from tenure.arguments import Seconds, SyncBlock
from tenure.observe import Observer
from tenure.store import Codec, Store as AsyncStore, StoreStatistics, handle_of

from ._portal import Caller, Handle, Portal, ask, close
from ._request import Request


def open_store(
    where: str | e.Engine | None = None,
    *,
    namespace: str = "tenure",
    ttl: Seconds = 30.0,
    codec: Codec | None = None,
    settle_timeout: Seconds = 1.0,
    close_timeout: Seconds = 5.0,
    observer: Observer | None = None,
    response_timeout: Seconds | None = None,
    retry: Seconds | None = None,
    max_block: Seconds = 60.0,
) -> Store:
    """Make a store for synchronous code, with the arguments of `tenure.open_store`, and the errors that it raises.

    It connects when `with` enters it, else at the first call: so a store made before a fork is opened in each child.
    Stores with equal arguments share one connection in a process, but for `memory:`. A relative path of SQLite is
    relative to the working directory at this call.

    Thread safety: any.
    """
    options: dict[str, Any] = {
        "namespace": namespace,
        "ttl": ttl,
        "codec": codec,
        "settle_timeout": settle_timeout,
        "close_timeout": close_timeout,
        "observer": observer,
        "response_timeout": response_timeout,
        "retry": retry,
        "max_block": max_block,
    }
    where = os.environ.get("TENURE_STORE") if where is None else where
    scheme, colon, path = where.partition(":///") if isinstance(where, str) else ("", "", "")
    if scheme.lower() == "sqlite" and path and not path.startswith("/"):
        engines.open_store(where, **options)  # raises if it is no path
        # the working directory may change before it is opened, and before the next store is made
        where = f"{scheme}{colon}{quote(str(Path.cwd()))}/{path}"
    return Store(partial(engines.open_store, where, **options), _shared_by(where, options))


def _shared_by(where: object, options: Mapping[str, object]) -> Hashable:
    if not isinstance(where, str) or where.lower().startswith("memory:"):
        return None
    # objects may be equal without a hash: they are compared by what they are
    plain = (str, int, float, type(None))
    return where, *(value if isinstance(value, plain) else id(value) for value in options.values())


class Store(SyncBlock, Handle):
    """A handle on a store for synchronous code; made by `open_store`.

    `with open_store(url) as store` opens it for a block. It may also be kept for the life of the process: the first
    call opens it, and it is closed when the process ends, or by `close`. After a fork, the child's first call opens
    another connection. If the link of the engine ends for good, holds are lost ("closed"), calls that wait get
    `StoreClosed`, and the next call opens the store again.

    Thread safety: any.
    """

    def __init__(self, make: Callable[[], AsyncStore], key: Hashable) -> None:
        self._make = make
        self._key: Hashable = self if key is None else key
        """Stores of the same key share a connection."""
        self._entered = False
        self._template: AsyncStore = make()
        """A store that is never opened: objects made over it show what can be made over an open store."""

    @property
    def url(self) -> str:
        """The engine's address, without a password."""
        return self._template.url

    def __repr__(self) -> str:
        return f"<blocking.Store {self.url}{' closed' if self.closed else ''}>"

    def __enter__(self) -> Self:
        """Open the store. Raises `StoreUnavailable`, `EngineError`."""
        if self._entered:
            raise RuntimeError("a store can be entered only once; call open_store again")
        self._entered = True
        try:
            self._call(_nothing)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, and the connection if no other store shares that; also if the store is closed already.

        Calls that wait get `StoreClosed`. Leases are given back when their blocks are left, or after `close_timeout`,
        for which this waits: nothing can end the body of another thread. Raises what the engine has failed with.
        """
        close(self, self._key)

    def ping(self) -> float:
        """Send an operation that does nothing, and return for how many seconds the answer took.

        Raises `EngineError`, `StoreClosed`. Waits while the engine is away.
        """
        return self._call(AsyncStore.ping)

    def statistics(self) -> StoreStatistics:
        """The connection at this moment."""
        return self._call(AsyncStore.statistics)

    # what the patterns use

    def _call(self, function: Callable[[AsyncStore], Any], timeout: float | None = None) -> Any:
        return ask(
            self, Caller(), lambda portal: Request(partial(self._call_within, portal, function, timeout))
        )

    async def _opened(self, portal: Portal) -> AsyncStore:
        return await portal.opened(self._key, self, self._make)

    async def _call_within(
        self, portal: Portal, function: Callable[[AsyncStore], Any], timeout: float | None
    ) -> Any:
        if (
            timeout is None
        ):  # a block that is entered here has a scope of its own, which must not be in another
            return await function(await self._opened(portal))
        trouble: str | None = "could not be opened"
        with anyio.move_on_after(timeout):
            store = await self._opened(portal)
            try:
                return await function(store)
            finally:
                trouble = handle_of(store).availability.trouble
        text = f"not done within {timeout:g} s"
        raise TimeoutError(f"{text}; the store {self.url} {trouble}" if trouble else text)


async def _nothing(store: AsyncStore) -> None:
    pass
