# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from math import inf
from typing import Any

import anyio
import anyio.lowlevel
from anyio import CancelScope

import tenure.engine as e
from tenure.errors import CapacityMismatch, EngineError, StoreClosed
from tenure.handlers import NotKept, is_closing, split_failure
from tenure.upkeep import unwrapped_task_group
from tenure.waiting import Line, apart, now

from ._family import HandlerScope
from ._queue import WorkQueue
from ._retry import CANNOT_BE_RESULT, Dead, Retry, out_of_time
from ._ring import Crew, at_work
from ._takes import Dismissed
from ._task import Task, event_of

Handle = Callable[[Any], Awaitable[Any]]
"""A handler of a task; in `BatchRunners`, of a list of tasks."""


class Runners:
    """A runner for each of `handlers`; the options are as of `Worker`. Four functions of the caller must not raise:

    - `pause(number)` returns what that runner has to await before it takes a task, until it returns None;
    - `prepare(number)` is awaited before the time of a try begins; its exception fails the try;
    - `judge(task, failure)` returns what counts as the failure of a try; None gives the task back;
    - `on_settled(task, settle, refused)`: `refused` is why the verdict was not accepted, or None.

    A runner keeps one cancel scope over many tasks, since a scope for each task would cost as much as all the rest.
    """

    def __init__(
        self,
        queue: WorkQueue,
        handlers: Sequence[Handle],
        *,
        timeout: float | None = None,
        limits: bool = True,
        retry: Retry | None = None,
        prefetch: int | None = 0,
        pause: Callable[[int], Awaitable[object] | None] | None = None,
        judge: Callable[[Task, BaseException], BaseException | None] | None = None,
        on_settled: Callable[[Task, e.Settle, str | None], object] | None = None,
        prepare: Callable[[int], Awaitable[object]] | None = None,
        name: str = "the handler",
    ) -> None:
        self._name = name
        self.draining: bool = False
        self.running: bool = False
        self.busy: int = 0
        self.counts: Counter[str] = Counter()
        self._queue = queue
        traces = queue._takers.store.reporter.tracing is not None
        self._handlers: Sequence[Handle] = (
            [partial(_traced, handle) for handle in handlers] if traces else handlers
        )
        self._timeout = timeout
        self._limits = limits
        # a task is tried again as its queue says
        self._source = copy(queue)
        self._source.retry = retry or queue.retry
        self._prefetch = prefetch
        self._ahead = False  # tasks are fetched ahead at present
        self._pause = pause
        self._judge = judge
        self._prepare = prepare
        self._on_settled = on_settled
        self._pausing: set[CancelScope] = set()
        self._problem: Exception | None = None
        self._ended: Line[None, None] = Line(owner=f"the worker of {queue.key}")
        self._crew = Crew(queue._takers.store, queue.key, len(handlers), self.counts.total)

    @property
    def stalled(self) -> str | None:
        waits = self._queue._takers.stalled if self.running and not self.draining else None
        return waits or self._crew.stuck

    async def run(self) -> None:
        self.running = True
        self._problem = None
        self._fetch_ahead(True)
        try:
            with self._crew.working():
                async with unwrapped_task_group() as group:
                    for number, handle in enumerate(self._handlers):
                        name = f"tenure worker {self._queue.name} {number}"
                        group.start_soon(self._runner, number, handle, group.cancel_scope, name=name)
        finally:
            self._fetch_ahead(False)
            try:
                with anyio.move_on_after(self._queue.store.settle_timeout, shield=True):
                    await self._queue._takers.until_idle()
            finally:
                self.running = False
                for waiter in self._ended:
                    self._ended.grant(waiter, None)
        if self._problem is not None:
            raise self._problem

    def begin_draining(self) -> None:
        self.draining = True
        self._fetch_ahead(False)
        self.recheck()
        for scope in self._pausing:
            scope.cancel("the worker is drained")

    async def drain(self) -> None:
        self.begin_draining()
        if self.running:
            await self._ended.wait(self._ended.join(None))
        else:
            await anyio.lowlevel.checkpoint()

    def recheck(self) -> None:
        self._queue._takers.dismiss(self)

    def _fetch_ahead(self, ahead: bool) -> None:
        if ahead is not self._ahead:
            self._ahead = ahead
            self._queue._takers.prefetch(self._prefetch, 1 if ahead else -1)

    async def _runner(self, number: int, handle: Handle, everybody: CancelScope) -> None:
        at_work.set(self._crew.runners[number])
        # each try in a copy of the context in which these runners were started
        handle = apart(handle)
        try:
            while not self.draining:
                await self._take_tasks(number, handle)
        except (StoreClosed, EngineError, CapacityMismatch) as problem:
            # it hits all runners alike: one of them reports it, the others end
            self._problem = problem
            everybody.cancel()

    async def _take_tasks(self, number: int, handle: Handle) -> None:
        takers, pause = self._queue._takers, self._pause
        with CancelScope() as scope:
            handler_scope = HandlerScope(scope)
            while not (self.draining or scope.cancel_called):
                if pause is not None and (first := pause(number)) is not None:
                    await self._wait_for(first, scope)
                    continue
                try:
                    session, taken = await takers.take(self)
                except Dismissed:
                    continue
                await self._work(number, Task(self._source, session, taken, handler_scope), handle, scope)

    async def _wait_for(self, first: Awaitable[object], scope: CancelScope) -> None:
        self._pausing.add(scope)
        try:
            await first
        finally:
            self._pausing.discard(scope)

    async def _work(self, number: int, task: Task, handle: Handle, scope: CancelScope) -> None:
        self.busy += 1
        timeout = self._timeout_of(task)
        limited = timeout is not None or task.deadline is not None
        failure = interruption = None
        try:
            if self._prepare is not None:
                scope.deadline = inf if task.deadline is None else task.deadline
                await self._prepare(number)
            if limited:
                ends = inf if timeout is None else now() + timeout
                scope.deadline = ends if task.deadline is None else min(ends, task.deadline)
            result = await handle(task)
            if result is not None:
                failure = self._keep(task, result)
        except BaseException as error:
            if is_closing(error):  # perhaps the loop has ended
                raise
            failure, interruption = split_failure(error)
        self.busy -= 1
        if limited:
            scope.deadline = inf
        try:
            if failure is None and interruption is not None and timeout and _is_timed_out(task, scope):
                failure = TimeoutError(out_of_time(timeout))
                failure.__cause__ = interruption  # its traceback says where the handler was
            settle = self._verdict(task, failure, interruption)
            task._settle(settle, self._settled, failure)
            if interruption is not None:
                raise interruption
        finally:
            del failure, interruption  # their tracebacks refer to this frame

    def _keep(self, task: Task, result: Any) -> Dead | None:
        """Set the result. A result that cannot be encoded would be refused again after each further try."""
        try:
            task.set_result(result)
        except (TypeError, ValueError) as problem:
            what = f"{self._name} returned {type(result).__name__}, {CANNOT_BE_RESULT}"
            return Dead(f"{what}: {problem.__cause__ or problem}")
        return None

    def _timeout_of(self, task: Task) -> float | None:
        return task.timeout if task.timeout is not None and self._limits else self._timeout

    def _verdict(
        self, task: Task, failure: BaseException | None, interruption: BaseException | None
    ) -> e.Settle:
        if failure is None and interruption is None:
            return task._verdict(None)
        if isinstance(failure, NotKept):
            failure = Dead(f"{self._name} returned {failure.kind}, {CANNOT_BE_RESULT}: {failure.reason}")
        if failure is not None and self._judge is not None:
            failure = self._judge(task, failure)
        return task._interrupted() if failure is None else task._verdict(failure)

    def _settled(self, task: Task, settle: e.Settle, refused: str | None) -> None:
        if refused is not None:
            task._report_loss(refused)
        self.counts[event_of(task, settle, refused)] += 1
        if self._on_settled is not None:
            self._on_settled(task, settle, refused)


def _is_timed_out(task: Task, scope: CancelScope) -> bool:
    if not scope.cancel_called or task.lost is not None:
        return False
    return not (task.cancelled or task._suspended or task._late)


async def _traced(handle: Handle, task: Task) -> Any:
    task._begin_trying()
    try:
        result = await handle(task)
    except BaseException as error:
        if is_closing(error):  # in a context of its own
            task._abandon_trying(error)
        else:
            task._leave_trying()
        raise
    task._leave_trying()
    return result
