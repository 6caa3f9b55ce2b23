"""Bounded threads for blocking functions.

A thread cannot be stopped: a thread whose caller gave up is *abandoned*, and keeps its slot until it has ended. A call
is handed over by a claim that only one side can win: the thread when it starts, or a caller that is cancelled before.
"""

from __future__ import annotations

import sys
import traceback
from collections import deque
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar, TypeVarTuple

import anyio
import anyio.from_thread
import anyio.to_thread

from tenure.arguments import Seconds, check_count
from tenure.errors import BulkheadFull
from tenure.local._limits import seconds
from tenure.local._slots import Slots
from tenure.observe import Reporter, is_ours
from tenure.waiting import checkpoint, loop_caller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")
Args = TypeVarTuple("Args")


class Done(NamedTuple, Generic[T, R]):
    """An item of `Threads.map` whose call has ended: with `value`, or with `error` if it raised."""

    item: T
    """The item, as it was given."""
    value: R | None
    """The function's return value; None if it raised."""
    error: Exception | None
    """The exception that the function raised, or None."""

    def result(self) -> R:
        """Return the function's result, or raise its exception."""
        if self.error is not None:
            raise self.error
        return self.value  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, slots=True)
class Finished(Generic[T, R]):
    """The items of one `Threads.map`. Each item is in exactly one of the two tuples."""

    done: tuple[Done[T, R], ...]
    """The items whose call has ended, in the order of the items."""
    unfinished: tuple[T, ...]
    """The items whose call did not end in time, in the order of the items: abandoned as it ran, or never started."""


@dataclass(frozen=True, slots=True)
class ThreadsStatistics:
    """The state of `Threads` at one moment, in numbers of calls."""

    max_workers: int
    """The number of functions that may run at once."""
    max_waiting: int | None
    """The number of tasks that may wait in line; None is any number."""
    busy: int
    """The number of slots in use: their functions run, including abandoned ones, or are about to."""
    abandoned: int
    """The number of `busy` slots whose function runs on although its caller has given up."""
    tasks_waiting: int
    """The number of tasks that wait in line for a slot."""
    refused: int
    """The number of calls that were refused so far because the line was full."""


class _LimitedCall(anyio.CapacityLimiter):
    # the limiter that anyio wants for each call: a real one would make another checkpoint, and `Slots` is the limit

    __slots__ = ("abandoned", "claim", "ended", "failures", "outer", "owner", "thread")

    def __new__(cls, owner: Threads, outer: _LimitedCall | None) -> Self:
        del owner, outer
        return object.__new__(cls)

    def __init__(self, owner: Threads, outer: _LimitedCall | None) -> None:
        self.owner = owner
        self.outer = outer
        self.claim = Lock()
        self.ended = False
        self.abandoned = False
        self.thread = 0  # in which it runs
        self.failures: list[BaseException] = []  # its exception, until the caller or the log has it

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        pass

    def release_on_behalf_of(self, borrower: object) -> None:
        # on trio, before the caller runs: the next in line need not wait for that
        del borrower
        self.owner._collect()  # pyright: ignore[reportPrivateUsage]


# the call whose thread this context descends from; its `outer` leads on to the call around that one
_inside: ContextVar[_LimitedCall | None] = ContextVar("tenure.local.threads", default=None)


