"""A worker with a rate: a start is booked before a task is taken, so that none is held while it waits for its turn.

A booking that is not used soon is worth nothing: all those who have waited for a task would start at once when there
are some again. They book anew, with the task in hand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
from anyio import CancelScope

from tenure.errors import OutcomeUnknown
from tenure.shared import RateLimiter, Task, WorkQueue
from tenure.upkeep import unwrapped_task_group

_WORTH = 0.5
"""Seconds for which a booking may be used."""


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
                await self._book()
                await self._work(scope, anyio.current_time())

    async def _book(self) -> None:
        booked = False
        while not booked:
            # after an outage one start may have been booked in vain
            with suppress(OutcomeUnknown):
                await self._limiter.acquire()
                booked = True

    async def _work(self, scope: CancelScope, booked: float) -> None:
        taken = False
        try:
            async with self._queue.take() as task:
                if anyio.current_time() - booked > _WORTH:
                    await self._book()
                taken = True
                self._idle.discard(scope)  # from here on, a drain lets it finish
                result = await self._handler(task)
                if result is not None:
                    task.set_result(result)
        except Exception:
            if not taken:
                raise
            # else it has been settled, or is lost: either is on record
