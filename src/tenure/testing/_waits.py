"""The waits of suspended tasks, and the tasks that could end them: read from their frames."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio

from tenure.waiting import TaskEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import FrameType

LOOPS = ("anyio", "asyncio", "trio")
# The classes of anyio, asyncio and trio whose methods wait for the object itself.
KINDS = {
    *(
        "Barrier",
        "BoundedSemaphore",
        "CapacityLimiter",
        "Condition",
        "Event",
        "Future",
        "Lock",
        "Nursery",
        "Queue",
    ),
    *("MemoryObjectReceiveStream", "MemoryObjectSendStream", "MemoryReceiveChannel", "MemorySendChannel"),
    *("Semaphore", "StrictFIFOLock", "TaskGroup", "TaskHandle"),
}
# How many holders a line names.
MOST = 6
OURS = tuple(f"{Path(__file__).parents[1] / room}{os.sep}" for room in ("local", "waiting"))


@dataclass(frozen=True)
class Wait:
    """The wait of one task when nothing could go on.

    `task` is its name. `what` says what it waited for and who held that, or is empty where that is not known. `on` are
    the waiting tasks that could have ended the wait: the holders of a lock, the tasks of a group.
    """

    task: str
    what: str
    on: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.task} waits for {self.what}" if self.what else f"{self.task} waits"


def waits(tasks: Sequence[tuple[str, Any]]) -> tuple[Wait, ...]:
    looked_at = _Tasks(tasks)
    return tuple(looked_at.wait(name, coroutine) for name, coroutine in tasks)


def suspended(awaitable: Any) -> tuple[list[FrameType], asyncio.Task[Any] | None]:
    """The frames in which `awaitable` is suspended, outermost first, and the task that the innermost awaits, if any."""
    frames: list[FrameType] = []
    while awaitable is not None:
        for prefix, following in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            if hasattr(awaitable, following):
                if (frame := getattr(awaitable, f"{prefix}_frame")) is not None:
                    frames.append(frame)
                awaitable = getattr(awaitable, following)
                break
        else:
            # It wraps an async generator, a coroutine or a future, and only the garbage collector knows which.
            inner: list[Any] = gc.get_referents(awaitable)
            if type(awaitable).__name__ == "FutureIter":
                # from Python 3.12 on, its class is among them too
                tasks = (cast("asyncio.Task[Any]", each) for each in inner if isinstance(each, asyncio.Task))
                return frames, next(tasks, None)
            wrapped = (each for frame in ("ag_frame", "cr_frame") for each in inner if hasattr(each, frame))
            awaitable = next(wrapped, None)
    return frames, None


def library_files() -> tuple[str, ...]:
    files = [module.__file__ for name in LOOPS if (module := sys.modules.get(name))]
    return contextlib.__file__, *(f"{Path(file).parent}{os.sep}" for file in files if file)


def name_and_coroutine(task: Any) -> tuple[str, Any]:
    """The name and the coroutine of a native task, or of anyio's TaskInfo; None for anything else."""
    if isinstance(task, asyncio.Task):
        asyncios = cast("asyncio.Task[Any]", task)
        name, coroutine = asyncios.get_name(), asyncios.get_coro()
    else:
        name, coroutine = getattr(task, "name", ""), getattr(task, "coro", None)
    if re.fullmatch(r"Task-\d+", name):
        # What asyncio names itself has another number in each run.
        name = getattr(coroutine, "__qualname__", name)
    # A function inside of another is known well enough by its own name.
    return name.rpartition("<locals>.")[2], coroutine


