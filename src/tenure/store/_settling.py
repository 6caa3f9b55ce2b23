"""Settlements: giving back, handed over synchronously so that nothing can stop it."""

from __future__ import annotations

from typing import Any

from anyio import CancelScope

from tenure.engine import Operation
from tenure.errors import StoreClosed
from tenure.local._park import Parked, now, park, wake

from ._sessions import Session
from ._wire import Call


class Settlement:
    """Something that is being given back. `answer` is the engine's acknowledgement, None until it is there.

    It is sent once `after` has been answered, whatever the answer is. One that the engine refuses with an error is sent
    again at the session's next heartbeats. Once the store has closed, nothing is.
    Thread safety: none.
    """

    __slots__ = ("_operation", "_over", "_parked", "_refused", "_session", "answer")

    def __init__(self, operation: Operation[Any], session: Session, after: Call[Any] | None = None) -> None:
        self.answer: Any = None
        self._operation = operation
        self._session = session
        self._refused = False
        self._over = False
        self._parked: tuple[Parked, ...] = ()
        if after is None:
            self._send()
        else:
            after.on_answer = self._send
        if not self._over:
            session.unsettled[self] = now()

    def send_again(self) -> None:
        """Send it once more if the engine has refused it. For the session alone."""
        if self._refused:
            self._refused = False
            self._send()

    def _send(self, _: object = None) -> None:
        self._session.wire.send(self._operation, self._answered)

    def _answered(self, answer: Any) -> None:
        self._over = not isinstance(answer, Exception) or isinstance(answer, StoreClosed)
        if not self._over:
            self._refused = True
            return
        if not isinstance(answer, StoreClosed):
            self.answer = answer
        self._session.unsettled.pop(self, None)
        for parked in self._parked:
            wake(parked)

    def berth(self) -> Parked | None:
        """Where to wait for the acknowledgement; None if it is there."""
        if self._over:
            return None
        parked = park()
        self._parked = (*self._parked, parked)
        return parked

    async def wait(self, seconds: float) -> None:
        """Wait for the acknowledgement, at most so long, in a shield. It goes on in any case.

        Cancellation: only a native one is noticed, and has no effect on the settlement.
        """
        if (berth := self.berth()) is not None:
            with CancelScope(deadline=now() + seconds, shield=True):
                await berth
