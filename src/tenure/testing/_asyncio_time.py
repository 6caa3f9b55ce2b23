"""Virtual time on asyncio: a selector that jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import math
import operator
import selectors
from typing import TYPE_CHECKING, Any

from ._deadlock import DeadlockError, describe

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context


class AsyncioTime:
    """The time of a `VirtualClock` on asyncio. Calling it makes an event loop that runs on it."""

    backend = "asyncio"

    def __init__(self, settle: float, patience: float) -> None:
        self.quiet_for = settle
        self.patience = patience
        self.seconds = 0.0
        self.deadlock: DeadlockError | None = None
        self._settling: list[asyncio.Future[None]] = []

    def __call__(self) -> asyncio.AbstractEventLoop:
        self.deadlock = None
        return _VirtualLoop(self)

    def options(self) -> dict[str, Any]:
        return {"loop_factory": self}

    def now(self) -> float:
        return self.seconds

    async def settle(self) -> None:
        settled = asyncio.get_running_loop().create_future()
        self._settling.append(settled)
        await settled

    def wake_settling(self) -> bool:
        """Wake those who waited for everybody else to wait. False if there were none."""
        waiting = [settled for settled in self._settling if not settled.done()]
        self._settling.clear()
        for settled in waiting:
            settled.set_result(None)
        return bool(waiting)

    def deadlocked(self) -> DeadlockError:
        tasks = [(task.get_name(), task.get_coro()) for task in asyncio.all_tasks()]
        self.deadlock = DeadlockError(describe(sorted(tasks, key=operator.itemgetter(0))))
        return self.deadlock


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, virtual: AsyncioTime) -> None:
        self._virtual = virtual
        super().__init__(_VirtualSelector(virtual))

    def time(self) -> float:
        return self._virtual.seconds

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if when == math.inf:
            # Scheduled, it would be a timer to jump to for ever, a day at a time.
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)


class _VirtualSelector(selectors.DefaultSelector):
    def __init__(self, virtual: AsyncioTime) -> None:
        super().__init__()
        self._virtual = virtual

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        # Nothing can run: `timeout` is how far away the next timer is, if there is one.
        virtual = self._virtual
        events = super().select(virtual.quiet_for)
        if events or virtual.wake_settling():
            return events
        if timeout is not None:
            virtual.seconds += timeout
            return []
        only_the_loops_own_pipe = len(self.get_map()) <= 1
        events = super().select(virtual.patience if only_the_loops_own_pipe else None)
        if not events and only_the_loops_own_pipe:
            raise virtual.deadlocked()
        return events
