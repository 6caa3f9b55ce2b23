"""A store that is open on the loop of the portal, for all handles that share it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from anyio import CancelScope

from tenure.errors import StoreClosed
from tenure.observe import log
from tenure.store import Store

_ENDED_BY_A_FAULT = "the store has ended by a fault; the next call opens another one"


class Link:
    def __init__(self, make: Callable[[], Store]) -> None:
        self.handles: set[object] = set()
        self.ended = False
        self._make = make
        self._store: Store | None = None
        self._problem: BaseException | None = None
        self._opening_ended = anyio.Event()  # whether it could be opened
        self._over = anyio.Event()
        self._left = anyio.Event()
        self._opening = CancelScope()

    async def run(self) -> None:
        try:
            with self._opening:
                async with self._make() as self._store:
                    self._opening_ended.set()
                    await self._left.wait()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as problem:  # noqa: BLE001 those that wait for it get it, and the portal goes on
            self._problem = problem
            if self._opening_ended.is_set() and not self._left.is_set():
                log(logging.ERROR, _ENDED_BY_A_FAULT, {"error": problem})
        finally:
            self.ended = True
            self._opening_ended.set()
            self._over.set()

    async def opened(self) -> Store:
        """The store, once it is open. Raises what opening raised, `StoreClosed`."""
        if not self._opening_ended.is_set():
            await self._opening_ended.wait()
        if self._store is None or self.ended:
            raise self._problem or StoreClosed("the store is closed")
        return self._store

    async def close(self) -> None:
        """Close the store and wait for that. Raises what left its block."""
        self._left.set()
        if not self._opening_ended.is_set():
            self._opening.cancel("it was closed before it was open")
        await self._over.wait()
        if self._problem is not None and self._store is not None:
            raise self._problem
