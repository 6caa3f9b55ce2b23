"""The worker: so many runners that take tasks of one queue, handle them and settle them.

A runner keeps one cancel scope over many tasks and makes a new one only when that has been cancelled, since a scope for
each task would cost as much as all the rest. Its settlements are not waited for one by one: they travel with the next
exchange, which also brings the next tasks.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import anyio
import anyio.lowlevel
from anyio import CancelScope

from tenure.engine import Settle, Verdict
from tenure.local import Threads
from tenure.local._line import Line
from tenure.store import Session
from tenure.upkeep import unwrapped_task_group

from ._queue import WorkQueue
from ._retry import Retry
from ._takes import Dismissed
from ._task import Task

Handler = Callable[[Task], Awaitable[Any]] | Callable[[Task], Any]

_EVENTS = {
    Verdict.DONE: "task.done",
    Verdict.RETRY: "task.retry",
    Verdict.DEAD: "task.dead",
    Verdict.DISCARD: "task.discarded",
    Verdict.CANCEL: "task.cancelled",
    Verdict.GIVE_BACK: "task.given_back",
}


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """A worker at one moment: how many of its `concurrency` runners are `busy`, and what became of its tasks.

    `retried` tries failed and will be repeated, `dead` failed for good, `lost` were settled too late; `abandoned` threads
    of sync handlers still run although their tasks are lost or timed out.
    """

    concurrency: int
    busy: int
    done: int
    retried: int
    dead: int
    discarded: int
    cancelled: int
    given_back: int
    lost: int
    abandoned: int


class Worker:
    """Takes the tasks of a queue, `concurrency` at a time, and hands each to `handler(task)`.

    What the handler returns is the result (None: what `task.set_result` has set); an exception fails the try, as `retry`
    (the queue's by default) says; `RetryLater` and `Discard` say it themselves. A try that takes longer than `timeout`
    seconds is cancelled and fails with `TimeoutError`. A sync function runs in a thread, of which there are as many as
    `concurrency`; one that cannot be stopped is abandoned and its outcome refused, and it keeps its thread until it ends.
    If a task's lease is lost, or it is cancelled, its handler is cancelled.

    Thread safety: none; belongs to the event loop of its store.
    """

    def __init__(
        self,
        queue: WorkQueue,
        handler: Handler,
        *,
        concurrency: int = 10,
        timeout: float | None = None,
        retry: Retry | None = None,
    ) -> None:
        if not callable(handler):
            raise TypeError(f"handler must be a function that takes a task, not {handler!r}")
        if not isinstance(concurrency, int) or concurrency < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"concurrency must be an int, at least 1: {concurrency!r}")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be None or a number of seconds above 0: {timeout!r}")
        self._queue = queue
        self._handler: Callable[[Task], Any] = handler
        self._concurrency = concurrency
        self._timeout = timeout
        self._retry = retry or queue.retry
        self._threads = None if is_async(handler) else Threads(concurrency)
        self._draining = False
        self._running = False
        self._busy = 0
        self._unsettled = 0
        self._counts: Counter[str] = Counter()
        self._settled: Line[None, None] = Line(lambda _: None)
        self._ended: Line[None, None] = Line(lambda _: None)

    def __repr__(self) -> str:
        state = "draining" if self._draining else "running" if self._running else "idle"
        return f"<Worker {self._queue.name!r} {state} busy={self._busy}/{self._concurrency}>"

    async def run(self) -> None:
        """Work until cancelled or drained. Raises `StoreClosed`, `EngineError`; `RuntimeError` if it runs already.

        A worker that was drained does not run again.
        Cancellation: handlers are cancelled and their tasks given back, without counting an attempt.
        """
        if self._running:
            raise RuntimeError(f"{self!r}: runs already")
        self._running = True
        try:
            async with unwrapped_task_group() as group:
                for number in range(self._concurrency):
                    group.start_soon(self._runner, name=f"tenure worker {self._queue.name} {number}")
        finally:
            with anyio.move_on_after(self._queue.store.settle_timeout, shield=True):
                while self._unsettled:
                    await self._settled.wait(self._settled.join(None))
            self._running = False
            for waiter in self._ended:
                self._ended.grant(waiter, None)

    async def drain(self) -> None:
        """Take no more tasks, finish those at hand, end `run`; return when that is done.

        Cancellation: the worker goes on draining.
        """
        self._draining = True
        self._queue.takers.dismiss(self)
        if self._running:
            await self._ended.wait(self._ended.join(None))
        else:
            await anyio.lowlevel.checkpoint()

    def statistics(self) -> WorkerStatistics:
        """The worker at this moment."""
        counts = self._counts
        return WorkerStatistics(
            concurrency=self._concurrency,
            busy=self._busy,
            done=counts["task.done"],
            retried=counts["task.retry"],
            dead=counts["task.dead"],
            discarded=counts["task.discarded"],
            cancelled=counts["task.cancelled"],
            given_back=counts["task.given_back"],
            lost=counts["task.lost"],
            abandoned=0 if self._threads is None else self._threads.statistics().abandoned,
        )

    async def _runner(self) -> None:
        while not self._draining:
            with CancelScope() as scope:
                try:
                    while not (self._draining or scope.cancel_called):
                        session, taken = await self._queue.takers.take(self)
                        if session.lost is None:
                            await self._work(Task(self._queue, session, taken, scope), session, scope)
                except Dismissed:
                    return

    async def _work(self, task: Task, session: Session, scope: CancelScope) -> None:
        """Handle and settle one task; raises nothing but cancellations and the like."""
        del session
        started = anyio.current_time()
        self._busy += 1
        if self._timeout is not None:
            scope.deadline = started + self._timeout
        error: BaseException | None = None
        try:
            result = await self._call(task)
            if result is not None:
                task.set_result(result)
        except BaseException as problem:  # noqa: BLE001 cancellations are raised again below
            error = problem
        self._busy -= 1
        scope.deadline = inf
        settle = task.verdict(self._reason(task, error, scope), self._retry)
        self._unsettled += 1
        seconds = anyio.current_time() - started
        task.settle(settle, lambda accepted: self._on_settled(task, settle, seconds, accepted=accepted))
        if error is not None and not isinstance(error, Exception):
            raise error

    def _call(self, task: Task) -> Awaitable[Any]:
        if self._threads is not None:
            return self._threads.run(self._handler, task)
        return self._handler(task)

    def _reason(self, task: Task, error: BaseException | None, scope: CancelScope) -> BaseException | None:
        cancelled = error is not None and not isinstance(error, Exception)
        if cancelled and scope.cancel_called and not task.cancelled and task.lost is None:
            return TimeoutError(f"not done within {self._timeout:g} s")
        return error

    def _on_settled(self, task: Task, settle: Settle, seconds: float, *, accepted: bool) -> None:
        self._unsettled -= 1
        event = _EVENTS[settle.verdict] if accepted else "task.lost"
        self._counts[event] += 1
        store = self._queue.store
        if store.observer is not None:
            store.notice(event, queue=self._queue.key, id=task.id, attempt=task.attempt, seconds=seconds)
        if not self._unsettled and len(self._settled):
            for waiter in self._settled:
                self._settled.grant(waiter, None)


def is_async(function: object) -> bool:
    """Whether calling it gives an awaitable, as far as its definition tells."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # pyright: ignore[reportUnknownArgumentType]
    )
