"""The view that `tenure demo` has of its store, several times a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio

from tenure.engine import Holder, QueueCounts
from tenure.store import Store
from tenure.web import SeenKey, SeenProcess, View, read_view

from ._worker import LETTERS

T = TypeVar("T")

_EVERY = 0.2
_TIMEOUT = 60.0


class NotSeen(Exception):
    """An expected event did not happen in time."""


class StoreProbe:
    """The last view of a store, and waiting for one in which something is true."""

    def __init__(self, store: Store) -> None:
        self.view: View | None = None
        self._store = store
        self._looked = anyio.Event()

    async def watch(self, on_look: Callable[[View], None]) -> None:
        """Look until cancelled."""
        while True:
            on_look(await self.read())
            await anyio.sleep(_EVERY)

    async def read(self) -> View:
        """Look now. Raises `EngineError`, `StoreClosed`."""
        self.view = await read_view(self._store)
        self._looked.set()
        self._looked = anyio.Event()
        return self.view

    async def until(self, what: str, find: Callable[[View], T | None]) -> T:
        """Wait for a view in which something is found. Raises `NotSeen` after a minute, which names `what`."""
        with anyio.move_on_after(_TIMEOUT):
            while True:
                if self.view is not None and (result := find(self.view)) is not None:
                    return result
                await self._looked.wait()
        raise NotSeen(f"after {_TIMEOUT:g} s this has not happened: {what}")


def holder_of(view: View, kind: str, name: str) -> Holder | None:
    """The holder of a lock or an election."""
    key = key_of(view, kind, name)
    return key.holders[0] if key is not None and key.holders else None


def key_of(view: View, kind: str, name: str) -> SeenKey | None:
    """A lock or an election that somebody holds or waits for."""
    return next((key for key in view.keys if (key.kind, key.name) == (kind, name)), None)


def letters_of(seen: SeenProcess) -> int:
    """The number of letters that a process has."""
    return seen.tasks.get(LETTERS, 0)


def counts_of(view: View) -> QueueCounts | None:
    """The counters of the letters."""
    return view.queues.get(LETTERS)
