from __future__ import annotations

from contextvars import copy_context
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ._park import NOTHING, stepped, this_task_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

A = TypeVar("A")
T = TypeVar("T")


def apart(function: Callable[[A], Awaitable[T]]) -> Callable[[A], Awaitable[T]]:
    """The function, called each time in a copy of the running task's context as it is now.

    Objects in variables are shared, but for the context of `decimal`, which everybody changes in place.
    """
    this_task_end()  # else each copy would have to make its own
    here = copy_context()
    copied = here.copy
    decimal = next((each for each in here if each.name == "decimal_context"), None)

    @coroutine
    def call(argument: A) -> Generator[Any, Any, T]:
        context = copied()
        if decimal is not None:
            context.run(decimal.set, context[decimal].copy())
        results: list[T] = []
        work: Any = _keep(results, function, argument)
        # most often there is one step, and `next` spares the exception that would be its end
        awaited = context.run(next, work, NOTHING)
        if awaited is not NOTHING:
            rest: Any = stepped(context, work, awaited)
            yield from rest
        return results[0]

    return call


@coroutine
def _keep(results: list[Any], function: Callable[[Any], Any], argument: Any) -> Generator[Any, Any, None]:
    work: Any = function(argument)
    if type(work) is not CoroutineType:
        work = _awaited(work)
    results.append((yield from work))  # pyright: ignore[reportGeneralTypeIssues] here a generator is a coroutine


async def _awaited(work: Any) -> Any:
    return await work
