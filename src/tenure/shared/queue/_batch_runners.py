# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from anyio import CancelScope

import tenure.engine as e
from tenure.handlers import is_closing, split_failure
from tenure.store import Session
from tenure.waiting import now

from ._batch import Batch
from ._queue import WorkQueue
from ._retry import Retry, out_of_time
from ._runners import Handle, Runners
from ._takes import Dismissed
from ._task import Task


class BatchRunners(Runners):
    def __init__(
        self,
        queue: WorkQueue,
        handlers: Sequence[Handle],
        *,
        batch: int,
        linger: float,
        timeout: float | None = None,
        retry: Retry | None = None,
        prefetch: int | None = 0,
        pause: Callable[[int], Awaitable[object] | None] | None = None,
        on_settled: Callable[[Task, e.Settle, str | None], object] | None = None,
        prepare: Callable[[int], Awaitable[object]] | None = None,
        name: str = "the handler",
    ) -> None:
        super().__init__(
            *(queue, handlers),
            timeout=timeout,
            retry=retry,
            prefetch=prefetch,
            pause=pause,
            on_settled=on_settled,
            prepare=prepare,
            name=name,
        )
        self._handlers = [partial(self._handle, handle) for handle in handlers]
        self._batch = batch
        self._linger = linger

    async def _take_tasks(self, number: int, handle: Handle) -> None:
        takers, pause = self._queue._takers, self._pause
        with CancelScope() as scope:
            while not (self.draining or scope.cancel_called):
                if pause is not None and (first := pause(number)) is not None:
                    await self._wait_for(first, scope)
                    continue
                try:
                    deliveries = await takers.take_many(self, self._batch, self._linger)
                except Dismissed:
                    continue
                await self._work_on(number, deliveries, handle, scope)

    async def _work_on(
        self, number: int, deliveries: Sequence[tuple[Session, e.Taken]], handle: Handle, scope: CancelScope
    ) -> None:
        batch = Batch[Task[Any]](scope)
        batch.tasks = [Task(self._source, session, taken, batch) for session, taken in deliveries]
        self.busy += 1
        begun = now()
        failure = interruption = None
        try:
            if self._prepare is not None:
                await self._prepare(number)
                begun = now()
            # as long as a task has time, the handler works on it
            scope.deadline = max(self._end_of(task, begun) for task in batch.tasks)
            # some may have been cancelled while others were awaited
            if tasks := batch.left():
                await handle(tasks)
        except BaseException as error:
            if is_closing(error):  # perhaps the loop has ended
                raise
            failure, interruption = split_failure(error)
        self.busy -= 1
        scope.deadline = inf
        try:
            ended = now()
            for task in batch.tasks:
                own = batch.failures.get(task.token, failure)
                if own is None and self._is_out_of_time(task, ended - begun, interruption):
                    own = TimeoutError(out_of_time(self._timeout_of(task) or 0.0))
                    own.__cause__ = interruption  # its traceback says where the handler was
                task._settle(self._verdict_on(task, own, interruption), self._settled, own)
            if interruption is not None:
                raise interruption
        finally:
            batch.failures.clear()
            del failure, interruption  # their tracebacks refer to this frame

    def _end_of(self, task: Task[Any], begun: float) -> float:
        timeout = self._timeout_of(task)
        ends = inf if timeout is None else begun + timeout
        return ends if task.deadline is None else min(ends, task.deadline)

    def _is_out_of_time(self, task: Task[Any], seconds: float, interruption: BaseException | None) -> bool:
        timeout = task.timeout if interruption is None else self._timeout_of(task)
        if timeout is None or seconds < timeout:
            return False
        return task.lost is None and not (task.cancelled or task._late) and task._granted_as is not None

    async def _handle(self, handle: Handle, tasks: list[Task[Any]]) -> None:
        if self._queue._takers.store.reporter.tracing is None:
            _check_result(await handle(tasks))
            return
        traced = tasks.copy()  # the handler may change its list
        for task in traced:
            task._begin_trying()
        try:
            _check_result(await handle(tasks))
        except BaseException as error:
            if is_closing(error):  # in a context of its own
                for task in traced:
                    task._abandon_trying(error)
                traced = []
            raise
        finally:
            # each made its span the current one, in place of the span before
            for task in reversed(traced):
                task._leave_trying()

    def _verdict_on(
        self, task: Task[Any], failure: BaseException | None, interruption: BaseException | None
    ) -> e.Settle:
        # its handler was not interrupted for it; but what a transaction has completed is done
        if (task.cancelled or task._late) and task._granted_as is not None:
            return task._interrupted()
        return self._verdict(task, failure, interruption)


def _check_result(result: object) -> None:
    if result is not None:
        raise TypeError(
            f"a handler of batches must return None, not {type(result).__name__}: "
            "the results of its tasks are what task.set_result sets"
        )
