"""Releasing: handed over synchronously, before the caller's first await, so that nothing can stop it.

The states of a release:

| state   | `_refused` | `_over` | event                   | goes to                                             |
|---------|------------|---------|-------------------------|-----------------------------------------------------|
| waiting | False      | False   | `after` is answered     | sent (without `after` at once)                      |
| sent    | False      | False   | an acknowledgement      | over: `answer` is set                               |
|         |            |         | an `EngineError`        | refused                                             |
|         |            |         | `StoreClosed`           | over, without an answer                             |
| refused | True       | False   | the session's heartbeat | sent                                                |

Until it is over it stands in `Session.unreleased`; one that stands there for a ttl ends the session.
"""

from __future__ import annotations

from typing import Any

from anyio import CancelScope

from tenure.engine import Operation
from tenure.errors import StoreClosed
from tenure.waiting import Parked, now, park, wake

from ._dispatch import Call
from ._sessions import Session


class PendingRelease:
    """Something that is being released. `answer` is the engine's acknowledgement, None until it is there.

    It is sent once `after` has been answered, whatever the answer is. One that the engine refuses with an error is sent
    again at the session's next heartbeats, until the store closes.
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
            session.dispatcher.send(operation, self._on_answer)
        else:
            after.on_answer = self._send
        if not self._over:
            session.unreleased[self] = now()

    def send_again(self) -> None:
        """Send it once more if the engine has refused it."""
        if self._refused:
            self._refused = False
            self._send()

    def _send(self, _: object = None) -> None:
        self._session.dispatcher.send(self._operation, self._on_answer)

    def _on_answer(self, answer: Any) -> None:
        self._over = not isinstance(answer, Exception) or isinstance(answer, StoreClosed)
        if not self._over:
            self._refused = True
            return
        if not isinstance(answer, StoreClosed):
            self.answer = answer
        self._session.unreleased.pop(self, None)
        for parked in self._parked:
            wake(parked)

    def waiter(self) -> Parked | None:
        """What to await for the acknowledgement, in a shield with a deadline; None if it is there."""
        if self._over:
            return None
        parked = park()
        self._parked = (*self._parked, parked)
        return parked

    async def wait(self, seconds: float) -> None:
        """Wait for the acknowledgement, at most so long, in a shield. The release goes on in any case.

        Cancellation: only a native one is noticed, and has no effect on the release.
        """
        if (waiter := self.waiter()) is not None:
            with CancelScope(deadline=now() + seconds, shield=True):
                await waiter
