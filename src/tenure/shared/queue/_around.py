"""The managers around a handler: entered for each task in their order, and left in the opposite order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, cast

import anyio

from tenure.errors import CircuitOpen, OutcomeUnknown, StoreClosed
from tenure.handlers import NotBegun, check_signature, is_async
from tenure.waiting import now

from ._retry import RetryLater
from ._task import Task

Around = Callable[[Task[Any]], AbstractAsyncContextManager[Any]]
"""A function of a task that returns what is around its handler."""

SurroundedHandle = Callable[[Task[Any], Sequence[Any]], Awaitable[Any]]
"""A handler of a task and of the values of its managers."""

_SHORTEST, _LONGEST = 0.1, 60.0
"""Seconds for which a task rests that a circuit breaker has refused."""


def check_around(around: object) -> tuple[Around, ...]:
    """The functions. Raises `TypeError` for other objects, and for a coroutine function, which returns no manager."""
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


def surrounded(around: Sequence[Around], handle: SurroundedHandle, timeout: float | None) -> Any:
    """A handler of a task: enters what is around, calls `handle` with the values, and leaves what is around.

    `timeout` limits the whole, in seconds, unless the task has a timeout of its own.
    """
    return partial(_handle, around, handle, timeout)


async def _handle(
    around: Sequence[Around], handle: SurroundedHandle, timeout: float | None, task: Task[Any]
) -> Any:
    timeout = timeout if task.timeout is None else task.timeout
    ends = None if timeout is None else now() + timeout
    values: list[Any] = []
    try:
        async with AsyncExitStack() as stack:
            for number, function in enumerate(around):
                values.append(await stack.enter_async_context(_manager(number, function, task)))
            if timeout is None or ends is None:
                return await handle(task, values)
            # what is around sees the timeout as an exception, and has time to leave
            task.limit_to_deadline()
            return await _in_time(timeout, ends - now(), handle, task, values)
    except (OutcomeUnknown, StoreClosed):
        if len(values) == len(around):
            raise
        raise NotBegun("the store closed, or an outcome is unknown, before the handler began") from None
    except CircuitOpen as refusal:
        if len(values) == len(around):
            raise
        raise RetryLater(min(max(_SHORTEST, refusal.retry_after), _LONGEST), str(refusal)) from None


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
        raise TimeoutError(f"not done within {timeout:g} s") from where
    finally:
        del where  # its traceback refers to this frame
