"""The workers of one kind of task, and the steps that each of its tasks enters and leaves.

The order is the same for every task. A step that is expensive to hold comes late, and a rate, which is spent, comes
last:

1. while the circuit breaker is open, wait; nothing is held but the task
2. wait for a place, if kinds lend each other theirs
3. claim a resource
4. borrow a connection
5. wait for the rate, so that starts are as far apart as it says, whatever came before
6. enter the circuit breaker: it measures the handler, not the waiting; refused, leave all and go back to 1
7. run the handler, for `timeout` seconds at most

and it is left in the opposite order. It is one stack in the worker's own task, so a step that fails, or is cancelled,
leaves what was entered before it and nothing else. A task that did not get that far because its store closes, or is
unsure whether the rate has let it start, is given back. What a worker needs before it takes a task is in `_turns`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
from anyio import CancelScope

from tenure.engine import Settle, Verdict
from tenure.errors import (
    AcquireTimeout,
    BulkheadFull,
    CircuitOpen,
    LeaseLost,
    OutcomeUnknown,
    PoolTimeout,
    StoreClosed,
)
from tenure.handlers import NotBegun, describe, is_closing, name_of, split_failure
from tenure.local import CircuitBreaker, Pool
from tenure.shared import (
    DeadLetters,
    RateLimiter,
    ResourcePool,
    Retry,
    Runners,
    Semaphore,
    Task,
    WorkQueue,
    is_failure,
)
from tenure.waiting import Line, Waiter, now

from ._adaptive import Adaptive, Limit
from ._context import Context
from ._meter import Meter
from ._permits import Permits
from ._places import SharedSlots
from ._turns import RunnerGate

OUTCOMES = {
    Verdict.DONE: "done",
    Verdict.RETRY: "retried",
    Verdict.DEAD: "dead",
    Verdict.DISCARD: "discarded",
    Verdict.CANCEL: "cancelled",
    Verdict.GIVE_BACK: "given_back",
    Verdict.POSTPONE: "postponed",
    Verdict.WAIT: "suspended",
    Verdict.WAIT_FOR: "suspended",
}

Where = Mapping[str, Any] | Callable[[Task], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the processor that tasks of all kinds enter; None for a missing part. Times are in seconds."""

    handler: Callable[[Task, Sequence[Any]], Awaitable[Any]]
    timeout: float | None
    claims: ResourcePool | None
    where: Where | None
    claim_timeout: float | None
    pool: Pool[Any] | None
    connection_timeout: float | None
    limiter: RateLimiter | None
    lock_timeout: float | None
    places: SharedSlots | None
    limit: Semaphore | None

    @property
    def any(self) -> bool:
        """True if there is any part to enter."""
        return any(
            part is not None for part in (self.claims, self.pool, self.limiter, self.places, self.limit)
        )


class _Refused(Exception):
    """The refusal of a circuit breaker to let the task start."""


