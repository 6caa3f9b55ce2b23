"""A watch over the event loop, by a thread that looks at the loop ten times within the threshold.

If it finds the same step of the same task for as long as the threshold, it takes the stack; the next step ends the
block. trio reports each step. asyncio does not: there a timer counts the turns of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import CO_COROUTINE, CO_ITERABLE_COROUTINE
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tenure.arguments import AsyncBlock, Seconds, seconds_of
from tenure.observe import Reporter, log
from tenure.waiting import checkpoint, this_task

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_NOT_THEIRS = ("<", *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_LOOKS = 10
_BEATS = 4


@dataclass(frozen=True, slots=True)
class Blocked:
    """A block of the loop that is over. `str` of it describes it in a few lines."""

    task: str
    """The name of the task."""
    line: str
    """The place of the block: ``file:line, in function: code``. If possible, the innermost line outside of the standard
    library and of installed packages.
    """
    seconds: float
    """The duration in seconds, measured from another thread: up to a fifth of the threshold too much."""
    stack: str
    """The task's whole stack, the innermost line last."""

    def __str__(self) -> str:
        return f"task {self.task!r} blocked the loop for {self.seconds:.3f} s at {self.line}\n{self.stack}"


@dataclass(frozen=True, slots=True)
class BlockingWatchStatistics:
    """The blocks that a `BlockingWatch` has seen so far."""

    blocks: int
    """The number of blocks."""
    seconds: float
    """The duration of all blocks together."""
    longest: float
    """The duration of the longest block."""


class _Step(NamedTuple):
    # the same number and the same task: the same step
    number: int
    task: Any


class BlockingWatch(AsyncBlock):
    """Reports each step of a task that keeps the loop from turning for longer than `threshold` seconds.

    ``async with BlockingWatch():`` watches the loop that it is entered on, until the block is left, with a thread of
    its own. `on_block` is called in that thread with a `Blocked` when the block is over; its errors are logged. None:
    a warning is logged, to "tenure".

    It cannot see a block that never ends, callbacks of the loop that are no tasks, and C code that does not let
    other threads run (unless the task goes on for a moment after that).

    Cancellation: entering is a checkpoint, before it watches anything; leaving is none.

    Thread safety: entered and left on the thread of the loop; `statistics` may be called from any.
    """

    def __init__(self, threshold: Seconds = 0.1, on_block: Callable[[Blocked], object] | None = None) -> None:
        threshold = seconds_of(threshold)
        if not threshold > 0:
            raise ValueError(f"threshold must be more than 0 seconds, not {threshold!r}")
        if on_block is not None and not callable(on_block):
            raise TypeError(f"on_block must be a function or None, not {on_block!r}")
        self._threshold = threshold
        self._on_block = on_block or _log
        self._reporter = Reporter()
        self._steps: _AsyncioSteps | _TrioSteps | None = None
        self._seen = BlockingWatchStatistics(0, 0.0, 0.0)

    async def __aenter__(self) -> Self:
        """Start watching. Raises `RuntimeError` if it is watching already."""
        if self._steps is not None:
            raise RuntimeError("a BlockingWatch can be entered only once at a time")
        await checkpoint()
        asyncios = isinstance(this_task(), asyncio.Task)
        steps = _AsyncioSteps(self._threshold / _BEATS) if asyncios else _TrioSteps()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._watch,
            args=(steps, self._stop, threading.get_ident()),
            name="tenure blocking watch",
            daemon=True,
        )
        try:
            self._thread.start()
        except BaseException:
            steps.stop()
            raise
        self._steps = steps
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Stop watching; all blocks until now are reported when this returns."""
        assert self._steps is not None
        self._steps.turn()
        self._steps.stop()
        self._steps = None
        self._stop.set()
        self._thread.join()

    def statistics(self) -> BlockingWatchStatistics:
        """The blocks that were seen until now."""
        return self._seen

    def __repr__(self) -> str:
        doing = "watching" if self._steps is not None else "not watching"
        return f"<BlockingWatch {doing}, {self._seen.blocks} blocks seen>"

    def _watch(self, steps: _AsyncioSteps | _TrioSteps, stop: threading.Event, loop_thread: int) -> None:
        step, stack = steps.look(), None
        since = before = monotonic()
        stopping = False
        while not stopping:
            stopping = stop.wait(self._threshold / _LOOKS)
            now, seen = monotonic(), steps.look()
            if seen != step:
                if stack is not None:
                    self._report(step, now - since, stack)
                # it began after the look before this one
                step, stack, since = seen, None, before
            elif stack is None and step.task is not None and now - since >= self._threshold:
                frame = sys._current_frames().get(loop_thread)  # pyright: ignore[reportPrivateUsage]
                stack = traceback.StackSummary.extract(_task_frames(frame))
                stack.reverse()
                if steps.look() != step:
                    stack = None
            before = now

    def _report(self, step: _Step, seconds: float, stack: traceback.StackSummary) -> None:
        seen = self._seen
        self._seen = BlockingWatchStatistics(
            seen.blocks + 1, seen.seconds + seconds, max(seen.longest, seconds)
        )
        blocked = Blocked(_name(step.task), _line(stack), seconds, "".join(stack.format()).rstrip())
        try:
            self._on_block(blocked)
        except Exception as error:  # noqa: BLE001 - it is logged; the watch goes on
            self._reporter.warn("blocking_watch.on_block_failed", task=blocked.task, error=error)


def _log(blocked: Blocked) -> None:
    text, _, stack = str(blocked).partition("\n")
    log(logging.WARNING, text, stack=stack)


class _AsyncioSteps:
    def __init__(self, interval: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval = interval
        self._number = 0
        self._timer = self._loop.call_later(interval, self._beat)

    def look(self) -> _Step:  # from any thread, as below
        return _Step(self._number, asyncio.current_task(self._loop))

    def turn(self) -> None:
        self._number += 1

    def stop(self) -> None:
        self._timer.cancel()

    def _beat(self) -> None:
        self.turn()
        self._timer = self._loop.call_later(self._interval, self._beat)


class _TrioSteps:
    # a trio.abc.Instrument, of which trio looks only at the methods that are there

    def __init__(self) -> None:
        from trio import lowlevel

        self._number = 0
        self._task: object = this_task()
        self._remove = lowlevel.remove_instrument
        lowlevel.add_instrument(self)  # pyright: ignore[reportArgumentType]

    def before_task_step(self, task: object) -> None:
        self._number += 1
        self._task = task

    def before_io_wait(self, timeout: float) -> None:
        del timeout
        self._task = None

    def look(self) -> _Step:
        return _Step(self._number, self._task)

    def turn(self) -> None:
        self._number += 1

    def stop(self) -> None:
        self._remove(self)  # pyright: ignore[reportArgumentType]


def _task_frames(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    frames = list(traceback.walk_stack(frame)) if frame is not None else []
    while frames and not frames[-1][0].f_code.co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE):
        frames.pop()
    return iter(frames)


def _line(stack: traceback.StackSummary) -> str:
    theirs = [frame for frame in stack if not frame.filename.startswith(_NOT_THEIRS)]
    for frame in reversed(theirs or stack):
        return f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}"
    return "unknown"


def _name(task: Any) -> str:
    return task.get_name() if isinstance(task, asyncio.Task) else task.name
