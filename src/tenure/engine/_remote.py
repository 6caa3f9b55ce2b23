"""What stores see of a server: where it is, and how they are told what happens there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import anyio
from anyio import TASK_STATUS_IGNORED, CancelScope
from anyio.abc import TaskStatus

from ._answers import A, Hint, Notice, Operation


class Remote:
    """An engine over the network, whose connections the first of its stores keeps for all of them.

    Thread safety: none; one engine belongs to one event loop.
    """

    immediate = False

    def __init__(self, place: object) -> None:
        self._place = place
        self._listeners: dict[str, Callable[[Hint], None]] = {}
        self._baton = anyio.Lock()
        self._joining: set[CancelScope] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url!r} {'open' if self._listeners else 'closed'}>"

    @property
    def url(self) -> str:
        """Where it is, without the password."""
        return str(self._place)

    def apply(self, _operation: Operation[A], /) -> NoReturn:
        """Raise `RuntimeError`: a server is asked over the network."""
        raise RuntimeError(f"{self.url}: this engine is not immediate: use execute")

    async def serve(
        self,
        process: str,
        deliver: Callable[[Hint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Connect, report started, and deliver the hints for `process` until cancelled; then close the connections.

        Raises `EngineError` for a server that will not do, `StoreUnavailable` for one that cannot be reached.
        Cancellation: this is how it ends; afterwards no socket is left.
        """

        def started() -> None:
            task_status.started()
            deliver(Hint(process, "", "", Notice.RESYNC))

        self._listeners[process] = deliver
        self._listen(process)
        try:
            if joined := await self._joined_another(process):
                started()
            try:
                # whoever has it keeps the connections, and hands them on when its store closes
                async with self._baton:
                    await self._run(None if joined else started)
            finally:
                # to hear on connections that nobody keeps would take for ever
                for scope in self._joining:
                    scope.cancel()
        finally:
            del self._listeners[process]
            self._forget(process)

    async def _joined_another(self, process: str) -> bool:
        """Whether it is heard now on the connections that another store's task keeps; if not, none does."""
        while self._baton.locked():
            with CancelScope() as scope:
                self._joining.add(scope)
                try:
                    await self._listening(process)
                    return True
                finally:
                    self._joining.remove(scope)
        return False

    def _deliver(self, hint: Hint) -> None:
        deliver = self._listeners.get(hint.process)
        if deliver is not None:
            deliver(hint)

    def _resync(self) -> None:
        self._tell_all(Notice.RESYNC)

    def _all_missed(self) -> None:
        self._tell_all(Notice.MISSED)

    def _tell_all(self, news: Notice) -> None:
        for process, deliver in list(self._listeners.items()):
            deliver(Hint(process, "", "", news))

    # what the engine does

    def _listen(self, process: str) -> None:
        """From now on hear what is published for a process, on each connection that is made."""
        raise NotImplementedError

    async def _listening(self, process: str) -> None:
        """Wait until it is heard on the connections that stand."""
        raise NotImplementedError

    def _forget(self, process: str) -> None:
        """Hear no more for it."""
        raise NotImplementedError

    async def _run(self, started: Callable[[], None] | None) -> None:
        """Keep the connections until cancelled; `started()` is called once they stand."""
        raise NotImplementedError
