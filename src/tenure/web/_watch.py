"""The state that the page shows: read once, however many clients ask."""

from __future__ import annotations

from typing import Any

import anyio

from tenure.errors import StoreUnavailable
from tenure.store import Store

from ._document import document
from ._flows import Flows
from ._history import History
from ._view import read_view

_FRESH = 0.8
"""Seconds for which one reading serves all clients."""

_TIMEOUT = 5.0
_MOST = 500


class Watch:
    """Looks at a store when it is asked, but not more often than once in 0.8 s."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._flows = Flows()
        self.history: History = History()
        self._lock = anyio.Lock()
        self._seen: tuple[float, dict[str, Any]] | None = None

    async def state(self) -> dict[str, Any]:
        """The last view, or a new one. Raises `StoreUnavailable`, `EngineError`."""
        async with self._lock:
            if self._seen is None or anyio.current_time() - self._seen[0] >= _FRESH:
                self._seen = anyio.current_time(), await self._read()
            return self._seen[1]

    async def _read(self) -> dict[str, Any]:
        with anyio.move_on_after(_TIMEOUT):
            view = await read_view(self._store, _MOST)
            seen = document(self._store.url, self._store.namespace, view, self._flows.add(view))
            self.history.add(seen, {processor.name: processor.minutes for processor in view.processors})
            return seen
        raise StoreUnavailable(f"{self._store.url}: no answer within {_TIMEOUT:g} s")
