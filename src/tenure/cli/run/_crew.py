"""The workers of a run: each calls the handler for one input at a time, in a thread of its own if it is sync.

With a rate, a worker books its start before it takes a task, so that it holds none while it waits for its turn. An old
booking is worth nothing: all workers that waited for a task would start at once. They book anew, with the task in hand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from anyio import CancelScope

import tenure.engine as e
from tenure.errors import OutcomeUnknown
from tenure.handlers import until_free
from tenure.local import Threads
from tenure.shared import RateLimiter, Runners, Task, WorkQueue

_WORTH = 0.5
"""Seconds for which a booking may be used."""

Call = Callable[[Task, Threads | None], Awaitable[Any]]


class NotStarted(Exception):
    """The input was not begun, or its failure has nothing to do with it: its task is given back."""


class Workers:
    """Runs `workers` workers, which take the tasks of a queue and `call` each with its worker's thread.

    A worker whose thread cannot be stopped takes nothing until the thread has ended. `on_settled` and `name` are as of
    `Runners`.
    """

    def __init__(
        self,
        queue: WorkQueue,
        call: Call,
        *,
        workers: int,
        in_threads: bool,
        limiter: RateLimiter | None = None,
        on_settled: Callable[[Task, e.Settle, str | None], object] | None = None,
        name: str = "the handler",
    ) -> None:
        self._call = call
        self._limiter = limiter
        self._threads = [Threads(1) for _ in range(workers)] if in_threads else []
        self._booked: dict[int, float] = {}
        self._booking: set[CancelScope] = set()
        self._runners = Runners(
            queue,
            [partial(self._handle, number) for number in range(workers)],
            pause=self._pause if in_threads or limiter is not None else None,
            judge=_judge,
            on_settled=on_settled,
            name=name,
        )

    async def run(self) -> None:
        """Work until cancelled or drained. Raises `StoreClosed`, `EngineError`.

        Cancellation: handlers are cancelled and their tasks given back.
        """
        await self._runners.run()

    def begin_draining(self) -> None:
        self._runners.begin_draining()
        for scope in self._booking:
            scope.cancel()

    async def drain(self) -> None:
        """Take no more inputs; return when the current ones are done. Cancellation: the workers go on draining."""
        self.begin_draining()
        await self._runners.drain()

    def _pause(self, number: int) -> Awaitable[object] | None:
        if self._threads and (free := until_free(self._threads, number)) is not None:
            return free
        return None if self._limiter is None or number in self._booked else self._book(self._limiter, number)

    async def _book(self, limiter: RateLimiter, number: int) -> None:
        while number not in self._booked:
            # after an outage one start may have been booked in vain
            with suppress(OutcomeUnknown):
                await limiter.acquire()
                self._booked[number] = anyio.current_time()

    async def _handle(self, number: int, task: Task) -> Any:
        if self._limiter is not None and anyio.current_time() - self._booked.pop(number) > _WORTH:
            with CancelScope() as scope:
                self._booking.add(scope)
                try:
                    await self._book(self._limiter, number)
                finally:
                    self._booking.discard(scope)
            if self._booked.pop(number, None) is None:
                raise NotStarted
        return await self._call(task, self._threads[number] if self._threads else None)


def _judge(task: Task, failure: BaseException) -> BaseException | None:
    del task
    return None if isinstance(failure, NotStarted) else failure