class Threads:
    """Runs blocking functions in at most `max_workers` threads at once, first come first served.

    `max_waiting` bounds how many may wait in line for a busy thread (None: any number; 0: a call runs at once or is
    refused). Each function runs in a copy of its caller's context, and may use ``anyio.from_thread``.

    Calls from inside one of its own threads, and from anything that was started there, are refused as long as that
    thread runs: if all threads waited for a slot, none would ever continue.

    Cancellation: a call that is cancelled before its function has started never runs it. A later cancellation abandons
    the thread: it keeps its slot until the function returns, whose result is dropped, and whose error is logged.
    """

    def __init__(self, max_workers: int, *, max_waiting: int | None = None) -> None:
        check_count("max_workers", max_workers)
        self._max_waiting = None if max_waiting is None else check_count("max_waiting", max_waiting, least=0)
        self._slots = Slots(max_workers, self)
        self._reporter = Reporter()
        self._abandoned = self._refused = 0
        self._returned: deque[_LimitedCall] = deque()
        self._on_loop: Callable[[Callable[[], None]], None] = _nowhere

    async def run(self, fn: Callable[[*Args], R], *args: *Args, timeout: Seconds | None = None) -> R:
        """Run ``fn(*args)`` in a thread and return its result.

        `timeout` is in seconds and bounds the run, not the wait in line: `TimeoutError`. Raises `BulkheadFull` when
        `max_waiting` calls wait already, and `RuntimeError` inside one of the own threads.

        Cancellation: as the class says.
        """
        limit = seconds("timeout", timeout)
        await self._admit()
        return await self._run(fn, *args, timeout=limit)

    async def map(
        self, fn: Callable[[T], R], items: Iterable[T], *, timeout: Seconds | None = None
    ) -> Finished[T, R]:
        """Run ``fn(item)`` for each item, in the order of the items, and return which have ended.

        An `Exception` of a call is recorded with its item. `timeout` is in seconds and bounds all of it, the wait in
        line included: when it has passed, the calls that run are abandoned, the rest are not started, and the returned
        `Finished` says so. It takes at most `max_workers` places in line at a time. Raises as `run` does, when it
        begins.

        Cancellation: the calls that run are abandoned, the rest never run, and no outcome is returned.
        """
        most = seconds("timeout", timeout)
        await self._admit()
        todo = list(items)
        if not todo:
            await checkpoint()
        done: list[Done[T, R] | None] = [None] * len(todo)
        queue = iter(range(len(todo)))
        failures: list[Exception] = []

        async def work() -> None:
            try:
                for index in queue:
                    done[index] = await self._run(_recorded, fn, todo[index])
            except Exception as error:  # noqa: BLE001 - raised below, outside the task group
                failures.append(error)
                limit.cancel()

        with anyio.move_on_after(most) as limit:
            async with anyio.create_task_group() as workers:
                for _ in range(min(len(todo), self._slots.limit)):
                    workers.start_soon(work)
        if failures:
            raise failures[0]
        return Finished(
            done=tuple(record for record in done if record is not None),
            unfinished=tuple(item for item, record in zip(todo, done, strict=True) if record is None),
        )

    def statistics(self) -> ThreadsStatistics:
        """The current state."""
        self._collect()
        return ThreadsStatistics(
            max_workers=self._slots.limit,
            max_waiting=self._max_waiting,
            busy=self._slots.in_use,
            abandoned=self._abandoned,
            tasks_waiting=self._slots.waiting,
            refused=self._refused,
        )

    def __repr__(self) -> str:
        slots = self._slots
        state = f"{slots.in_use}/{slots.limit} busy, {self._abandoned} abandoned, {slots.waiting} waiting"
        return f"<Threads {state}>"

    async def _admit(self) -> None:
        self._on_loop = loop_caller()
        self._collect()
        call = _running(_inside.get())
        while call is not None:
            if call.owner is self:
                raise RuntimeError(f"{self!r} was called from inside one of its own threads: a deadlock")
            call.outer = call = _running(call.outer)
        slots = self._slots
        # asked first, it unlinks those in front that were cancelled in this turn: they are no reason to refuse anybody
        if self._max_waiting is not None and not slots.fits() and slots.waiting >= self._max_waiting:
            self._refused += 1
            waiting = slots.waiting
            # so that a loop that tries again and again does not lock up the others
            await checkpoint()
            message = f"all {slots.limit} threads are busy and {waiting} calls wait already"
            raise BulkheadFull(message, limit=slots.limit, waiting=waiting)

    async def _run(self, fn: Callable[[*Args], R], *args: *Args, timeout: float = inf) -> R:
        if self._slots.fits():
            self._slots.take_nowait()  # anyio makes the checkpoint
        else:
            await self._slots.take()
        call = _LimitedCall(self, _running(_inside.get()))
        try:
            started = anyio.to_thread.run_sync(
                self._in_thread, call, fn, args, abandon_on_cancel=True, limiter=call
            )
            if timeout == inf:
                result = await started
                call.failures.clear()
                return result
            with anyio.move_on_after(timeout):
                result = await started
                call.failures.clear()
                return result
            raise TimeoutError(
                f"{_name(fn)} did not return within timeout={timeout:g} s; its thread is abandoned"
            )
        except BaseException as error:
            # a coroutine raises a RuntimeError in place of a StopIteration, which is its cause
            if call.failures and (call.failures[0] is error or call.failures[0] is error.__cause__):
                call.failures.clear()
            if where := _where(call.thread):
                error.add_note(f"The thread that was abandoned is at:\n{where}")
            raise
        finally:
            self._settle(call, fn, args)

    def _in_thread(self, call: _LimitedCall, fn: Callable[[*Args], R], args: tuple[*Args]) -> R:
        if not call.claim.acquire(blocking=False):
            raise RuntimeError("cancelled before its thread started; no task sees this")
        _inside.set(call)
        call.thread = get_ident()
        try:
            return fn(*args)
        except BaseException as error:
            if not _is_cancellation(error):
                call.failures.append(error)
            raise
        finally:
            call.thread = 0
            self._returned.append(call)
            # a caller that still waits collects it
            if call.abandoned:
                self._log_failure(call, fn, args)
                # a loop that has ended has no task in line for the slot; another may use this object by now
                with suppress(RuntimeError):
                    self._on_loop(self._collect)

    def _settle(self, call: _LimitedCall, fn: Callable[..., object], args: tuple[object, ...]) -> None:
        if call.claim.acquire(blocking=False):
            self._slots.give_back()
            return
        if not call.ended:
            # in this order: a thread that ends meanwhile sees that it is abandoned, or is collected here
            call.abandoned = True
            self._abandoned += 1
            self._collect()
        # the caller did not get the exception of a thread that ended before it was abandoned
        if call.failures:
            self._log_failure(call, fn, args)

    def _log_failure(self, call: _LimitedCall, fn: Callable[..., object], args: tuple[object, ...]) -> None:
        with suppress(IndexError):
            error = call.failures.pop()
            function = args[0] if fn is _recorded else fn
            self._reporter.warn("threads.abandoned_failed", function=_name(function), error=error)

    def _collect(self) -> None:
        while self._returned:
            call = self._returned.popleft()
            call.ended = True
            self._abandoned -= call.abandoned
            self._slots.give_back()


