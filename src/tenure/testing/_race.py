"""Calls that start together, and the outcome of each."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def race(*calls: Callable[[], Awaitable[T]]) -> list[T | BaseException]:
    """Call async functions without arguments together, and return the outcome of each, in the order of the calls.

    An outcome is the value returned or the exception raised, as from `asyncio.gather(..., return_exceptions=True)`. No
    call begins before all of them are ready to. All are waited for.

    Other `BaseException`s (`KeyboardInterrupt`, `SystemExit`) are not outcomes: they cancel the other calls and are
    raised here, several as a `BaseExceptionGroup`. On asyncio, a call that is cancelled alone has the outcome
    `CancelledError`.

    Raises `TypeError` for what cannot be called; a coroutine that was made already is closed.

    Cancellation: cancels all the calls, waits for them to end, and loses their outcomes.
    """
    _check(calls)
    outcomes: dict[int, T | BaseException] = {}
    fatal: list[BaseException] = []
    gate = anyio.Event()

    async def run(place: int, call: Callable[[], Awaitable[T]]) -> None:
        try:
            # The loop may run a new task at once.
            await gate.wait()
            outcomes[place] = await call()
        except Exception as error:  # noqa: BLE001 this is what was asked for
            outcomes[place] = error
        except anyio.get_cancelled_exc_class() as error:
            if anyio.current_effective_deadline() == -math.inf:
                raise
            outcomes[place] = error
        except BaseException as error:  # noqa: BLE001 raised below: asyncio would end its loop by it
            fatal.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for place, call in enumerate(calls):
            group.start_soon(run, place, call, name=f"race call {place}")
        gate.set()
    if len(fatal) > 1:
        raise BaseExceptionGroup("several calls of a race", fatal)
    if fatal:
        raise fatal[0]
    return [outcomes[place] for place in range(len(calls))]


def _check(calls: tuple[Any, ...]) -> None:
    wrong = [call for call in calls if not callable(call)]
    for call in calls:
        if inspect.iscoroutine(call):
            call.close()
    if wrong:
        hint = ", already called: leave out the brackets" if inspect.iscoroutine(wrong[0]) else ""
        raise TypeError(f"calls: async functions without arguments, not {wrong[0]!r}{hint}")
