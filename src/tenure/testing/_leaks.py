"""The check that a block leaves no task, thread, file, socket or slot behind."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.lowlevel

from tenure.arguments import Seconds, seconds_of

from ._gauges import checked, gauges, risen
from ._sockets import socket_text

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import FrameType, TracebackType

# Where a cached worker thread waits for its next job: the innermost calls, as file and function.
IDLE = (
    (("anyio/_backends/_asyncio.py", "run"), ("queue.py", "get"), ("threading.py", "wait")),
    (("anyio/_backends/_asyncio.py", "run"), ("queue.py", "get")),
    (("concurrent/futures/thread.py", "_worker"),),
    (("trio/_core/_thread_cache.py", "_work"),),
)


class LeakError(AssertionError):
    """An object outlived the block that it was made in; `leaks` has one line for each."""

    def __init__(self, leaks: Collection[str]) -> None:
        super().__init__("\n".join(["left behind:", *(f"  {leak}" for leak in leaks)]))
        self.leaks: tuple[str, ...] = tuple(leaks)


class LeakCheck:
    """The context manager that `assert_no_leaks()` returns, for `with` and `async with`.

    Thread safety: for the thread that entered it.
    """

    def __init__(
        self, things: Collection[Any], *, tasks: bool, threads: bool, files: bool, grace: float
    ) -> None:
        self._things = things
        self._gauges: list[dict[str, float]] = []
        self._kinds = {"task": tasks, "thread": threads, "file": files}
        self._grace = grace
        self._before: dict[tuple[str, object], str] = {}

    def __enter__(self) -> Self:
        self._before = self._present()
        self._gauges = [gauges(thing) for thing in self._things]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            until = time.monotonic() + self._grace
            while (left := self._left()) and time.monotonic() < until:
                time.sleep(0.002)
            self._refuse(left)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give everything that is ending the time to end, then compare.

        Cancellation: shielded, for `grace` real seconds at most.
        """
        if error is None:
            until = time.monotonic() + self._grace
            left = self._left()
            with anyio.CancelScope(shield=True):
                while left and time.monotonic() < until:
                    await anyio.lowlevel.checkpoint()
                    if any(kind in ("thread", "file") for kind, _ in left):
                        # Only real time ends a thread, and virtual time must not pass.
                        time.sleep(0.002)
                    left = self._left()
            self._refuse(left)

    def _present(self) -> dict[tuple[str, object], str]:
        present: dict[tuple[str, object], str] = {}
        if self._kinds["task"]:
            present.update(_tasks())
        if self._kinds["thread"]:
            present.update(_threads())
        if self._kinds["file"]:
            present.update(_files())
        return present

    def _left(self) -> dict[tuple[str, object], str]:
        left = {key: text for key, text in self._present().items() if key not in self._before}
        for place, (thing, before) in enumerate(zip(self._things, self._gauges, strict=True)):
            for gauge in risen(before, gauges(thing)):
                left["slot", (place, gauge)] = f"{_named(thing)}: {gauge}"
        return left

    @staticmethod
    def _refuse(left: dict[tuple[str, object], str]) -> None:
        if left:
            raise LeakError(sorted(_as_socket(key) or text for key, text in left.items()))


def assert_no_leaks(
    *things: object, tasks: bool = True, threads: bool = True, files: bool = True, grace: Seconds = 1.0
) -> LeakCheck:
    """A block, `with` or `async with`, that must leave no task, thread, file or socket behind, and no slot of `things`.

    What was there before does not count, nor do the idle worker threads of anyio, trio and asyncio. Tasks are those of
    the running event loop. Files and sockets are compared where the system lists them (`/proc/self/fd`). Of each of
    `things` (objects with a `statistics()` that is not awaited) no more may be in use, held, open or waited for than
    before. What is about to end has `grace` real seconds for it; `async with` lets tasks run meanwhile.

    Raises `LeakError` with one line for each thing left, unless the block raised an error itself; `TypeError` for one
    of `things` that does not report what is in use, and `ValueError` for a bad `grace`.

    The first uvloop of a process opens a pipe for good: make and close one before, if you test on uvloop.
    """
    grace = seconds_of(grace)
    if not grace >= 0:
        raise ValueError(f"grace: seconds, zero or more, not {grace!r}")
    checked(things)
    return LeakCheck(things, tasks=tasks, threads=threads, files=files, grace=grace)


def _named(thing: object) -> str:
    text = repr(thing)
    return text if len(text) <= 100 else f"<{type(thing).__name__} at {id(thing):#x}>"


def _tasks() -> dict[tuple[str, object], str]:
    try:
        running = anyio.get_running_tasks()
    except RuntimeError:
        return {}
    return {
        ("task", (task.id, task.name)): f"task {task.name!r}"
        for task in running
        # anyio's pytest plugin makes a task for each step of a test.
        if "TestRunner" not in getattr(task.coro, "__qualname__", "")
    }


def _threads() -> dict[tuple[str, object], str]:
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    return {
        ("thread", thread): f"thread {thread.name!r}"
        for thread in threading.enumerate()
        if not is_idle(frames.get(thread.ident or 0))
    }


def is_idle(frame: FrameType | None) -> bool:
    calls: list[tuple[str, str]] = []
    while frame is not None and len(calls) < max(map(len, IDLE)):
        calls.insert(0, (frame.f_code.co_filename.replace(os.sep, "/"), frame.f_code.co_name))
        frame = frame.f_back
    return any(
        len(calls) >= len(idle)
        and all(
            file.endswith(where) and function == name
            for (file, function), (where, name) in zip(calls[-len(idle) :], idle, strict=True)
        )
        for idle in IDLE
    )


def _files() -> dict[tuple[str, object], str]:
    # Twice in each test of a suite: `Path` takes four times as long.
    try:
        names = os.listdir("/proc/self/fd")  # noqa: PTH208
    except OSError:
        return {}
    files: dict[tuple[str, object], str] = {}
    for name in names:
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the listing's own
        files["file", (int(name), target)] = f"file {name}: {target}"
    return files


def _as_socket(key: tuple[str, Any]) -> str | None:
    kind, what = key
    if kind == "file" and what[1].startswith("socket:") and (text := socket_text(what[0])):
        return f"socket {what[0]}: {text}"
    return None