class _Tasks:
    def __init__(self, tasks: Iterable[tuple[str, Any]]) -> None:
        self._names: dict[int, str] = {}
        self._numbers: dict[int, int] = {}
        for name, coroutine in tasks:
            self._names[id(coroutine)] = name
            for frame in suspended(coroutine)[0][:2]:
                if frame.f_code.co_name == "_run_coro" and "self" in frame.f_locals:
                    # By this one a TaskHandle knows the task.
                    self._names[id(frame.f_locals["self"].coro)] = name

    def wait(self, name: str, coroutine: Any) -> Wait:
        frames, task = suspended(coroutine)
        things: list[Any] = [] if task is None else [task]
        folders = (*library_files(), *OURS)
        starts = False
        for frame in reversed(frames):
            method = frame.f_code.co_name
            # `_run_coro` is where a task begins.
            if method == "_run_coro" or not frame.f_code.co_filename.startswith(folders):
                break
            starts = starts or method == "start"
            thing = frame.f_locals.get("handle" if method == "start" else "self")
            if _is_thing(thing):
                things.append(thing)
        if not things:
            return Wait(name, "", ())
        things.reverse()
        # The outermost is what the task asked for; but one of which the holders are known says more.
        held = [(thing, holders) for thing in things if (holders := _holders(thing)) is not None]
        if not held:
            return Wait(name, self._label(things[0]), ())
        thing, holders = held[0]
        holder, on = self._named(holders)
        if _is_group(thing) or isinstance(thing, asyncio.Task | anyio.TaskHandle):
            return Wait(name, f"the {'start' if starts else 'end'} of {holder}", on)
        return Wait(name, f"{self._label(thing)} held by {holder}", on)

    def _named(self, holders: Iterable[Any]) -> tuple[str, tuple[str, ...]]:
        on: set[str] = set()
        gone: set[str] = set()
        others = 0
        for holder in holders:
            name, coroutine = name_and_coroutine(holder)
            if (label := self._names.get(id(coroutine))) is not None:
                on.add(label)
            elif coroutine is None:
                others += 1
            else:
                gone.add(f"{name} (ended)" if coroutine.cr_frame is None else name)
        words = [*sorted(on), *sorted(gone)]
        others += len(words[MOST:])
        shown = [*words[:MOST], *([f"{others} more"] if others else [])] or ["no task"]
        return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1]))), tuple(sorted(on))

    def _label(self, thing: object) -> str:
        number = self._numbers.setdefault(id(thing), len(self._numbers) + 1)
        kind = type(thing)
        if _is_ours(kind) and kind.__repr__ is not object.__repr__:
            return repr(thing).replace(kind.__name__, f"{kind.__name__} #{number}", 1)
        # Some are of another class before the loop runs, and a semaphore has a value.
        name, value = kind.__name__.removesuffix("Adapter"), getattr(thing, "value", None)
        return f"<{name} #{number}>" if value is None else f"<{name} #{number}, value {value}>"


def _is_ours(kind: type[object]) -> bool:
    return kind.__module__.startswith(("tenure.local", "tenure.waiting"))


def _is_thing(thing: object) -> bool:
    for kind in type(thing).__mro__:
        if _is_ours(kind):
            return not kind.__name__.startswith("_")
        if kind.__module__.partition(".")[0] in LOOPS and kind.__name__ in KINDS:
            return True
    return False


def _holders(thing: Any) -> Collection[Any] | None:
    if isinstance(thing, asyncio.Task | anyio.TaskHandle):
        return [thing]
    if _is_group(thing):
        # An anyio task group on trio has none of its own, and a nursery inside.
        return getattr(thing, "child_tasks", getattr(thing, "_tasks", None))
    try:
        statistics = thing.statistics()
    except Exception:  # noqa: BLE001 # there is none, or none now: a report must not fail for that
        return None
    if hasattr(statistics, "owner"):
        return [] if statistics.owner is None else [statistics.owner]
    holders = getattr(statistics, "borrowers", getattr(thing, "_holders", None))
    if not isinstance(holders, Collection):
        return None
    each = cast("Collection[Any]", holders)
    return [holder.task if isinstance(holder, TaskEnd) else holder for holder in each]


def _is_group(thing: object) -> bool:
    return type(thing).__name__ in ("Nursery", "TaskGroup")
