from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyio.abc import TaskStatus

import tenure.engine as e
from tenure.errors import StoreUnavailable
from tenure.waiting import Backoff, now

from ._availability import Availability

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0

_WHAT_TO_DO = (
    "Start the server, or correct the address; open_store(..., retry=30.0) waits for a server that starts."
)


class _Once:
    def __init__(self, task_status: TaskStatus[None]) -> None:
        self.opened = False
        self._task_status = task_status

    def started(self, value: Any = None) -> None:
        self.opened = True
        self._task_status.started(value)


async def serve(
    engine: e.Engine,
    process: str,
    deliver: Callable[[e.Hint], None],
    retry: float,
    availability: Availability,
    *,
    task_status: TaskStatus[None],
) -> None:
    """Call `engine.serve`, again for `retry` seconds while the engine cannot be reached, which is reported."""
    once = _Once(task_status)
    backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
    give_up = now() + retry
    while True:
        try:
            await engine.serve(process, deliver, task_status=once)
            return
        except StoreUnavailable as problem:
            if once.opened:
                raise
            if now() >= give_up:
                if not hasattr(problem, "__notes__"):  # an engine may know better
                    problem.add_note(_WHAT_TO_DO)
                raise
            problem.__cause__ = None  # where in the engine this was found out does not help
            availability.lost(engine, problem.with_traceback(None))
        await backoff.pause()
