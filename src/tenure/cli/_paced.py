"""A worker with a rate: a start is booked before a task is taken, so that none is held while it waits for its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio import CancelScope

from tenure.shared import RateLimiter, Task, WorkQueue
from tenure.upkeep import unwrapped_task_group


class PacedWorker:
    """Takes tasks of a queue as `Worker` does, `concurrency` at a time, and no faster than the limiter allows.

    Thread safety: none.
    """

    def __init__(
        self,
        queue: WorkQueue,
        handler: Callable[[Task], Awaitable[Any]],
        limiter: RateLimiter,
        *,
        concurrency: int,
    ) -> None:
        self._queue = queue
        self._handler = handler
        self._limiter = limiter
        self._concurrency = concurrency
        self._draining = False
        self._idle: set[CancelScope] = set()
        self._ended = anyio.Event()

    async def run(self) -> None:
        """Work until cancelled or drained. Cancellation: handlers are cancelled and their tasks given back."""
        try:
            async with unwrapped_task_group() as group:
                for _ in range(self._concurrency):
                    group.start_soon(self._runner)
        finally:
            self._ended.set()

    async def drain(self) -> None:
        """Take no more; return when what was taken is done. Cancellation: the worker goes on draining."""
        self._draining = True
        for scope in self._idle:
            scope.cancel()
        await self._ended.wait()

    async def _runner(self) -> None:
        with CancelScope() as scope:
            while not self._draining:
                self._idle.add(scope)
                await self._limiter.acquire()
                await self._work(scope)

    async def _work(self, scope: CancelScope) -> None:
        taken = False
        try:
            async with self._queue.take() as task:
                taken = True
                self._idle.discard(scope)  # from here on, a drain lets it finish
                result = await self._handler(task)
                if result is not None:
                    task.set_result(result)
        except Exception:
            if not taken:
                raise
            # else it has been settled, or is lost: either is on record
