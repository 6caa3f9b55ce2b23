"""Settlements: giving back, handed over synchronously so that nothing can stop it."""

from __future__ import annotations

from itertools import count
from typing import Any

import anyio

from tenure.engine import Operation
from tenure.local._line import Line

from ._sessions import Session
from ._wire import Wire

_numbers = count()


class Settlement:
    """Something that is being given back.

    Thread safety: none.
    """

    __slots__ = ("_line", "_number", "_session", "answer")

    def __init__(self, wire: Wire, operation: Operation[Any], session: Session) -> None:
        self.answer: Any = None
        self._line: Line[None, None] | None = None
        self._number = next(_numbers)
        self._session = session
        session.unsettled[self._number] = anyio.current_time()
        wire.send(operation, self._answered)

    def _answered(self, answer: Any) -> None:
        self.answer = answer
        self._session.unsettled.pop(self._number, None)
        if self._line is not None:
            for waiter in self._line:
                self._line.grant(waiter, None)

    async def wait(self, seconds: float) -> None:
        """Wait for the acknowledgement, at most so long, in a shield. It goes on in any case.

        Cancellation: only a native one is noticed, and has no effect on the settlement.
        """
        if self.answer is None:
            self._line = Line(lambda _: None)
            with anyio.move_on_after(seconds, shield=True):
                await self._line.wait(self._line.join(None))
