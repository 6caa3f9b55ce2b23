"""The state that the page shows: read once, however many clients ask."""

from __future__ import annotations

from typing import Any

import anyio

import tenure.engine as e
from tenure.errors import StoreUnavailable
from tenure.store import StoreHandle, read_pages

from ._document import document
from ._flows import Flows
from ._history import History
from ._schedules import SeenSchedules
from ._view import read_view

_FRESH = 0.8
"""Seconds for which one reading serves all clients."""

_FRESH_HEALTH = 15.0
"""Seconds for which the problems of the server are as they were."""

_TIMEOUT = 5.0
_MOST = 500


class StoreWatch:
    """Looks at a store when it is asked, but not more often than once in 0.8 s."""

    def __init__(self, store: StoreHandle) -> None:
        self._store = store
        self._flows = Flows()
        self._schedules = SeenSchedules(store.codec)
        self.history: History = History()
        self._lock = anyio.Lock()
        self._seen: tuple[float, dict[str, Any]] | None = None
        self._health: tuple[float, tuple[str, ...]] | None = None

    async def state(self) -> dict[str, Any]:
        async with self._lock:
            if self._seen is None or anyio.current_time() - self._seen[0] >= _FRESH:
                self._seen = anyio.current_time(), await self._read()
            return self._seen[1]

    async def _read(self) -> dict[str, Any]:
        with anyio.move_on_after(_TIMEOUT):
            view = await read_view(self._store, _MOST)
            seen = document(self._store.url, self._store.namespace, view, self._flows.add(view))
            seen["problems"] = await self._problems()
            seen["schedules"] = self._schedules.read(view.queues)
            self.history.add(seen, {processor.name: processor.minutes for processor in view.processors})
            return seen
        raise StoreUnavailable(f"{self._store.url}: no answer within {_TIMEOUT:g} s")

    async def _problems(self) -> tuple[str, ...]:
        if self._health is None or anyio.current_time() - self._health[0] >= _FRESH_HEALTH:
            shards = (await read_pages(self._store, e.Scan(e.HEALTH))).rows
            problems = dict.fromkeys(problem for health in shards for problem in health.problems)
            self._health = anyio.current_time(), tuple(problems)
        return self._health[1]
