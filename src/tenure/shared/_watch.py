"""Waiting for a change: a hint announces it, and without hints the engine is asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import anyio

from tenure.store import Held, Session, jittered
from tenure.waiting import Line

_LEAST_PAUSE = 0.05


class Watch(Held):
    """A caller's wait for a change. It begins before the engine is asked, so that no hint is missed."""

    __slots__ = ("_line", "_on_last", "_session", "_waiter")

    def __init__(self, line: Line[None, None], session: Session, on_last: Callable[[], object]) -> None:
        self._line = line
        self._session = session
        self._on_last = on_last
        self._waiter = line.join(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.leave(self._waiter)
        if not len(self._line):
            self._on_last()

    async def changed(self, ask_again_in: float) -> None:
        if self._session.check() is not None:
            return
        # only now: a closing store waits for all that is held, and not for an engine that does not answer
        self._session.add(self)
        try:
            with anyio.move_on_after(jittered(ask_again_in, least=_LEAST_PAUSE)):
                await self._line.wait(self._waiter)
        finally:
            self._session.drop(self)

    def _lose(self, reason: str) -> None:
        del reason
        self._line.grant(self._waiter, None)


def new_line(owner: str) -> Line[None, None]:
    return Line(owner=owner)


def wake(line: Line[None, None]) -> None:
    for waiter in line:
        line.grant(waiter, None)