class KindWorkers:
    """The workers of one kind of task: `size` of its own, and as many more as other kinds may lend it."""

    def __init__(
        self,
        queue: WorkQueue,
        kind: str | None,
        size: int,
        parts: Parts,
        meter: Meter,
        *,
        retry: Retry | None,
        breaker: CircuitBreaker | None,
        adaptive: Adaptive | None,
        dead: DeadLetters | None = None,
    ) -> None:
        self.queue = queue
        self.kind = kind
        self.size = size
        self.meter = meter
        self.scope = CancelScope()
        most = size if parts.places is None else parts.places.size
        self._limit = None if adaptive is None else Limit(adaptive, most, now())
        allowed = most if self._limit is None else self._limit.allowed
        permits = None if parts.limit is None else Permits(parts.limit, meter)
        self._gate = RunnerGate(kind, most, allowed, self._recheck, places=parts.places, permits=permits)
        self._runners = Runners(
            queue,
            [self._handle] * most,
            limits=False,
            retry=retry,
            slots=self._gate.slot if adaptive or permits or parts.places else None,
            judge=self._judge,
            on_settled=self._on_settled,
            name=name_of(parts.handler),
        )
        self._dead = dead
        self._parts = parts
        self._is_bare = not parts.any and breaker is None
        self._breaker = breaker
        self._entering: set[CancelScope] = set()
        self._shut: Line[None, None] = Line(self._left)

    async def run(self) -> None:
        """Work until cancelled or drained. Raises `StoreClosed`, `EngineError`.

        Cancellation: handlers are cancelled and their tasks given back, without counting an attempt.
        """
        unregister = self._breaker and self._breaker.on_change(self._on_breaker)
        try:
            await (self._runners.run() if self._dead is None else self._dead.run(self._runners.run))
        finally:
            if unregister is not None:
                unregister()

    @property
    def stalled(self) -> str | None:
        """The reason why these workers take nothing although the engine can be reached, as in `Runners`."""
        return self._runners.stalled

    @property
    def allowed(self) -> int:
        """The number of concurrent tasks at present."""
        return self._gate.allowed

    @property
    def busy(self) -> int:
        """The number of tasks under way."""
        return self.meter.window.level("busy")

    def begin_draining(self) -> None:
        """Take no more, and give back what has not started. Synchronous."""
        self._runners.begin_draining()
        for scope in list(self._entering):
            scope.cancel("the processor is drained")

    async def drain(self) -> None:
        """Take no more, and return when `run` has ended. Cancellation: it goes on draining."""
        await self._runners.drain()
        if self._dead is not None:
            await self._dead.drained()

    # one task

    async def _handle(self, task: Task) -> Any:
        meter = self.meter
        taken = meter.taken()
        self._gate.began()
        try:
            if self._runners.draining:
                raise NotBegun("the processor is drained")
            context = Context(self.queue.store, self.kind, meter, self._parts.lock_timeout)
            if self._is_bare:
                return await self._call(task, context, taken, taken)
            with CancelScope() as scope:
                self._entering.add(scope)
                try:
                    return await self._enter(task, context, scope, taken)
                finally:
                    self._entering.discard(scope)
            raise NotBegun("the processor is drained")
        except LeaseLost as lost:
            if task.lost is None:
                meter.report("leases_lost", key=lost.key, reason=lost.reason)
            raise
        finally:
            self._gate.ended()
            meter.change("busy", -1)

    async def _enter(self, task: Task, context: Context, scope: CancelScope, taken: float) -> Any:
        while True:
            await self._until_admitted()
            try:
                async with AsyncExitStack() as stack:
                    try:
                        await self._acquire(stack, task, context)
                    except BaseException as problem:
                        self._pass_on()
                        if isinstance(problem, (OutcomeUnknown, StoreClosed)):  # none of the task's doing
                            raise NotBegun from None
                        raise
                    self._entering.discard(scope)
                    if scope.cancel_called:  # in the very step that obtained the last thing
                        await anyio.lowlevel.checkpoint_if_cancelled()
                    return await self._call(task, context, taken, now())
            except _Refused:
                self.meter.count("refused")

    async def _acquire(self, stack: AsyncExitStack, task: Task, context: Context) -> None:
        parts, meter = self._parts, self.meter
        since = now()
        if parts.places is not None:
            meter.change("busy", -1)  # while it waits, another kind's task has its place
            try:
                await stack.enter_async_context(parts.places.enter(self.kind))
            finally:
                meter.change("busy", 1)
            since = meter.record("place", since)
        try:
            if parts.claims is not None:
                where = parts.where(task) if callable(parts.where) else parts.where
                context.has(await stack.enter_async_context(parts.claims.claim(parts.claim_timeout, where)))
                stack.callback(meter.change, "claims", -1)
                meter.change("claims", 1)
                since = meter.record("claim", since)
            if parts.pool is not None:
                connection = await stack.enter_async_context(parts.pool.acquire(parts.connection_timeout))
                context.has_connection(connection)
                stack.callback(meter.change, "connections", -1)
                meter.change("connections", 1)
                since = meter.record("connection", since)
        except (AcquireTimeout, PoolTimeout, BulkheadFull) as error:
            meter.report("exhaustion", id=task.id, attempt=task.attempt, error=str(error))
            raise
        if parts.limiter is not None:
            await parts.limiter.acquire()
            meter.record("rate", since)
        # before the breaker, which would count it
        task.begin()
        try:
            context.check()
            self._gate.check()
        except LeaseLost as lost:
            raise NotBegun(f"{lost.key} was lost before the handler began") from lost
        if self._breaker is not None:
            try:
                await self._breaker.__aenter__()
            except CircuitOpen:
                raise _Refused from None
            stack.callback(self._pass_on)
            stack.push_async_exit(self._breaker)

    async def _call(self, task: Task, context: Context, taken: float, started: float) -> Any:
        parts = self._parts
        try:
            timeout = parts.timeout if task.timeout is None else task.timeout
            if timeout is None:
                result = await parts.handler(task, (context,))
            else:
                result = await self._call_in_time(timeout, task, context)
        except BaseException as error:
            if not is_closing(error) and split_failure(error)[0] is not None:
                self._ended_at(now(), task.waited, taken, started)
            raise
        self._ended_at(now(), task.waited, taken, started)
        return result

    async def _call_in_time(self, seconds: float, task: Task, context: Context) -> Any:
        where = None
        try:
            with anyio.move_on_after(seconds):
                try:
                    return await self._parts.handler(task, (context,))
                except anyio.get_cancelled_exc_class() as cancelled:
                    where = cancelled
                    raise
            self.meter.report("timeouts", id=task.id, attempt=task.attempt, seconds=seconds)
            raise TimeoutError(f"not done within {seconds:g} s") from where
        finally:
            del where  # its traceback refers to this frame

    def _ended_at(self, at: float, waited: float, taken: float, started: float) -> None:
        self.meter.ran(at, waited + started - taken, at - started)
        if self._limit is not None:
            allowed = self._limit.note(at - started, self.busy, at)
            if allowed != self._gate.allowed:
                self.meter.report("limit", allowed=allowed)
                self._gate.allow(allowed)

    def _recheck(self) -> None:
        self._runners.recheck()

    # what becomes of it

    def _judge(self, task: Task, failure: BaseException) -> BaseException | None:
        if is_failure(failure) and task.lost is None:
            self.meter.report("failures", id=task.id, attempt=task.attempt, error=describe(failure))
        return failure

    def _on_settled(self, task: Task, settle: Settle, refused: str | None) -> None:
        if refused:
            self.meter.count("leases_lost")  # the event is `task.lost`
            self.meter.count("lost")
        elif task.expires_by(settle):
            self.meter.count("expired")
            return
        else:
            self.meter.count(OUTCOMES[settle.verdict])
            if self._dead is not None and settle.verdict is Verdict.DEAD:
                self._dead.wake()
        if refused or settle.verdict in (Verdict.RETRY, Verdict.GIVE_BACK, Verdict.POSTPONE):
            self.meter.queued(1)

    # waiting for the circuit breaker

    async def _until_admitted(self) -> None:
        breaker, places = self._breaker, self._parts.places
        while breaker is not None and (seconds := breaker.retry_after()) > 0:
            if places is not None:
                places.found_none(self.kind)
            with anyio.move_on_after(seconds):
                await self._shut.wait(self._shut.join(None))

    def _left(self, waiter: Waiter[None, None]) -> None:
        if waiter.granted:
            self._pass_on()

    def _pass_on(self) -> None:
        """Let the next task try: a probe has left the breaker, or the task woken to become one will not."""
        breaker = self._breaker
        if breaker is not None and breaker.state == "half_open" and breaker.retry_after() <= 0:
            self._wake_one()

    def _on_breaker(self, old: object, new: object) -> None:
        del old
        self.meter.report("breaker", state=new)
        while self._wake_one():
            pass

    def _wake_one(self) -> bool:
        waiter = self._shut.head()
        return waiter is not None and self._shut.grant(waiter, None)
