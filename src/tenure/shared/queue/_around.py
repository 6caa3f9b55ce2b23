"""The managers around a handler: entered for each task in their order, and left in the opposite order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import anyio
import anyio.lowlevel
from anyio import CancelScope

from tenure.errors import CircuitOpen, OutcomeUnknown, StoreClosed
from tenure.handlers import NotBegun, check_signature, is_async
from tenure.waiting import now

from ._retry import RetryLater, out_of_time
from ._task import Task

Around = Callable[[Task[Any]], AbstractAsyncContextManager[Any]]

SurroundedHandle = Callable[[Task[Any], Sequence[Any]], Awaitable[Any]]

_SHORTEST, _LONGEST = 0.1, 60.0
"""Seconds for which a task rests that a circuit breaker has refused."""


def check_around(around: object) -> tuple[Around, ...]:
    if not isinstance(around, list | tuple):
        raise TypeError(f"around must be a list of functions of a task, not {around!r}")
    functions = cast("Sequence[Any]", around)
    for number, function in enumerate(functions):
        what = f"around[{number}]"
        if not callable(function) or hasattr(function, "__aenter__"):
            raise TypeError(
                f"{what} must be a function of a task, as `lambda task: manager`, not {function!r}"
            )
        if is_async(function):
            raise TypeError(
                f"{what} must return an async context manager, and not be a coroutine function: {function!r}"
            )
        check_signature(what, function, "task")
    return tuple(functions)


class Surroundings:
    """The managers around the handlers of a worker. With `whole`, `timeout` limits entering too."""

    def __init__(self, around: Sequence[Around], timeout: float | None, *, whole: bool = True) -> None:
        self.draining: bool = False
        self._around = around
        self._timeout = timeout
        self._whole = whole
        self._entering: set[CancelScope] = set()

    def drain(self) -> None:
        """Give back the tasks whose handlers have not begun. Synchronous."""
        self.draining = True
        for scope in self._entering:
            scope.cancel("the worker is drained")

    async def handle(self, handle: SurroundedHandle, task: Task[Any]) -> Any:
        """Enter the managers, call `handle` with their values, and leave the managers.

        Raises `NotBegun` if it is not known whether a manager was entered, or the worker is drained before;
        `RetryLater` for a task that a circuit breaker refuses.
        """
        with CancelScope() as scope:
            self._entering.add(scope)  # until the handler begins
            try:
                if self.draining:
                    scope.cancel("the worker is drained")
                timeout = self._timeout if task.timeout is None else task.timeout
                ends = None if timeout is None or not self._whole else now() + timeout
                return await self._enter(handle, task, [], scope, timeout, ends)
            except (OutcomeUnknown, StoreClosed):
                if scope not in self._entering:
                    raise
            except CircuitOpen as refusal:
                if scope not in self._entering:
                    raise
                seconds = min(max(_SHORTEST, refusal.retry_after), _LONGEST)
                raise RetryLater(seconds, str(refusal), counts=False) from None
            finally:
                self._entering.discard(scope)
        raise NotBegun("the worker was drained, or nobody knows whether a manager was entered")

    async def _enter(
        self,
        handle: SurroundedHandle,
        task: Task[Any],
        values: list[Any],
        scope: CancelScope,
        timeout: float | None,
        ends: float | None,
    ) -> Any:
        if (number := len(values)) < len(self._around):
            async with _manager(number, self._around[number], task) as value:
                values.append(value)
                return await self._enter(handle, task, values, scope, timeout, ends)
            return None  # it has suppressed what the handler has raised
        if scope.cancel_called:  # in the very step that entered the last manager
            await anyio.lowlevel.checkpoint_if_cancelled()
        self._entering.discard(scope)
        if timeout is None:
            return await handle(task, values)
        # the managers see the timeout as an exception, and have time to leave
        task._limit_to_deadline()  # pyright: ignore[reportPrivateUsage]
        return await _in_time(timeout, timeout if ends is None else ends - now(), handle, task, values)


def _manager(number: int, function: Around, task: Task[Any]) -> AbstractAsyncContextManager[Any]:
    manager = function(task)
    if not hasattr(type(manager), "__aenter__"):
        raise TypeError(f"around[{number}] must return an async context manager, not {manager!r}")
    return manager


async def _in_time(
    timeout: float, left: float, handle: SurroundedHandle, task: Task[Any], values: list[Any]
) -> Any:
    where = None
    try:
        with anyio.move_on_after(left):
            try:
                return await handle(task, values)
            except anyio.get_cancelled_exc_class() as cancelled:
                where = cancelled
                raise
        raise TimeoutError(out_of_time(timeout)) from where
    finally:
        del where  # its traceback refers to this frame
