"""The worker of one kind of task: a `Worker` around whose handler are the parts of the processor.

A task enters in this order: a lent place; a permit of the fleet's limit; a claim; a connection; what the user has put
around; the rate, which is spent last; and the circuit breaker, which measures the handler alone.

A task that waits for a part is leased, so their number is bounded: a runner that would take another rests first
(`_room`). While the breaker is open all runners rest, and then one task after the other is let in as a probe.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import anyio
from anyio import CancelScope

import tenure.engine as e
from tenure.arguments import seconds_of
from tenure.errors import AcquireTimeout, BulkheadFull, CapacityMismatch, LeaseLost, PoolTimeout
from tenure.handlers import NotBegun, describe, is_closing, split_failure
from tenure.local import Bulkhead, CircuitBreaker, Pool
from tenure.shared import (
    Lease,
    RateLimiter,
    RetryLater,
    Runners,
    Semaphore,
    Task,
    Worker,
    WorkerOptions,
    WorkQueue,
    check_around,
    event_of,
    is_failure,
    out_of_time,
)
from tenure.waiting import Line, now

from ._adaptive import Adaptive, Limit
from ._context import Context
from ._meter import Meter
from ._settings import Around, Claims

AHEAD = 4
"""The largest number of tasks that wait for a place or a permit, beyond the places that the kind has."""
_PAUSES = (0.0, 0.02, 0.1, 1.0)
"""Seconds before a limit is asked again if its number of permits was another one: it may be being resized."""


@dataclass(slots=True)
class Parts:
    places: Bulkhead | None = None
    limit: Semaphore | None = None
    claims: Claims | None = None
    make_pool: Callable[..., Pool[Any]] | None = None
    pool: Pool[Any] | None = None
    limiter: RateLimiter | None = None
    adaptive: Adaptive | None = None
    around: Sequence[Around] = ()

    def __post_init__(self) -> None:
        self.around = check_around(self.around)

    @property
    def scarce(self) -> bool:
        return any((self.places, self.limit, self.claims, self.make_pool))


@dataclass(slots=True, eq=False)
class Try:
    taken: float
    started: float | None = None
    held: dict[str, Any] = field(default_factory=dict[str, Any])


class KindWorker(Worker):
    """The worker of one kind of task: `size` runners of its own, and as many more as other kinds may lend it."""

    _is_timeout_for_all = False

    def __init__(
        self,
        queue: WorkQueue[Any],
        handler: Any,
        size: int,
        parts: Parts,
        meter: Meter,
        *,
        workers: int,
        breaker: CircuitBreaker | None,
        options: WorkerOptions,
    ) -> None:
        self.queue = queue
        self.size = size
        self.meter = meter
        self.scope: CancelScope | None = None
        most = size if parts.places is None else workers + AHEAD
        self._parts = parts
        self.breaker = breaker
        self._adaptive = parts.adaptive and Limit(parts.adaptive, workers)
        self.allowed = most if self._adaptive is None else self._adaptive.allowed
        self._seconds = seconds_of(options.get("timeout"))
        self._tries: dict[int, Try] = {}
        self._taking: set[int] = set()
        self._resting: Line[None, None] = Line(owner=self)
        self._problem: CapacityMismatch | None = None
        around = [self._enter if parts.scarce else self._give, *parts.around, self._start]
        super().__init__(queue, handler, concurrency=most, around=around, **options)

    def _make_runners(self, queue: WorkQueue[Any], handles: list[Any], **options: Any) -> Runners:
        self._tell_dead = options["on_settled"]
        options.update(judge=self._judge, on_settled=self._on_settled)
        if self._adaptive or self.breaker or self._parts.places or self._parts.limit:
            options["pause"] = self._pause
        # the handles of `Surroundings` have nothing to do without parts
        if not self.breaker and self._parts == Parts():
            return Runners(queue, [partial(self._call, handle.args[0]) for handle in handles], **options)
        # the managers limit the time of a try
        options.update(timeout=None, limits=False)
        return Runners(queue, [partial(self._handle, *each) for each in enumerate(handles)], **options)

    @property
    def busy(self) -> int:
        return self.meter.levels["workers"]

    async def run(self) -> None:
        with CancelScope() as self.scope:
            await super().run()

    # before a task is taken

    def _pause(self, number: int) -> Awaitable[None] | None:
        self._taking.discard(number)
        if (first := super()._pause(number) if self._threads else None) is not None:
            return first
        if len(self._taking) >= self._room() or self._problem is not None:
            return self._rest()
        self._taking.add(number)
        return None

    def _room(self) -> int:
        in_hand, parts, breaker = len(self._tries), self._parts, self.breaker
        room = self.allowed - in_hand
        if parts.places is not None or parts.limit is not None:
            own = self.size if parts.limit is None else 0
            room = min(room, max(own, self.busy + AHEAD) - in_hand)
        if breaker is not None and breaker.state in ("open", "half_open", "forced_open"):
            starting = any(tried.started is None for tried in self._tries.values())
            room = min(room, 0 if starting or breaker.retry_after() > 0 else 1)
        return room

    async def _rest(self) -> None:
        if self._problem is not None:
            raise self._problem
        seconds = 0.0 if self.breaker is None else self.breaker.retry_after()
        with anyio.move_on_after(seconds or inf):
            await self._resting.wait(self._resting.join(None))

    def _changed(self) -> None:
        for _ in range(self._room() - len(self._taking)):
            if (runner := self._resting.head()) is None:
                break
            self._resting.grant(runner, None)

    def on_breaker(self, _: object, new: object) -> None:
        self.meter.report("breaker", state=new)
        self._runners.recheck()
        self._changed()

    # one task

    async def _call(self, handle: Any, task: Task) -> Any:
        """Handle a task without any part, which is what most of the costs would be."""
        self.meter.depth -= 1
        at = now()
        tried = Try(at, at)
        self.meter.change("workers", 1)
        try:
            result = await handle(task, (self._context(tried),))
        except BaseException as error:
            seconds = self._seconds_of(task)
            is_late = seconds is not None and now() - at >= seconds  # it was cancelled for that
            self._ended(task, tried, None if is_late else error)
            raise
        finally:
            self.meter.change("workers", -1)
        self._ended(task, tried)
        return result

    async def _handle(self, number: int, handle: Any, task: Task) -> Any:
        meter = self.meter
        self._taking.discard(number)
        meter.depth -= 1
        tried = self._tries[task.token] = Try(now())
        if not self._parts.scarce:
            self._use(tried, "workers", None)
        try:
            return await handle(task)
        except LeaseLost as lost:
            if task.lost is None:
                meter.report("leases_lost", key=lost.key, reason=lost.reason)
            if "limit" in tried.held and lost.key == tried.held["limit"].key:
                raise NotBegun("the permit was lost") from lost
            raise
        except (AcquireTimeout, PoolTimeout, BulkheadFull) as error:
            if tried.started is None:
                meter.report("exhaustion", id=task.id, attempt=task.attempt, error=str(error))
            raise
        except RetryLater:
            if tried.started is None and self.breaker is not None:
                meter.count("refused")
            raise
        finally:
            del self._tries[task.token]
            for level in tried.held:
                meter.change(level, -1)
            self._changed()

    def _give(self, task: Task) -> nullcontext[Context]:
        return nullcontext(self._context(self._tries[task.token]))

    def _context(self, tried: Try) -> Context:
        return Context(self._store, self.meter, tried.held)

    @asynccontextmanager
    async def _enter(self, task: Task) -> AsyncGenerator[Context]:
        parts, meter, tried = self._parts, self.meter, self._tries[task.token]
        async with AsyncExitStack() as stack:
            since = tried.taken
            if parts.places is not None:
                await stack.enter_async_context(parts.places.enter(meter.kind))
                since = meter.lasted("place", since)
            if parts.limit is not None:
                self._use(tried, "limit", await self._permit(stack, parts.limit))
                since = meter.lasted("limit", since)
            self._use(tried, "workers", None)
            self._changed()
            if parts.claims is not None:
                self._use(tried, "claims", await stack.enter_async_context(parts.claims.claim(task)))
                since = meter.lasted("claim", since)
            if parts.pool is not None:
                self._use(tried, "connections", await stack.enter_async_context(parts.pool.acquire()))
                meter.lasted("connection", since)
            yield self._context(tried)

    def _use(self, tried: Try, level: str, held: object) -> None:
        tried.held[level] = held
        self.meter.change(level, 1)

    async def _permit(self, stack: AsyncExitStack, limit: Semaphore) -> Lease:
        problem = None
        for seconds in _PAUSES:
            await anyio.sleep(seconds)
            try:
                return await stack.enter_async_context(limit.hold())
            except CapacityMismatch as mismatch:
                problem = mismatch
        self._problem = problem
        raise NotBegun("the limit has another number of permits") from problem

    @asynccontextmanager
    async def _start(self, task: Task) -> AsyncGenerator[None]:
        tried = self._tries[task.token]
        if self._parts.limiter is not None:
            since = now()
            await self._parts.limiter.acquire()
            self.meter.lasted("rate", since)
        try:
            task.check()  # before the breaker, which would count it
            for name in ("claims", "limit"):
                if name in tried.held:
                    tried.held[name].check()
        except LeaseLost as lost:
            raise NotBegun(f"{lost.key} was lost before the handler began") from lost
        async with self.breaker or nullcontext():
            tried.started = now()
            self._changed()
            try:
                yield
            except BaseException as error:
                self._ended(task, tried, error)
                raise
            self._ended(task, tried)

    def _ended(self, task: Task, tried: Try, error: BaseException | None = None) -> None:
        if error is not None and (is_closing(error) or split_failure(error)[0] is None):
            return
        at, started = now(), tried.started or 0.0
        self.meter.ran(at, task.waited + started - tried.taken, at - started)
        if self._adaptive is not None:
            allowed = self._adaptive.note(at - started, self.busy, at)
            if allowed != self.allowed:
                self.meter.report("limit", allowed=allowed)
                if allowed < self.allowed:
                    self._runners.recheck()
                self.allowed = allowed

    def _seconds_of(self, task: Task) -> float | None:
        return self._seconds if task.timeout is None else task.timeout

    # what becomes of it

    def _judge(self, task: Task, failure: BaseException) -> BaseException | None:
        seconds = self._seconds_of(task)
        if isinstance(failure, TimeoutError) and seconds and str(failure) == out_of_time(seconds):
            self.meter.report("timeouts", id=task.id, attempt=task.attempt, seconds=seconds)
        if is_failure(failure) and task.lost is None:
            self.meter.report("failures", id=task.id, attempt=task.attempt, error=describe(failure))
        return failure

    def _on_settled(self, task: Task, settle: e.Settle, refused: str | None) -> None:
        if self._tell_dead is not None:
            self._tell_dead(task, settle, refused)
        outcome = event_of(task, settle, refused).removeprefix("task.")
        self.meter.count("retried" if outcome == "retry" else outcome)
        if outcome == "lost":
            self.meter.count("leases_lost")  # the event is `task.lost`
        if outcome in ("retry", "given_back", "postponed", "lost"):
            self.meter.depth += 1
