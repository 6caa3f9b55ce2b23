"""Watching who leads: hinted at each change, asked for again when no hint comes."""

from __future__ import annotations

from random import uniform
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel

from tenure.engine import Belonging, Hint, Holders, Holdings, Reply
from tenure.errors import StoreClosed
from tenure.local._line import Line
from tenure.store import Held, Session, Store


def leader_of(holdings: Holdings) -> str | None:
    """The node that holds an election, if there is one."""
    return holdings.holders[0].value.decode() if holdings.holders else None


class LeaderChanges:
    """Who leads at present, and then each change.

    `async with election.watch() as changes: async for leader in changes: ...`. A leader is the name of a node, or None.
    A slow reader misses what was over before it looked, but never what is; no leader is told twice in a row.

    Thread safety: none.
    """

    __slots__ = ("_inside", "_key", "_last", "_store", "_ttl")

    def __init__(self, store: Store, key: str, ttl: float) -> None:
        self._store = store
        self._key = key
        self._ttl = ttl
        self._inside = False
        self._last: object = self  # nobody at all: not even that nobody leads has been told

    async def __aenter__(self) -> Self:
        """Begin. Cancellation: has no effect."""
        await anyio.lowlevel.checkpoint()
        self._inside = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End. Cancellation: not a checkpoint."""
        self._inside = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str | None:
        """Wait until another one leads than was told last. Raises `StoreClosed`, `EngineError`.

        Cancellation: has no effect; the change is told next time.
        """
        if not self._inside:
            raise RuntimeError(f"{self._key}: watched outside of the block of its watch")
        while True:
            session = await self._store.session(self._ttl, self._key)
            look = _Look(self._store, self._key)
            try:
                answer = await self._store.call(Holders(self._key, 1, session.id))
                if isinstance(answer, Reply):
                    session.lose("gone")
                elif (leader := leader_of(answer)) != self._last:
                    self._last = leader
                    return leader
                else:
                    await look.wait(session, self._ttl)
            finally:
                look.end()


class _Lookers:
    """All who wait in this process for another leader of one election."""

    def __init__(self) -> None:
        self.line: Line[None, None] = Line(lambda _: None)

    def on_hint(self, hint: Hint) -> None:
        del hint
        for waiter in self.line:
            self.line.grant(waiter, None)

    def on_found(self, session: Session, one: Belonging) -> None:
        """Nobody here has anything of a queue."""

    def close(self) -> None:
        """The store closes: also for those who have not begun to wait."""
        self.line.fail_all(lambda: StoreClosed("the store was closed"))


class _Look(Held):
    """One look at who leads, and the wait for a change: begun before the engine is asked, so that no hint is missed."""

    __slots__ = ("_key", "_line", "_lookers", "_store", "_waiter")

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key
        self._lookers = store.listen(key, _Lookers)
        self._line = self._lookers.line
        self._waiter = self._line.join(None)

    async def wait(self, session: Session, seconds: float) -> None:
        """Wait for a hint, for the end of the session, or until it is time to look again."""
        if session.look() is not None:
            return
        session.add(self)
        try:
            with anyio.move_on_after(seconds * uniform(1, 1.05)):
                await self._line.wait(self._waiter)
        finally:
            session.drop(self)

    def lose(self, reason: str) -> None:
        """The engine hints this process no more. For the session alone."""
        del reason
        self._line.grant(self._waiter, None)

    def end(self) -> None:
        """Wait no more."""
        self._line.leave(self._waiter)
        if not len(self._line):
            self._store.unlisten(self._key, self._lookers)
