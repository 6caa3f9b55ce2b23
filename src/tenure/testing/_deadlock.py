"""Deadlocks: which task waits for what, and where."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._leaks import is_idle
from ._waits import Wait, library_files, name_and_coroutine, suspended, waits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._director import Director

OWN = Path(__file__).parent


def no_thread_can_help() -> bool:
    # trio and anyio keep their threads for ten seconds. Such a thread leaves its list when it gets a job. It returns to
    # trio's list before it delivers the result, in a deeper call, and to anyio's list with the result.
    active = threading.active_count()
    cache: Any = sys.modules.get("trio._core._thread_cache")
    workers = list(getattr(getattr(cache, "THREAD_CACHE", None), "_idle_workers", ()))
    frames = sys._current_frames() if workers else {}  # pyright: ignore[reportPrivateUsage]
    idle = sum(is_idle(frames.get(worker._thread.ident)) for worker in workers)
    idle += sum(thread in getattr(thread, "idle_workers", ()) for thread in threading.enumerate())
    return active - idle == 1


class DeadlockError(AssertionError):
    """Every task waits, no timer is set, and nothing came from outside while the virtual clock was patient.

    `waits` shows what each task waits for. `circle` has the names of tasks each of which waits for the next, and the
    last for the first; it is empty if none was found. The message has both.
    """

    def __init__(self, message: str, *, waits: Iterable[Wait] = (), circle: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.waits: tuple[Wait, ...] = tuple(waits)
        self.circle: tuple[str, ...] = tuple(circle)


def deadlock(tasks: Iterable[Any], director: Director | None) -> DeadlockError:
    named = _named(tasks, director)
    all_waits = waits(named)
    lines = ["every task waits and no timer is set:"]
    for wait, (_, coroutine) in zip(all_waits, named, strict=True):
        lines.append(f"  {wait}")
        lines += [f"    {frame}" for frame in reversed(_frames(coroutine))]
    by_name = {wait.task: wait for wait in all_waits}
    chain, closed = _chain(by_name)
    if closed or len(chain) > 1:
        names = ", ".join(str(by_name[name]) for name in chain)
        lines.append(f"{'in a circle' if closed else 'one after the other'}: {names}")
    return DeadlockError("\n".join(lines), waits=all_waits, circle=chain if closed else ())


def _named(tasks: Iterable[Any], director: Director | None) -> list[tuple[str, Any]]:
    if director is not None:
        numbers = {director.number(task): name_and_coroutine(task) for task in tasks}
        return [(f"{name.rpartition('.')[2]}#{n}", coro) for n, (name, coro) in sorted(numbers.items())]
    met: Counter[str] = Counter()
    named: list[tuple[str, Any]] = []
    for task in tasks:
        name, coroutine = name_and_coroutine(task)
        met[name] += 1
        named.append((name if met[name] == 1 else f"{name} ({met[name]})", coroutine))
    return named


def _chain(by_name: dict[str, Wait]) -> tuple[list[str], bool]:
    following = {name: wait.on for name, wait in by_name.items()}
    depth: dict[str, int] = {}
    while free := [name for name, on in following.items() if not any(each in following for each in on)]:
        for name in free:
            depth[name] = len(depth)
            del following[name]
    # What is left leads into a circle; otherwise the chain begins with the last to be freed.
    path = list(following or reversed(depth))[:1]
    while path and (on := by_name[path[-1]].on):
        after = (
            next(each for each in on if each in following) if following else max(on, key=depth.__getitem__)
        )
        if after in path:
            return path[path.index(after) :], True
        path.append(after)
    return path, False


def _frames(coroutine: Any) -> list[str]:
    folders = library_files()
    return [
        f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        for frame in suspended(coroutine)[0]
        if not frame.f_code.co_filename.startswith(folders) and Path(frame.f_code.co_filename).parent != OWN
    ]
