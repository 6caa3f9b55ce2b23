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
from typing import Any, cast

import anyio
import anyio.lowlevel
from anyio import CancelScope

from tenure.engine import Settle, Verdict
from tenure.errors import EngineError, StoreClosed
from tenure.local import Threads
from tenure.local._line import Line
from tenure.local._park import now, this_task
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

    `retried` tries failed and will be repeated, `dead` failed for good, `lost` were settled too late; `abandoned`
    threads of sync handlers still run although their tasks are lost or timed out.
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

    What the handler returns is the result (None: what `task.set_result` has set); an exception fails the try, as
    `retry` (the queue's by default) says; `RetryLater` and `Discard` say it themselves. A try that takes longer than
    `timeout` seconds is cancelled and fails with `TimeoutError`. A sync function runs in a thread, of which there are
    as many as `concurrency`; one that cannot be stopped is abandoned and its outcome refused, and it keeps its thread
    until it ends. If a task's lease is lost, or it is cancelled, its handler is cancelled.

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
        # a thread for each runner, so that one whose thread cannot be stopped takes nothing until that has ended
        self._threads = [] if is_async(handler) else [Threads(1) for _ in range(concurrency)]
        self._resting: set[CancelScope] = set()
        self._problem: Exception | None = None
        self._draining = False
        self._running = False
        self._busy = 0
        self._counts: Counter[str] = Counter()
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
        self._problem = None
        try:
            async with unwrapped_task_group() as group:
                for number in range(self._concurrency):
                    name = f"tenure worker {self._queue.name} {number}"
                    group.start_soon(self._runner, number, group.cancel_scope, name=name)
        finally:
            try:
                with anyio.move_on_after(self._queue.store.settle_timeout, shield=True):
                    await self._queue.takers.quiet()
            finally:
                self._running = False
                for waiter in self._ended:
                    self._ended.grant(waiter, None)
        if self._problem is not None:
            raise self._problem

    async def drain(self) -> None:
        """Take no more tasks, finish those at hand, end `run`; return when that is done and nothing is leased any more.

        Cancellation: the worker goes on draining.
        """
        self._draining = True
        self._queue.takers.dismiss(self)
        for scope in self._resting:
            scope.cancel("the worker is drained")
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
            abandoned=sum(threads.statistics().abandoned for threads in self._threads),
        )

    async def _runner(self, number: int, everybody: CancelScope) -> None:
        handle: Callable[[Task], Awaitable[Any]] = self._handler
        threads = self._threads[number] if self._threads else None
        if threads is not None:
            handle = functools.partial(self._in_thread, threads)
        try:
            while not self._draining:
                with CancelScope() as scope:
                    if threads is not None and threads.statistics().busy:
                        await self._rest(threads, scope)
                    while not (self._draining or scope.cancel_called):
                        session, taken = await self._queue.takers.take(self)
                        await self._work(Task(self._queue, session, taken, scope), handle, scope)
        except Dismissed:
            pass
        except (StoreClosed, EngineError) as problem:
            # it hits all runners alike: one of them tells, the others end
            self._problem = problem
            everybody.cancel()

    async def _rest(self, threads: Threads, scope: CancelScope) -> None:
        """Wait until the abandoned thread has ended."""
        self._resting.add(scope)
        try:
            await threads.run(_nothing)
        finally:
            self._resting.discard(scope)

    async def _in_thread(self, threads: Threads, task: Task) -> Any:
        (outcome,) = await threads.run(_boxed, self._handler, task)
        return await outcome if inspect.isawaitable(outcome) else outcome

    async def _work(self, task: Task, handle: Callable[[Task], Awaitable[Any]], scope: CancelScope) -> None:
        """Handle and settle one task; raises nothing but cancellations and the like."""
        started = now()
        self._busy += 1
        if self._timeout is not None:
            scope.deadline = started + self._timeout
        problem: BaseException | None = None
        try:
            result = await handle(task)
            if result is not None:
                task.set_result(result)
        except BaseException as error:  # noqa: BLE001 cancellations are raised again below
            problem = error
        self._busy -= 1
        if self._timeout is not None:
            scope.deadline = inf
        failure = self._failure(task, problem, scope)
        settle = task.verdict(failure, self._retry)
        seconds = now() - started
        task.settle(settle, lambda refused: self._on_settled(task, settle, seconds, refused))
        if problem is not None and not isinstance(problem, Exception) and not _is_stray(problem):
            raise _cancellation(problem)

    def _failure(self, task: Task, problem: BaseException | None, scope: CancelScope) -> BaseException | None:
        if problem is None or isinstance(problem, Exception):
            return problem
        if scope.cancel_called and not task.cancelled and task.lost is None:
            return TimeoutError(f"not done within {self._timeout:g} s")
        if _is_stray(problem):
            return RuntimeError("the handler ended as cancelled, and nobody cancelled it")
        return problem

    def _on_settled(self, task: Task, settle: Settle, seconds: float, refused: str | None) -> None:
        event = "task.lost" if refused else _EVENTS[settle.verdict]
        self._counts[event] += 1
        store = self._queue.store
        if store.observer is not None:
            store.notice(event, queue=self._queue.key, id=task.id, attempt=task.attempt, seconds=seconds)


def _cancellation(problem: BaseException) -> BaseException:
    """Of a group of cancellations and errors (trio), the cancellations: the errors are the task's, not the worker's."""
    if isinstance(problem, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", problem)
        cancelled, rest = group.split(anyio.get_cancelled_exc_class())
        if cancelled is not None and (rest is None or isinstance(rest, Exception)):
            return cancelled
        return group
    return problem


def _is_stray(problem: BaseException) -> bool:
    """Whether a handler let out an asyncio cancellation of something else: the runner must not end by it."""
    cancelling = getattr(this_task(), "cancelling", None)
    return (
        isinstance(problem, anyio.get_cancelled_exc_class()) and cancelling is not None and not cancelling()
    )


def _boxed(handler: Callable[[Task], Any], task: Task) -> tuple[Any]:
    # a function that gives a coroutine: trio would not let it out of its thread
    return (handler(task),)


def _nothing() -> None:
    pass


def is_async(function: object) -> bool:
    """Whether calling it gives an awaitable, as far as its definition tells."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    call = getattr(type(function), "__call__", None)  # noqa: B004 it is not asked whether it can be called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
