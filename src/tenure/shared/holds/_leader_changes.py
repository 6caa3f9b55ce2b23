from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Self

import anyio.lowlevel

import tenure.engine as e
from tenure.arguments import AsyncBlock, NotAwaited
from tenure.errors import StoreClosed
from tenure.shared._watch import Watch, new_line, wake
from tenure.store import Session, StoreHandle


def leader_of(holdings: e.Holdings) -> str | None:
    return holdings.holders[0].value.decode() if holdings.holders else None


class LeaderChanges(AsyncBlock, NotAwaited):
    """The present leader of an election, and then each change; see `Election.watch`.

    A slow reader misses earlier leaders, but never the present one. No leader comes twice in a row.
    """

    __slots__ = ("_inside", "_key", "_last", "_store", "_ttl")

    def __init__(self, store: StoreHandle, key: str, ttl: float) -> None:
        self._store = store
        self._key = key
        self._ttl = ttl
        self._inside = False
        self._last: object = self  # nothing was returned yet, not even None

    async def __aenter__(self) -> Self:
        await anyio.lowlevel.checkpoint()
        self._inside = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str | None:
        """Wait for another leader than the last one returned. Raises `StoreClosed`, `EngineError`.

        Cancellation: nothing is missed; the change comes next time.
        """
        if not self._inside:
            raise RuntimeError(
                f"{self._key}: write `async with election.watch() as changes:`, and read inside that block"
            )
        while True:
            session = await self._store.session(self._ttl, self._key)
            listener = self._store.listen(self._key, _Listener)
            with Watch(listener.line, session, partial(self._store.unlisten, self._key, listener)) as watch:
                answer = await self._store.call(
                    e.Scan(e.HOLDERS, self._key, limit=1, watch=session.id), patient=True
                )
                if isinstance(answer, e.Reply):
                    session.lose("gone")
                elif (leader := leader_of(answer)) != self._last:
                    self._last = leader
                    return leader
                else:
                    await watch.changed(self._ttl)


class _Listener:
    def __init__(self) -> None:
        self.line = new_line("an election")

    def on_hint(self, hint: e.Hint) -> None:
        del hint
        wake(self.line)

    def on_found(self, session: Session, item: e.SessionItem) -> None:
        """No queue is used here."""

    def close(self) -> None:
        self.line.fail_all(lambda: StoreClosed("the store was closed"))