def _running(call: _LimitedCall | None) -> _LimitedCall | None:
    while call is not None and call.ended:
        call = call.outer
    return call


def _recorded(fn: Callable[[T], R], item: T) -> Done[T, R]:
    try:
        return Done(item, fn(item), None)
    except Exception as error:  # noqa: BLE001 - returned to the caller of map, or logged
        call = _inside.get()
        assert call is not None
        call.failures.append(error)
        return Done(item, None, error)


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, Exception):
        return False
    try:
        anyio.from_thread.check_cancelled()
    except BaseException as cancellation:  # noqa: BLE001 - the loops have different classes
        return type(error) is type(cancellation)
    return False


def _where(thread: int) -> str:
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    if frame is None:
        return ""
    frames = list(takewhile(lambda pair: pair[0].f_code is not _IN_THREAD, traceback.walk_stack(frame)))
    while frames and is_ours(frames[-1][0].f_code.co_filename):
        frames.pop()
    return "".join(traceback.StackSummary.extract(reversed(frames)).format()).rstrip()


_IN_THREAD = Threads._in_thread.__code__  # pyright: ignore[reportPrivateUsage]


def _nowhere(_: Callable[[], None]) -> None:
    raise RuntimeError("no loop has used these threads")


def _name(fn: object) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)
