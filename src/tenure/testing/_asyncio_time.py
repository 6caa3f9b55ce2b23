"""Virtual time on asyncio: a selector that jumps to the next timer instead of waiting."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections import deque
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ._deadlock import DeadlockError, deadlock, no_thread_can_help

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Executor
    from contextvars import Context

    from ._director import Director

T = TypeVar("T")


class AsyncioTime:
    """The time of a `VirtualClock` on asyncio. Calling it makes an event loop that runs on it."""

    backend = "asyncio"
    director: Director | None = None
    """The director that decides what is open, while a scenario runs; only in loops that are `ordered`."""

    def __init__(self, settle: float, deadlock_timeout: float) -> None:
        self.idle_for = settle
        self.deadlock_timeout = deadlock_timeout
        self.seconds = 0.0
        self.is_ordered = False
        self.deadlock: DeadlockError | None = None
        self._settling: list[asyncio.Future[None]] = []
        self.outside: list[Callable[[], bool]] = []
        """The jobs outside of the loop for which the clock stands still; each function says whether its job is over."""

    def __call__(self) -> asyncio.AbstractEventLoop:
        self.deadlock = None
        self.outside.clear()
        return _VirtualLoop(self)

    @contextmanager
    def ordered(self) -> Generator[None]:
        self.is_ordered = True
        try:
            yield
        finally:
            self.is_ordered = False

    def options(self) -> dict[str, Any]:
        return {"loop_factory": self}

    def now(self) -> float:
        return self.seconds

    async def settle(self) -> None:
        settled = asyncio.get_running_loop().create_future()
        self._settling.append(settled)
        await settled

    def wake_settling(self) -> bool:
        waiting = [settled for settled in self._settling if not settled.done()]
        self._settling.clear()
        for settled in waiting:
            settled.set_result(None)
        return bool(waiting)

    def deadlocked(self) -> DeadlockError:
        tasks = [
            task
            for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
            # In one task of its own anyio's pytest plugin waits for the test in another.
            if "_call_in_runner_task" not in getattr(task.get_coro(), "__qualname__", "")
        ]
        self.deadlock = deadlock(tasks, self.director)
        if self.director is not None:
            self.director.note("nothing can go on")
            self.director = None
        return self.deadlock


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, virtual: AsyncioTime) -> None:
        self._virtual = virtual
        super().__init__(_VirtualSelector(virtual, self))
        # that of the real clock is lost in a virtual time of more than 2**24 seconds, and no timer would fire any more
        self._clock_resolution = 1e-7
        if virtual.is_ordered:
            self._ready = _Ready(virtual)

    def time(self) -> float:
        return self._virtual.seconds

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if when == math.inf:
            # Scheduled, it would be a timer to jump to for ever, a day at a time.
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._virtual.outside.append(future.done)
        return future

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        return self._awaited(*await super().subprocess_exec(*args, **options))

    async def subprocess_shell(self, *args: Any, **options: Any) -> Any:
        return self._awaited(*await super().subprocess_shell(*args, **options))

    def _awaited(
        self, transport: asyncio.SubprocessTransport, protocol: T
    ) -> tuple[asyncio.SubprocessTransport, T]:
        self._virtual.outside.append(lambda: transport.get_returncode() is not None)
        return transport, protocol

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002
        """Wait for the threads without the limit of Python 3.12 and later: the clock would jump to it."""
        await super().shutdown_default_executor()

    def timers(self, until: float) -> list[float]:
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009
        return sorted(
            {timer.when() for timer in scheduled if timer.when() <= until and not timer.cancelled()}
        )


class _Ready(deque[asyncio.Handle]):
    def __init__(self, virtual: AsyncioTime) -> None:
        super().__init__()
        self._virtual = virtual
        self.new_turn = False

    def popleft(self) -> asyncio.Handle:
        director = self._virtual.director
        if director is None:
            return super().popleft()
        if self.new_turn:
            self.new_turn = False
            # Other threads may add to the end meanwhile.
            handles = _without_chance([super(_Ready, self).popleft() for _ in range(len(self))], director)
            order = director.arrange([_task_of(handle) for handle in handles], now=self._virtual.seconds)
            self.extendleft(reversed(_callbacks_first([handles[place] for place in order], handles)))
        handle = super().popleft()
        if not handle.cancelled():
            director.before_step(_task_of(handle), now=self._virtual.seconds)
        return handle


def _without_chance(handles: Iterable[asyncio.Handle], director: Director) -> list[asyncio.Handle]:
    """The handles, with the tasks of a scope that was cancelled (a set) in the order of the tasks."""
    ordered: list[asyncio.Handle] = []
    for cancelled, group in groupby(handles, _was_cancelled):
        together = list(group)
        if cancelled and len(together) > 1:
            together.sort(key=lambda handle: director.number(_task_of(handle)))
        ordered += together
    return ordered


def _callbacks_first(ordered: list[asyncio.Handle], natural: list[asyncio.Handle]) -> list[asyncio.Handle]:
    """The handles, with callbacks of a future before later tasks that it has woken.

    asyncio promises that order, and its streams rely on it.
    """
    before: dict[int, list[asyncio.Handle]] = {}
    callbacks: list[asyncio.Handle] = []
    for handle in natural:
        woken_by: Any = getattr(handle, "_args", None)
        future = woken_by[0] if woken_by and isinstance(woken_by[0], asyncio.Future) else None
        if _task_of(handle) is None:
            callbacks.append(handle)
            if future is not None:
                before[id(future)] = list(callbacks)
        elif id(future) in before:
            before[id(handle)] = before[id(future)]
    if not before:
        return ordered
    # Callbacks keep their order among themselves.
    return list(dict.fromkeys(each for handle in ordered for each in (*before.get(id(handle), ()), handle)))


def _was_cancelled(handle: asyncio.Handle) -> bool:
    woken_by: Any = getattr(handle, "_args", None)
    return bool(woken_by) and isinstance(woken_by[0], asyncio.Future) and woken_by[0].cancelled()


def _task_of(handle: asyncio.Handle) -> asyncio.Task[Any] | None:
    owner: Any = getattr(getattr(handle, "_callback", None), "__self__", None)
    return cast("asyncio.Task[Any]", owner) if isinstance(owner, asyncio.Task) else None


class _VirtualSelector(selectors.DefaultSelector):
    def __init__(self, virtual: AsyncioTime, loop: _VirtualLoop) -> None:
        super().__init__()
        self._virtual = virtual
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        virtual = self._virtual
        director = virtual.director
        if virtual.is_ordered:
            cast("_Ready", getattr(self._loop, "_ready")).new_turn = True  # noqa: B009
        if timeout is not None and timeout <= 0:
            if director is not None:
                timers = self._loop.timers(virtual.seconds + director.lateness)
                chosen = director.hurry(timers) if timers else None
                if chosen is not None:
                    virtual.seconds = max(virtual.seconds, timers[chosen])
            return super().select(0)
        # Nothing can run: `timeout` is how far away the next timer is, if there is one.
        events = super().select(virtual.idle_for) or self._from_outside()
        if events or (director is not None and director.idle()) or virtual.wake_settling():
            return events
        if timeout is not None:
            if director is not None:
                timers = self._loop.timers(virtual.seconds + timeout + director.lateness)
                timeout = timers[director.late(timers)] - virtual.seconds
            virtual.seconds += timeout
            return []
        only_the_loops_own_pipe = len(self.get_map()) <= 1
        # Only another thread could still help.
        deadlock_timeout = 0 if virtual.is_ordered and no_thread_can_help() else virtual.deadlock_timeout
        events = super().select(deadlock_timeout if only_the_loops_own_pipe else None)
        if not events and only_the_loops_own_pipe:
            raise virtual.deadlocked()
        return events

    def _from_outside(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for a job of an executor or a child process; but one that has been silent for long may wait for us."""
        outside = self._virtual.outside
        outside[:] = [ended for ended in outside if not ended()]
        events = super().select(self._virtual.deadlock_timeout) if outside else []
        if not events:
            outside.clear()
        return events
