"""One run of a scenario on one loop under one director, and how it failed, if it did."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from ._asyncio_time import AsyncioTime
from ._cancellable import Cancellable
from ._director import MAX_TURNS, directing
from ._trio_time import TrioTime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ._cancellable import Cancellable
from ._director import Director

PATIENCE = 5.0
BACKENDS = ("asyncio", "trio")


def checked_backends(backends: Sequence[str]) -> None:
    """Raise `ValueError` unless these are loops on which there is virtual time, `RuntimeError` inside of a loop."""
    try:
        anyio.get_current_task()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("an exploration runs loops of its own: call it from a sync function")
    if isinstance(backends, str) or not backends or any(backend not in BACKENDS for backend in backends):
        raise ValueError(f"backends: one or both of {BACKENDS}, not {backends!r}")


def run_once(
    scenario: Callable[[], Awaitable[object]], backend: str, director: Director
) -> BaseException | None:
    """Run the scenario in virtual time as the director decides; return the error by which it failed."""
    time = AsyncioTime(0.0, PATIENCE) if backend == "asyncio" else TrioTime(0.0, PATIENCE)
    state = random.getstate()
    random.seed(0)

    async def main() -> None:
        time.director = director
        try:
            await _watched(scenario, director)
        finally:
            time.director = None

    try:
        with directing(director), time.ordered():
            anyio.run(main, backend=backend, backend_options=time.options())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 # whatever it is, it is what was looked for
        return time.deadlock or error
    finally:
        random.setstate(state)
    return time.deadlock


async def _watched(scenario: Callable[[], Awaitable[object]], director: Director) -> None:
    """Run the scenario, and fail for what it leaves behind or kept to itself."""
    unhandled: list[dict[str, Any]] = []
    own_task = _asyncio_task()
    if own_task is not None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    with Cancellable(None) as director.whole:
        director.number(director.whole.host)
        await scenario()
    if director.endless:
        raise AssertionError(
            f"the scenario does not end: it was still running after {MAX_TURNS} turns of the loop"
        )
    if own_task is not None:
        await _nothing_left(own_task)
    for context in unhandled:
        raise context.get("exception") or AssertionError(context["message"])


async def _nothing_left(own_task: asyncio.Task[Any]) -> None:
    for _ in range(10):
        left = asyncio.all_tasks() - {own_task}
        if not left:
            return
        # What is just ending may end.
        await anyio.lowlevel.checkpoint()
    left = asyncio.all_tasks() - {own_task}
    if left:
        raise AssertionError(f"left behind: {', '.join(sorted(task.get_name() for task in left))}")


def _asyncio_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
