"""Calling the handler for a task: in a thread if it is sync, for a limited time, and timed."""

from __future__ import annotations

from typing import Any

import anyio
from anyio import CancelScope

from tenure.local import Threads
from tenure.shared import Discard, Task

from ._handler import Handler
from ._tally import Tally


class Calling:
    """Calls the handler for tasks, at most `workers` at a time if it is sync, and counts in the tally.

    A try that takes longer than `timeout` seconds fails; the thread of a sync one is abandoned, and keeps its place
    among the `workers` until it ends.

    Thread safety: none.
    """

    def __init__(
        self, handler: Handler, tally: Tally, *, workers: int, timeout: float | None, tries: int
    ) -> None:
        self._handler = handler
        self._tally = tally
        self._timeout = timeout
        self._tries = tries
        self._threads = None if handler.is_async else Threads(workers)

    async def call(self, task: Task) -> Any:
        """What the handler makes of the task. Raises what it raises, and `TimeoutError`.

        Cancellation: the handler is cancelled, or its thread abandoned.
        """
        began = anyio.current_time()
        try:
            result = await self._call(task if self._handler.wants_task else task.payload)
        except Exception as problem:
            if task.attempt < self._tries and not isinstance(problem, Discard):
                self._tally.retried += 1
            self._tally.times.record(anyio.current_time() - began)
            raise
        self._tally.times.record(anyio.current_time() - began)
        return result

    async def _call(self, argument: Any) -> Any:
        function = self._handler.function
        if self._threads is not None:
            return await self._threads.run(function, argument, timeout=self._timeout)
        if self._timeout is None:
            return await function(argument)
        with CancelScope(deadline=anyio.current_time() + self._timeout):
            return await function(argument)
        raise TimeoutError(f"not done within {self._timeout:g} s")
