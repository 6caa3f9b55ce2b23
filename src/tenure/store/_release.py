"""Releasing: handed over synchronously, before the caller's first await, so that nothing can stop it.

The states of a release:

| state   | `_refused` | `settled` | event                   | goes to                            |
|---------|------------|-----------|-------------------------|------------------------------------|
| waiting | False      | False     | `after` is answered     | sent (without `after` at once)     |
| sent    | False      | False     | an acknowledgement      | settled: `answer` is set           |
|         |            |           | an `EngineError`        | refused                            |
|         |            |           | `StoreClosed`           | settled, without an answer         |
| refused | True       | False     | the session's heartbeat | sent                               |

Until it is settled it stands in `Session.unreleased`; a release that stands there for a ttl ends the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from anyio import CancelScope

from tenure.engine import Operation
from tenure.errors import StoreClosed
from tenure.waiting import Parked, now, park, wake

from ._dispatch import Call
from ._sessions import Session


class PendingRelease:
    """A release on its way. `answer` is the engine's acknowledgement, None until it is there.

    `since` is when it was handed over.

    It is sent once `after` has been answered, whatever the answer is. If the engine refuses it with an error, it
    is sent again at the session's next heartbeats, until the store closes.
    """

    __slots__ = ("_operation", "_parked", "_refused", "answer", "session", "settled", "since")

    def __init__(self, operation: Operation[Any], session: Session, after: Call[Any] | None = None) -> None:
        self.answer: Any = None
        self._operation = operation
        self.session: Session = session
        self._refused = False
        self.settled: bool = False
        self.since: float = now()
        self._parked: tuple[Parked, ...] = ()
        if after is None:
            session.dispatcher.send(operation, self._on_answer)
        else:
            after.on_answer = self._send
        if not self.settled:
            session.unreleased[self] = self.since

    def send_again(self) -> None:
        """Send the release once more if the engine has refused it."""
        if self._refused:
            self._refused = False
            self._send()

    def _send(self, _: object = None) -> None:
        self.session.dispatcher.send(self._operation, self._on_answer)

    def _on_answer(self, answer: Any) -> None:
        self.settled = not isinstance(answer, Exception) or isinstance(answer, StoreClosed)
        if not self.settled:
            self._refused = True
            return
        if not isinstance(answer, StoreClosed):
            self.answer = answer
        self.session.unreleased.pop(self, None)
        self.wake()

    def wake(self) -> None:
        """Wake all that wait for the acknowledgement, be it there or not."""
        for parked in self._parked:
            wake(parked)

    def waiter(self) -> Parked | None:
        """The awaitable that ends with the acknowledgement, for a shield with a deadline; None if the
        acknowledgement is there.
        """
        if self.settled:
            return None
        parked = park()
        self._parked = (*self._parked, parked)
        return parked

    async def wait(self, seconds: float) -> None:
        """Wait for the acknowledgement, at most so long, in a shield. The release goes on in any case.

        Cancellation: only a native one is noticed, and has no effect on the release.
        """
        if self.settled:
            return
        with CancelScope(deadline=now() + seconds, shield=True):
            # the loss of the session wakes it too
            while (waiter := self.waiter()) is not None:
                await waiter


class SettleTimeouts:
    """Ends waits for acknowledgements when their time is over: all with one timer, since all take equally long."""

    def __init__(self, call_at: Callable[[float, Callable[[], None]], None], seconds: float) -> None:
        self._call_at = call_at
        self._seconds = seconds
        self._waited_for: deque[PendingRelease] = deque()
        self._armed = False
        self._closed = False

    def waiter(self, release: PendingRelease) -> Parked | None:
        """The awaitable for the acknowledgement, to be awaited in a shield; None if there is nothing to wait for.

        It ends with the acknowledgement, when the time is over, and when the session is lost.
        """
        parked = None if self._closed or release.session.lost else release.waiter()
        if parked is not None:
            waited_for = self._waited_for
            while waited_for and waited_for[0].settled:
                waited_for.popleft()
            waited_for.append(release)
            if not self._armed:
                self._arm()
        return parked

    def close(self) -> None:
        """End all waits; no caller may wait from now on, because nothing would end that wait."""
        self._closed = True
        while self._waited_for:
            self._waited_for.popleft().wake()

    def _arm(self) -> None:
        self._armed = True
        self._call_at(self._waited_for[0].since + self._seconds, self._on_time)

    def _on_time(self) -> None:
        time, waited_for = now(), self._waited_for
        while waited_for and (waited_for[0].settled or waited_for[0].since + self._seconds <= time):
            waited_for.popleft().wake()
        self._armed = False
        if waited_for:
            self._arm()
