"""Calls shared by all tasks that ask for the same key meanwhile, as in Go's `singleflight`.

No task may outlive the task that started it. So a call, a task of its own, has a host: the object, where it was
entered; or else the first caller, which cannot leave before it has ended.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar, TypeVarTuple, cast

import anyio
from anyio import AsyncContextManagerMixin, BrokenResourceError, ClosedResourceError

from tenure.arguments import AsyncBlock
from tenure.local._outcome import Failed, Returned
from tenure.local._reentrancy import Reentrancy, is_reentrant
from tenure.observe import Reporter
from tenure.upkeep import in_one_task, unwrapped_task_group
from tenure.waiting import Line, new_scope

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from tenure.local._outcome import Outcome
    from tenure.waiting import Waiter

R = TypeVar("R")
Args = TypeVarTuple("Args")


@dataclass(frozen=True, slots=True)
class SingleFlightStatistics:
    """The state of a `SingleFlight` at one moment."""

    flights: int
    """The number of keys for which a call runs, or is being cancelled."""
    tasks_waiting: int
    """The number of tasks that wait for a flight, the first callers included."""


class _Flight:
    __slots__ = ("begins_after", "deserted", "ended", "key", "line", "raising", "reporter", "scope")

    def __init__(self, key: Hashable, after: _Flight | None, reporter: Reporter) -> None:
        self.key = key
        self.reporter = reporter
        self.raising = 0
        """The number of callers that raise the error of the call."""
        self.line: Line[None, Outcome[Any]] = Line(self._left)
        self.deserted = False
        self.scope = new_scope()
        """The scope of the call, made before its task has begun: no caller's cancellation passes it."""
        self.scope.shield = True
        self.ended: anyio.Event | None = None
        """Set when the call has ended; made for the flight that comes after it."""
        self.begins_after: anyio.Event | None = None
        if after is not None:
            self.begins_after = after.ended = anyio.Event()

    def __repr__(self) -> str:
        return f"<SingleFlight: the call for {self.key!r}>"

    def land(self, outcome: Outcome[Any] | None) -> None:
        if outcome is None:
            self.line.fail_all(lambda: BrokenResourceError(f"the call for {self.key!r} was cancelled"))
            return
        for waiter in self.line:
            self.raising += self.line.grant(waiter, outcome)
        if isinstance(outcome, Failed) and not self.raising:
            # all have left, and its clean-up has failed
            self.reporter.warn("single_flight.call_failed", key=self.key, error=outcome.error)

    def _left(self, waiter: Waiter[None, Outcome[Any]]) -> None:
        if waiter.granted and isinstance(failed := waiter.value, Failed):
            # it was cancelled before it could raise the error
            self.raising -= 1
            if not self.raising:
                self.reporter.warn("single_flight.call_failed", key=self.key, error=failed.error)
        if not self.line:
            self.deserted = True
            self.scope.cancel()


class SingleFlight(AsyncBlock, AsyncContextManagerMixin):
    """Lets one call for each key run at a time, and returns its result, or raises its error, in all waiting tasks.

    Nothing is kept: a call that comes after the end starts anew.

    A call runs inside of the first caller, or, with ``async with SingleFlight() as flight``, in a task group of the
    object; leaving the block then refuses new callers (`ClosedResourceError`) and waits for the calls under way.

    Cancellation: see `run`. A block that is cancelled cancels the calls that run in it; callers outside of the
    block get `BrokenResourceError`.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight] = {}
        self._reporter = Reporter()
        self._group: TaskGroup | None = None
        self._closed = False
        self._landed = anyio.Event()

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        async with in_one_task("single flight"), unwrapped_task_group() as group:
            self._group, self._closed = group, False
            try:
                yield self
                self._closed = True
                while self._flights:
                    self._landed = anyio.Event()
                    await self._landed.wait()
            finally:
                self._closed = True
                for flight in self._flights.values():
                    flight.scope.cancel()

    async def run(self, key: Hashable, fn: Callable[[*Args], Awaitable[R]], *args: *Args) -> R:
        """Return or raise what ``await fn(*args)`` does, or what the call under way for an equal key does.

        All get the same object or exception. The call sees the context of the first caller, and none of the callers'
        deadlines. Raises `RuntimeError` inside of the call for the same key, and `BrokenResourceError` if `fn` was
        cancelled by something of its own. Always a checkpoint.

        Cancellation: the caller leaves, and the call goes on for the others. When the last caller has left, it is
        cancelled, and the next to come waits until it has ended. The first caller of an object that was not entered
        stays until then.
        """
        if not callable(fn):
            raise TypeError(f"fn must be an async function, not {fn!r}")
        flight = self._flights.get(key)
        if flight is not None and is_reentrant(flight):
            raise RuntimeError(f"the call for {key!r} was asked for from inside of itself: a deadlock")
        if self._closed:
            raise ClosedResourceError
        if flight is not None and not flight.deserted:
            waiter = flight.line.join(None)
            outcome = await flight.line.wait(waiter)
        else:
            flight = self._flights[key] = _Flight(key, flight, self._reporter)
            flight.line.home.bind()
            waiter = flight.line.join(None)
            if self._group is not None:
                self._group.start_soon(self._fly, flight, fn, args, name="tenure flight")
                outcome = await flight.line.wait(waiter)
            else:
                async with unwrapped_task_group() as group:
                    group.start_soon(self._fly, flight, fn, args, name="tenure flight")
                    outcome = await flight.line.wait(waiter)
        try:
            return cast("R", outcome.result())
        finally:
            # the traceback of an error holds this frame: let go of it, or both wait for the garbage collector
            del outcome, waiter

    def statistics(self) -> SingleFlightStatistics:
        """The current state."""
        return SingleFlightStatistics(
            flights=len(self._flights),
            tasks_waiting=sum(len(flight.line) for flight in self._flights.values()),
        )

    def __repr__(self) -> str:
        state = self.statistics()
        return f"<SingleFlight {state.flights} under way, {state.tasks_waiting} waiting>"

    async def _fly(self, flight: _Flight, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        Reentrancy(flight)
        outcome: Outcome[Any] | None = None
        with flight.scope:
            try:
                if flight.begins_after is not None:
                    with anyio.CancelScope(shield=True):  # else the next but one might find it running still
                        await flight.begins_after.wait()
                if not flight.scope.cancel_called:
                    outcome = Returned(await fn(*args))
            except anyio.get_cancelled_exc_class():
                pass  # the call ends; tasks that still wait are woken below
            except BaseException as error:  # noqa: BLE001 - the callers raise it
                outcome = Failed(error)
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        self._landed.set()
        if flight.ended is not None:
            flight.ended.set()
        flight.land(outcome)
        # from Python 3.12 on, the traceback of an error keeps this frame with its variables
        del outcome
