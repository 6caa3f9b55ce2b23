"""An engine over the network: its stores share connections, and receive its hints."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from anyio import TASK_STATUS_IGNORED, CancelScope
from anyio.abc import TaskStatus

from ._answers import Hint, Notice
from ._engine import Engine


class Remote(Engine):
    """An engine over the network, whose connections the first of its stores keeps for all of them."""

    def __init__(self, place: object) -> None:
        self.url: str = str(place)
        self._listeners: dict[str, Callable[[Hint], None]] = {}
        self._baton = anyio.Lock()
        self._enlisting: set[CancelScope] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url!r} {'open' if self._listeners else 'closed'}>"

    async def serve(
        self,
        process: str,
        deliver: Callable[[Hint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Connect, report started, and deliver the hints for `process` until cancelled; then close the connections.

        Raises `EngineError` for an unsuitable server, `StoreUnavailable` for a server that cannot be reached.
        Cancellation: this is how it ends; afterwards no socket is left.
        """

        def started() -> None:
            task_status.started()
            deliver(Hint(process, "", "", Notice.MISSED))

        self._listeners[process] = deliver
        self._listen(process)
        try:
            if joined := await self._joined_another(process):
                started()
            try:
                # its owner keeps the connections, and hands them on when its store closes
                async with self._baton:
                    await self._run(None if joined else started)
            finally:
                # nothing would ever arrive on connections that are not kept
                for scope in self._enlisting:
                    scope.cancel()
        finally:
            del self._listeners[process]
            self._forget(process)

    async def _joined_another(self, process: str) -> bool:
        """True once the hints come on connections that another store's task keeps; if False, no task keeps any."""
        while self._baton.locked():
            with CancelScope() as scope:
                self._enlisting.add(scope)
                try:
                    await self._listening(process)
                    return True
                finally:
                    self._enlisting.remove(scope)
        return False

    def _deliver(self, hint: Hint) -> None:
        deliver = self._listeners.get(hint.process)
        if deliver is not None:
            deliver(hint)

    def _missed(self) -> None:
        self._hint_all(Notice.MISSED)

    def _lost(self) -> None:
        self._hint_all(Notice.LOST)

    def _hint_all(self, news: Notice) -> None:
        for process, deliver in list(self._listeners.items()):
            deliver(Hint(process, "", "", news))

    # for the engine to implement

    def _listen(self, process: str) -> None:
        """Receive the messages for a process, on each connection that is made from now on."""
        raise NotImplementedError

    async def _listening(self, process: str) -> None:
        """Wait until the open connections receive it."""
        raise NotImplementedError

    def _forget(self, process: str) -> None:
        raise NotImplementedError

    async def _run(self, started: Callable[[], None] | None) -> None:
        """Keep the connections until cancelled; `started()` is called once they are open."""
        raise NotImplementedError
