"""Parking and waking a task: with `_trio_readers`, the only place in the library that knows asyncio and trio by name.

docs/explanations/waiting.md says what each function is for. sniffio's thread-local tells which loop is running: the
cheapest sign, also in trio's guest mode. trio is imported when it is first found running.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context
from functools import cache, partial
from sys import get_asyncgen_hooks
from time import monotonic
from types import FunctionType, SimpleNamespace, coroutine
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, cast

from anyio import CancelScope, wait_readable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from contextlib import AbstractContextManager
    from socket import socket
    from types import CoroutineType, ModuleType, TracebackType

    from trio.lowlevel import Abort, Task

T = TypeVar("T")

try:
    from sniffio import current_async_library_cvar as _library, thread_local as _running
except ImportError:  # then trio, which requires it, is not there either
    _library = None
    _running = SimpleNamespace(name=None)


class Parked(Protocol):
    """The awaitable of one task: it parks the current task until `wake`, or until the task is cancelled.

    On asyncio it is a future of the loop; elsewhere it behaves as one.

    Cancellation: from its delivery on, before the task has run, `cancelled` answers True and `wake` does nothing. Only
    a native asyncio ``task.cancel()`` takes a wake-up back: the await raises although `cancelled` answers False.
    """

    def cancelled(self) -> bool: ...

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...

    def __await__(self) -> Generator[Any, Any, None]: ...


def park() -> Parked:
    """An awaitable that parks the current task, once. If it was woken before, its await is no checkpoint."""
    if _running.name == "trio":
        return _TrioParked()
    return asyncio.get_running_loop().create_future()


def wake(parked: Parked) -> bool:
    """Wake the task that is parked there. False if it was woken or cancelled before. No checkpoint."""
    if parked.done():
        return False
    parked.set_result(None)
    return True


def checkpoint() -> Awaitable[None]:
    if _running.name == "trio":
        return _trio().checkpoint()
    return _turn()


@coroutine
def _ended() -> Generator[None, None, None]:
    return
    yield


NOTHING = cast("CoroutineType[Any, Any, None]", _ended())
"""The result of a method such as ``__aexit__`` that has nothing to wait for: an ended generator, which returns at once.

Any number of tasks may await it. No checkpoint. A coroutine for each call would cost more.
"""
next(cast("Generator[None, None, None]", cast("object", NOTHING)), None)


def now() -> float:
    if _running.name == "trio":
        return _trio_time()()
    return asyncio.get_running_loop().time()


def steady() -> float:
    """The time on a clock that goes on from one loop to the next, in seconds: for instants that outlive a loop."""
    if _running.name == "trio":
        return steady_clock()()
    return asyncio.get_running_loop().time()


def steady_clock() -> Callable[[], float]:
    if _running.name == "trio":
        clock = _trio().current_clock()
        return monotonic if type(clock).__name__ == "SystemClock" else clock.current_time
    return asyncio.get_running_loop().time


def loop_time(instant: float) -> float:
    return now() + (instant - steady()) if _running.name == "trio" else instant


def call_at(when: float, function: Callable[[], object], context: Context) -> Callable[[], None]:
    """Call `function` at a time of asyncio's clock, outside any task; return the timer's `cancel`. It must not raise.

    uvloop may call it a millisecond early.
    """
    return asyncio.get_running_loop().call_at(when, function, context=context).cancel


def context_of_callbacks() -> Context:
    return _known_in(Context())


def time_limit(seconds: float) -> AbstractContextManager[object] | None:
    """A scope that cancels its block after `seconds`, on trio; None on asyncio, which has timers."""
    return _trio_limit()(seconds) if _running.name == "trio" else None


def new_scope() -> CancelScope:
    return _trio_scope()() if _running.name == "trio" else _asyncio_scope()()


# no function of our own: it is called for each operation
this_loop: Callable[[], object] = asyncio._get_running_loop
"""The loop of asyncio that runs in this thread, else None; on trio in guest mode the loop of its host."""


# asking trio for its token enters two functions of it
trio_sign: Callable[[], tuple[object, object]] = get_asyncgen_hooks
"""The first value is a function that trio makes for each run: the cheapest sign of which run it is."""


def this_run() -> object:
    return this_loop() or trio_sign()[0]


def runs(run: object, call: Callable[[Callable[[], None]], None]) -> bool:
    if isinstance(run, asyncio.AbstractEventLoop):
        return run.is_running()
    try:
        call(_pass)
    except RuntimeError:  # of trio: the run has finished
        return False
    return True


def _pass() -> None:
    pass


def runs_in_real_time() -> bool:
    """False if a test moves the clock of the running loop."""
    if _running.name == "trio":
        return type(_trio().current_clock()).__name__ == "SystemClock"
    time = type(asyncio.get_running_loop()).time
    # loops that are written in C have another function
    return not isinstance(time, FunctionType) or time is asyncio.BaseEventLoop.time


def this_task() -> object:
    """The native task that is running. Outside a task: None on asyncio, `RuntimeError` on trio."""
    if _running.name == "trio":
        return _trio().current_task()
    return asyncio.current_task()


def this_task_end() -> TaskEnd:
    """The end of the running task: the same object each time, but for code in a copy of the task's context."""
    # `this_task`, without the call
    task = _trio().current_task() if _running.name == "trio" else asyncio.current_task()
    if task is None:
        raise RuntimeError("no task is running here")
    end = _task_end.get()
    if end is None or end.task is not task:
        end = TaskEnd(task)
        _task_end.set(end)
    return end


