"""A run of a scenario on one loop under one director."""

from __future__ import annotations

import asyncio
import random
import sys
import warnings
from contextlib import contextmanager, nullcontext
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.lowlevel

from tenure.lazy import extra
from tenure.upkeep import leaves
from tenure.waiting import this_task

from ._asyncio_time import AsyncioTime
from ._cancellable import Cancellable
from ._director import MAX_TURNS, Director, directing
from ._trio_time import TrioTime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

By = bool | Literal["scope", "native"]

DEADLOCK_TIMEOUT = 5.0
BACKENDS = ("asyncio", "trio")
WITHOUT_TRIO = "trio is not installed, so asyncio alone was explored: pip install 'tenure[trio]'"
ASYNCIOS_OWN = "the scenario uses asyncio itself, so asyncio alone was explored"
_OTHER = {"asyncio": "trio", "trio": "asyncio"}
_WORDS = ("unrecognized yield message", "no running event loop")
"""The words of errors that have no frame of asyncio: from the await of a future, and from a function in C."""


def checked_backends(backends: Sequence[str] | None, cancel: By = True) -> tuple[str, ...]:
    """The loops to run on; by default those that are installed and can cancel in this way.

    Raises `ValueError` unless there is virtual time on them, `ModuleNotFoundError` for trio where it is missing,
    `RuntimeError` inside of a loop.
    """
    try:
        anyio.get_current_task()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("an exploration runs loops of its own: call it from a sync function")
    if cancel not in {True, False, "scope", "native"}:
        raise ValueError(f"cancel: True, False, 'scope' or 'native', not {cancel!r}")
    if backends is None:
        if cancel == "native":
            return ("asyncio",)
        try:
            extra("trio", "trio")
        except ModuleNotFoundError:
            return ("asyncio",)
        return BACKENDS
    if "uvloop" in backends:
        raise ValueError(
            f"backends: uvloop keeps its own time and order, which cannot be replaced; use {BACKENDS}"
        )
    if isinstance(backends, str) or not backends or any(backend not in BACKENDS for backend in backends):
        raise ValueError(f"backends: one or both of {BACKENDS}, not {backends!r}")
    if "trio" in backends:
        extra("trio", "trio")
        if cancel == "native":
            raise ValueError("cancel: trio has scopes alone; with 'native' use backends=('asyncio',)")
    return tuple(backends)


def why_alone(backends: Sequence[str] | None, loops: Sequence[str], cancel: By) -> str:
    return WITHOUT_TRIO if backends is None and "trio" not in loops and cancel != "native" else ""


def is_asyncios_own(backends: Sequence[str] | None, backend: str, error: BaseException) -> bool:
    """True if the scenario failed on trio since it uses asyncio itself, and nobody asked for trio."""
    return backends is None and backend == "trio" and _uses("asyncio", error)


@contextmanager
def without_asyncio(backend: str) -> Generator[None]:
    """On trio, the parts of asyncio find no loop, make none, and leave their coroutines without a warning."""
    if backend == "asyncio":
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        if sys.version_info >= (3, 14):
            yield
            return
        # Earlier ones make a loop for whoever asks before any was set, and nobody would close it.
        policy: Any = getattr(asyncio, "get_event_loop_policy")()  # noqa: B009 # deprecated in later ones
        current = getattr(getattr(policy, "_local", None), "_loop", None)
        asyncio.set_event_loop(None)
        try:
            yield
        finally:
            asyncio.set_event_loop(current)


def hint(error: BaseException, backend: str) -> str:
    other = _OTHER[backend]
    if not _uses(other, error):
        return ""
    return f"the scenario uses {other} itself, not anyio: explore it with backends=({other!r},)"


def _uses(loop: str, error: BaseException) -> bool:
    return any(_is_of(loop, leaf) for leaf in leaves(error))


def _is_of(loop: str, error: BaseException) -> bool:
    frames = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    if any(name.partition(".")[0] == loop for name in frames):
        return True
    return loop == "asyncio" and any(words in str(error) for words in _WORDS)


def run_once(
    scenario: Callable[[], Awaitable[object]], backend: str, director: Director
) -> BaseException | None:
    time = AsyncioTime(0.0, DEADLOCK_TIMEOUT) if backend == "asyncio" else TrioTime(0.0, DEADLOCK_TIMEOUT)
    state = random.getstate()
    random.seed(0)

    async def main() -> None:
        time.director = director
        try:
            await _watched(scenario, director)
        finally:
            time.director = None

    try:
        watching = nullcontext() if director.trace is None else director.trace.watching()
        with directing(director), time.ordered(), watching:
            anyio.run(main, backend=backend, backend_options=time.options())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 # whatever it is, it is what was looked for
        return director.broken or time.deadlock or _from_scenario(error)
    finally:
        random.setstate(state)
    return director.broken or time.deadlock


def _from_scenario(error: BaseException) -> BaseException:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is _watched.__code__:
            return error.with_traceback(trace.tb_next or trace)
        trace = trace.tb_next
    return error


async def _watched(scenario: Callable[[], Awaitable[object]], director: Director) -> None:
    unhandled: list[dict[str, Any]] = []
    on_asyncio = isinstance(this_task(), asyncio.Task)
    if on_asyncio:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    with Cancellable(None) as director.whole:
        director.begin(director.whole.host)
        await scenario()
    # What comes now is ours, and not cancelled.
    director.whole = None
    if director.endless:
        raise AssertionError(
            f"the scenario does not end: it was still running after {MAX_TURNS} turns of the loop"
        )
    if on_asyncio:
        await _nothing_left()
    for context in unhandled:
        raise context.get("exception") or AssertionError(context["message"])


async def _nothing_left() -> None:
    for _ in range(10):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        # What is just ending may end.
        await anyio.lowlevel.checkpoint()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        raise AssertionError(f"left behind: {', '.join(sorted(task.get_name() for task in left))}")
