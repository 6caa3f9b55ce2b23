"""Calling the handler for a task: in a thread if it is sync, with a time limit."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from typing import Any, cast

import anyio
from anyio import CancelScope

from tenure.handlers import in_thread, split_failure
from tenure.local import Threads
from tenure.shared import Task

from ._crew import NotStarted
from ._tally import RunTotals


class Calling:
    """Calls `function` for a task, and notes in the tally how long tries took.

    A try that takes longer than `timeout` seconds fails; the thread of a sync one is abandoned. A handler that fails
    because the reader of standard output has gone is not at fault: its task is given back, and `on_closed_output`
    called.
    """

    def __init__(
        self,
        function: Callable[[Task], Any],
        tally: RunTotals,
        *,
        timeout: float | None,
        on_closed_output: Callable[[], object],
    ) -> None:
        self._function = function
        self._tally = tally
        self._timeout = timeout
        self._on_closed_output = on_closed_output

    async def call(self, task: Task, threads: Threads | None) -> Any:
        """The handler's result for the task. Raises what the handler raises, and `TimeoutError`.

        Cancellation: the handler is cancelled, or its thread abandoned.
        """
        began = anyio.current_time()
        try:
            result = await self._call(task, threads)
        except BaseException as problem:
            failure, _ = split_failure(problem)
            if _is_broken_pipe(failure) and output_is_closed():
                self._on_closed_output()
                raise NotStarted from None
            if failure is not None:
                self._tally.times.record(anyio.current_time() - began)
            raise
        self._tally.times.record(anyio.current_time() - began)
        return result

    async def _call(self, task: Task, threads: Threads | None) -> Any:
        if threads is not None:
            return await in_thread(threads, self._function, task, timeout=self._timeout)
        if self._timeout is None:
            return await self._function(task)
        with CancelScope(deadline=anyio.current_time() + self._timeout):
            return await self._function(task)
        raise TimeoutError(f"not done within {self._timeout:g} s")


def _is_broken_pipe(failure: BaseException | None) -> bool:
    if isinstance(failure, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", failure).subgroup(BrokenPipeError) is not None
    return isinstance(failure, BrokenPipeError)


def output_is_closed() -> bool:
    try:
        poll = select.poll()
        poll.register(sys.__stdout__.fileno(), 0)  # pyright: ignore[reportOptionalMemberAccess] an AttributeError is caught
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # there is no poll, or no such file
        return False