def loop_caller() -> Callable[[Callable[[], None]], None]:
    """A function with which other threads have a function called on the loop that is running here, outside any task.

    It keeps the order of its calls. It raises `RuntimeError` when the loop is closed; a loop that is just ending may
    never make the call. The called function must not raise.
    """
    if _running.name == "trio":
        return _trio().current_trio_token().run_sync_soon
    return _AsyncioCaller(asyncio.get_running_loop())


def _known_in(context: Context) -> Context:
    if _library is not None:
        context.run(_library.set, "trio" if _running.name == "trio" else "asyncio")
    return context


def within(context: Context, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
    _known_in(context).run(_task_end.set, this_task_end())
    return stepped(context, work)


@coroutine
def stepped(
    context: Context, work: Coroutine[Any, Any, T], awaited: object = NOTHING
) -> Generator[Any, Any, T]:
    step: Callable[[Any], Any] = work.send
    value: Any = None
    try:
        while True:
            try:
                awaited = context.run(step, value) if awaited is NOTHING else awaited
            except StopIteration as end:
                return end.value
            try:
                value = yield awaited
                step = work.send
            except BaseException as problem:  # noqa: BLE001 the coroutine gets it
                # without this frame, which would stand behind the coroutine's frames
                step, value = (
                    work.throw,
                    problem.with_traceback(cast("TracebackType", problem.__traceback__).tb_next),
                )
            awaited = NOTHING
    finally:
        del step, value  # a traceback may know this frame


async def on_readable(source: socket, callback: Callable[[], None]) -> NoReturn:
    """Call `callback` in each turn of the loop in which the socket can be read. It must not be closed meanwhile.

    The callback runs outside any task where the loop has callbacks; otherwise, as on Windows, in this task. On trio it
    may be called once more after the end, with nothing to read.
    """
    if _running.name == "trio":
        from . import _trio_readers

        await _trio_readers.read(source, callback)
    problem: Exception | None = None

    def call() -> None:
        nonlocal problem
        if ended.done():  # it has raised, or this was cancelled, in the same turn
            return
        try:
            callback()
        except Exception as error:  # noqa: BLE001 it is raised below
            problem = error
            wake(ended)

    ended = park()
    stop = _start_reading(source, call)
    if stop is None:
        while True:
            await wait_readable(source)
            callback()
    try:
        await ended
    finally:
        stop()
    assert problem is not None
    raise problem


# asyncio


@coroutine
def _turn() -> Generator[None, None, None]:
    # what asyncio.sleep(0) does, two frames closer
    yield


def _start_reading(source: socket, callback: Callable[[], None]) -> Callable[[], object] | None:
    """None where the loop calls nothing of its own accord."""
    loop = asyncio.get_running_loop()
    # callbacks run in a copy of the context in which they were registered
    context = _known_in(copy_context())
    try:
        context.run(loop.add_reader, source, callback)
    except NotImplementedError:  # the loop that is usual on Windows
        return None
    return partial(loop.remove_reader, source)


class _AsyncioCaller:
    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(self, function: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(function)


@cache
def _asyncio_scope() -> type[CancelScope]:
    # `CancelScope()` makes an object of a class of the running loop
    return type(CancelScope())


# trio


@cache
def _trio_scope() -> type[CancelScope]:
    from trio import CancelScope as TrioScope

    # anyio's has the same methods, and passes each call on
    return cast("type[CancelScope]", TrioScope)


@cache
def _trio() -> ModuleType:
    from trio import lowlevel

    return lowlevel


@cache
def _trio_limit() -> Callable[[float], AbstractContextManager[object]]:
    from trio import move_on_after

    return move_on_after


@cache
def _trio_time() -> Callable[[], float]:
    from trio import current_time

    return current_time


class _Woken:
    """The outcome of each wake-up. trio would make one each time, since `outcome.Value` is for one use."""

    __slots__ = ()

    def unwrap(self) -> None:
        pass


_WOKEN: Any = _Woken()


class _TrioParked:
    __slots__ = ("_cancelled", "_done", "_task")

    def __init__(self) -> None:
        self._task: Task | None = None
        self._done = False
        self._cancelled = False

    def cancelled(self) -> bool:
        return self._cancelled

    def done(self) -> bool:
        return self._done

    def set_result(self, _: None, /) -> None:
        self._done = True
        if self._task is not None:
            _trio().reschedule(self._task, _WOKEN)

    def __await__(self) -> Generator[Any, Any, None]:
        if self._done:
            return _nothing().__await__()
        trio = _trio()
        self._task = trio.current_task()
        return trio.wait_task_rescheduled(self._abort).__await__()

    def _abort(self, _raise_cancel: object) -> Abort:
        self._done = self._cancelled = True
        return _trio().Abort.SUCCEEDED


async def _nothing() -> None:
    pass


# both


class TaskEnd:
    """The end of one task, for the objects that `watch` it. `this_task_end` makes it.

    It is registered with the loop once for each task, since that is costly.
    """

    __slots__ = ("callbacks", "task")

    def __init__(self, task: object) -> None:
        self.task: object = task
        self.callbacks: dict[object, Callable[[], None]] = {}
        if isinstance(task, asyncio.Task):
            task.add_done_callback(self.break_lot)  # pyright: ignore[reportUnknownMemberType]
        else:
            # trio calls break_lot(task) on the parking lots of which an ended task is a "breaker"; that is the only
            # notice it gives, and any object will do for a lot
            _trio().add_parking_lot_breaker(cast("Task", task), self)

    def watch(self, watcher: object, callback: Callable[[], None]) -> None:
        """Call `callback` when the task has ended, however it ended.

        It is called at once (trio) or in the loop's next turn (asyncio), for a task that has ended already too,
        outside any task. It must not raise (trio would crash).
        """
        self.callbacks[watcher] = callback
        if self.task is None:
            loop_caller()(self.break_lot)

    def break_lot(self, _: object = None) -> None:
        self.task = None  # the contexts of its children know this object, and must not keep the task
        while self.callbacks:
            self.callbacks.pop(next(iter(self.callbacks)))()


_task_end: ContextVar[TaskEnd | None] = ContextVar("tenure_task_end", default=None)
