"""Settlements: giving back, handed over synchronously so that nothing can stop it."""

from __future__ import annotations

from typing import Any

import anyio

from tenure.engine import Operation
from tenure.local._line import Line

from ._sessions import Session
from ._wire import Call, Wire


class Settlement:
    """Something that is being given back. `answer` is the engine's acknowledgement, None until it is there.

    It is sent once `after` has been answered, whatever the answer is. One that the engine refuses with an error is sent
    again at the session's next heartbeats.
    Thread safety: none.
    """

    __slots__ = ("_line", "_operation", "_refused", "_session", "_wire", "answer")

    def __init__(
        self, wire: Wire, operation: Operation[Any], session: Session, after: Call[Any] | None = None
    ) -> None:
        self.answer: Any = None
        self._wire = wire
        self._operation = operation
        self._session = session
        self._refused = False
        self._line: Line[None, None] | None = None
        if after is None:
            self._send()
        else:
            after.on_answer = self._send
        if self.answer is None:
            session.unsettled[self] = anyio.current_time()

    def send_again(self) -> None:
        """Send it once more if the engine has refused it. For the session alone."""
        if self._refused:
            self._refused = False
            self._send()

    def _send(self, _: object = None) -> None:
        self._wire.send(self._operation, self._answered)

    def _answered(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            self._refused = True
            return
        self.answer = answer
        self._session.unsettled.pop(self, None)
        if self._line is not None:
            for waiter in self._line:
                self._line.grant(waiter, None)

    async def wait(self, seconds: float) -> None:
        """Wait for the acknowledgement, at most so long, in a shield. It goes on in any case.

        Cancellation: only a native one is noticed, and has no effect on the settlement.
        """
        if self.answer is None:
            self._line = self._line or Line(_nothing)
            with anyio.move_on_after(seconds, shield=True):
                await self._line.wait(self._line.join(None))


def _nothing(_: object) -> None:
    pass
