"""A task that was taken: leased for as long as its block lasts, and settled when it ends, however it ends."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from types import TracebackType
from typing import Any, Protocol

import anyio
from anyio import CancelScope

from tenure.arguments import check_timeout
from tenure.engine import Complete, Progress, Reply, Settle, Taken, Verdict
from tenure.errors import AcquireTimeout, LeaseLost, PayloadTooLarge, TaskCancelled
from tenure.local._line import Line
from tenure.local._park import on_task_end, this_task
from tenure.store import Held, Session, Store, encoded
from tenure.store._connection import Done, applied

from ._endings import parted
from ._guard import Guarded
from ._retry import Discard, Retry, RetryLater
from ._takes import OnSettled, Takers

_LONGEST_ERROR = 2000
_UNCOMMITTED = "uncommitted"


class Source(Protocol):
    """What a task needs to know of the queue it comes from."""

    store: Store
    key: str
    takers: Takers
    retry: Retry
    max_payload: int
    results_ttl: float | None


def encode(store: Store, key: str, what: str, value: Any, limit: int) -> bytes:
    """The bytes of a value, if they are within the limit."""
    data = encoded(store.codec, f"{key}: the {what}", value)
    if len(data) > limit:
        raise PayloadTooLarge(key, what, len(data), limit)
    return data


class Task(Guarded, Held):
    """A task in the hands of a handler.

    `id`, `priority`, `token` (the fence); `attempt` is the number of this try (failures so far + 1), `deliveries` how
    often the task has been handed out, this time included; `waited` for how many seconds it had been ready; `lost` why
    the lease was lost, or None; `cancelled` whether its cancellation was requested.
    Thread safety: `payload`, `set_result`, `check`, `complete_in` and the guards may be used in a handler's thread, the
    rest on the event loop.
    """

    __slots__ = (
        "_if_uncommitted",
        "_joined",
        "_payload",
        "_progress",
        "_queue",
        "_result",
        "_scope",
        "_session",
        "attempt",
        "cancelled",
        "deliveries",
        "id",
        "lost",
        "priority",
        "token",
        "waited",
    )

    def __init__(self, queue: Source, session: Session, taken: Taken, scope: CancelScope) -> None:
        self.id = taken.id
        self.token = taken.token
        self.priority = taken.priority
        self.attempt = taken.attempts + 1
        self.deliveries = taken.deliveries
        self.waited = taken.waited
        self._payload = taken.payload
        self._progress = taken.progress
        self.lost: str | None = None
        self.cancelled = False
        self._queue = queue
        self._session = session
        self._scope: CancelScope | None = scope
        self._result = b"null"
        self._joined = False
        self._if_uncommitted: Settle | None = None
        session.add(self)
        queue.takers.hold(self.token, self)

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled else "held" if self._scope is not None else "settled"
        state = f"lost={self.lost!r}" if self.lost else state
        return f"<Task {self.id} of {self._queue.key} attempt={self.attempt} {state}>"

    @property
    def payload(self) -> Any:
        """What was put."""
        return self._queue.store.codec.decode(self._payload)

    @property
    def last_progress(self) -> Any:
        """What an earlier delivery reported last; None if nothing."""
        return self._queue.store.codec.decode(self._progress) if self._progress else None

    def set_result(self, value: Any) -> None:
        """Set what `queue.result(task_id)` will give once the task is done; the last call counts.

        Raises `PayloadTooLarge`, and what the codec raises for a value that it cannot express.
        """
        self._result = encode(self._queue.store, self._queue.key, "result", value, self._queue.max_payload)

    async def progress(self, value: Any) -> None:
        """Report how far the task is: for whoever looks, and for a next delivery.

        Raises `LeaseLost` if the task is no longer this holder's, `PayloadTooLarge`, `EngineError`, `StoreClosed`, and
        what the codec raises. If the cancellation of the task was requested, the block is cancelled.
        Cancellation: the report may or may not be stored.
        """
        queue = self._queue
        data = encode(queue.store, queue.key, "progress", value, queue.max_payload)
        answer = await queue.store.call(Progress(queue.key, self.id, self.token, data))
        if answer is Reply.REFUSED:
            raise LeaseLost(self._name, self.lost or "refused")
        if answer is Reply.REQUESTED:
            self.stop()

    def check(self) -> None:
        """Raise `LeaseLost` if the task is lost, its time has passed, or the block was left ("released").

        It costs nothing and sends nothing. Call it right before a side effect.
        """
        if self._scope is None:
            raise LeaseLost(self._name, self.lost or "released")
        if self.lost or self._session.is_over():
            raise LeaseLost(self._name, self.lost or "expired")

    def complete_in(self, connection: object) -> Done[None] | Awaitable[None]:
        """Complete the task in a transaction of yours, on a connection to the store's own database.

        Committed, the task is done, with the result set so far; rolled back, it is still yours. So what you write in
        that transaction takes effect exactly once. Commit before the block ends: a block that ends without an exception
        and without the commit fails the try, and raises `LeaseLost` ("uncommitted"). Until the transaction has ended,
        await nothing of the store, which may wait for it. Connections, and which of them have to be awaited, are those
        of `SqlGuard.enforce`.

        Raises `LeaseLost` if the task is no longer this holder's, `RuntimeError` outside of a transaction, `ValueError`
        and `TypeError` for a connection to elsewhere, `EngineError` on an engine that cannot do it, `StoreClosed`, and
        what the driver raises.
        Cancellation: roll back; it may have been applied in the transaction.
        """
        self.check()
        queue = self._queue
        settle = Settle(self.id, self.token, Verdict.DONE, self._result, 0.0, queue.results_ttl)
        joining = queue.store.joins().join(Complete(self._session.id, queue.key, settle))
        return applied(connection, joining, self._completed)

    def _completed(self, answer: Reply) -> None:
        if answer is not Reply.OK:
            raise LeaseLost(self._name, self.lost or answer.value)
        self._joined = True

    def _fence(self) -> tuple[str, int]:
        return self._name, self.token

    @property
    def _name(self) -> str:
        return f"{self._queue.key} task {self.id}"

    # for the session and the takers

    @property
    def granted_as(self) -> tuple[str, int] | None:
        """Its name and token; None once it may be done by a transaction of the user's. For the store alone."""
        return None if self._joined else (f"{self.id} {self.token}", self.token)

    def lose(self, reason: str) -> None:
        """It is lost, its session is, or the store closes."""
        if self.lost is None:
            self.lost = reason
            if self._scope is not None:
                self._scope.cancel(f"task {self.id} lost: {reason}")

    def stop(self) -> None:
        """Its cancellation was requested."""
        if not self.cancelled and self.lost is None and self._scope is not None:
            self.cancelled = True
            self._scope.cancel(f"task {self.id} cancelled")

    # for the block and the worker

    @property
    def is_settled(self) -> bool:
        """Whether it has been let go of."""
        return self._scope is None

    def verdict(self, failure: BaseException | None, retry: Retry) -> Settle:
        """What it means for the task that its body ended with this failure, or with none."""
        ttl = self._queue.results_ttl
        if failure is None:
            if self._joined:
                problem = RuntimeError("the transaction that completes the task was not committed")
                self._if_uncommitted = self.verdict(problem, retry)
            return Settle(self.id, self.token, Verdict.DONE, self._result, 0.0, ttl)
        if isinstance(failure, Discard):
            reason = failure.reason.encode(errors="replace")
            return Settle(self.id, self.token, Verdict.DISCARD, reason, 0.0, ttl)
        text = describe(failure).encode(errors="replace")
        if isinstance(failure, RetryLater):
            return Settle(self.id, self.token, Verdict.POSTPONE, text, failure.delay)
        if self.attempt >= retry.attempts:
            return Settle(self.id, self.token, Verdict.DEAD, text)
        return Settle(self.id, self.token, Verdict.RETRY, text, retry.delay(self.attempt))

    def interrupted(self) -> Settle:
        """What it means for the task that its body was interrupted, or did not start."""
        verdict = Verdict.CANCEL if self.cancelled else Verdict.GIVE_BACK
        return Settle(self.id, self.token, verdict, ttl=self._queue.results_ttl)

    def settle(self, settle: Settle, on_settled: OnSettled) -> None:
        """Let go of the task: synchronous, so that nothing can stop it."""
        self._scope = None
        if self._if_uncommitted is not None:
            settle, on_settled = self._if_uncommitted, partial(_refused_if_committed, on_settled)
        self._queue.takers.settle(self._session, settle, on_settled)
        self._session.drop(self)

    def seconds_left(self) -> float:
        """For how long the session can still be trusted."""
        return self._session.remaining()


def _refused_if_committed(on_settled: OnSettled, problem: str | None) -> None:
    """A task that is done on record has no holder whose verdict could be accepted."""
    on_settled({None: _UNCOMMITTED, "refused": None}.get(problem, problem))


def describe(error: BaseException) -> str:
    """An error in a line or two, for the record; also one that cannot say what it is."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 whatever it is, the task must be settled
        text = ""
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    parts: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if isinstance(error, BaseExceptionGroup):
        text += " [" + "; ".join(map(describe, parts)) + "]"
    return text[:_LONGEST_ERROR]


class Taking:
    """An async context manager that takes a task and settles it. For one use.

    Thread safety: none.
    """

    __slots__ = ("_entered_in", "_queue", "_scope", "_task", "_timeout", "_unwatch")

    def __init__(self, queue: Source, timeout: float | None) -> None:
        self._queue = queue
        self._timeout = check_timeout("timeout", timeout)
        self._task: Task | None = None
        self._entered_in: object = None

    async def __aenter__(self) -> Task:
        """Take the next task. Raises `AcquireTimeout`, `StoreClosed`, `EngineError`. Cancellation: nothing is taken."""
        if self._entered_in is not None:
            raise RuntimeError(f"{self._queue.key}: this take was entered before; make a new one")
        self._entered_in = this_task()
        session, taken = await self._take()
        self._scope = scope = CancelScope()
        scope.__enter__()
        self._task = Task(self._queue, session, taken, scope)
        self._unwatch = on_task_end(self._entered_in, self._abandoned)
        return self._task

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Settle the task. Raises `LeaseLost`, `TaskCancelled`; swallows only `RetryLater` and `Discard`.

        Cancellation: settling goes on by itself; only the wait for its acknowledgement ends.
        """
        task = self._task
        if task is None:
            raise RuntimeError(f"{self._queue.key}: this take was not entered")
        name = f"{self._queue.key} task {task.id}"
        failure, interruption = (None, None) if error is None else parted(error)
        interrupted = failure is None and interruption is not None
        settle = task.interrupted() if interrupted else task.verdict(failure, self._queue.retry)
        acknowledged = _Acknowledgement()
        # where no error goes on, nothing else tells that the verdict came too late
        silent = error is None or isinstance(error, (RetryLater, Discard))
        # a body around this one may hold something under the same session, and has to end with it
        limit = task.seconds_left()
        if not silent or task.lost is not None:
            limit = min(limit, self._queue.store.settle_timeout)
        if task.is_settled:  # another task has left the block before
            acknowledged(None)
        else:
            self._unwatch()
            task.settle(settle, acknowledged)
        if this_task() is not self._entered_in:
            raise RuntimeError(
                f"{name}: left from another task than it was entered in; it has been settled. Keep its `async with` in "
                "one task, such as one that waits in between for the end"
            )
        try:
            ended_by_us = bool(self._scope.__exit__(kind, error, trace))
        except BaseException as rest:
            # the scope took its own cancellations out of a group, and raises what is left of it
            await acknowledged.wait(limit)
            _tell_of_the_loss(rest, name, task)
            raise
        await acknowledged.wait(limit)
        if ended_by_us and error is not None:
            if task.lost is not None:
                raise LeaseLost(name, task.lost) from None
            raise TaskCancelled(self._queue.key, task.id) from None
        if silent and acknowledged.problem is not None:
            raise LeaseLost(name, task.lost or acknowledged.problem) from error
        _tell_of_the_loss(error, name, task)
        return silent and error is not None

    def compose(self) -> None:
        """The task ended without leaving the block: nobody is there any more to do it. For the store alone."""
        task = self._task
        if task is not None and not task.is_settled:
            task.settle(Settle(task.id, task.token, Verdict.GIVE_BACK), _nothing)

    def _abandoned(self) -> None:
        # called outside of any task, where not even the time can be told on every loop
        self._queue.store.compose_soon(self, self._queue.key)

    async def _take(self) -> tuple[Session, Taken]:
        takers = self._queue.takers
        if self._timeout is None:
            return await takers.take()
        # one try takes as long as the engine takes to answer, but not for ever when it is away
        with anyio.move_on_after(self._timeout or self._queue.store.settle_timeout):
            found = await (takers.take() if self._timeout else takers.take_at_once())
            if found is not None:
                return found
        raise AcquireTimeout(f"{self._queue.key} task", self._timeout)


class _Acknowledgement:
    """Whether the engine has accepted a verdict: `problem` is None if it has, else why not."""

    __slots__ = ("_answered", "_line", "problem")

    def __init__(self) -> None:
        self.problem: str | None = "unacknowledged"
        self._answered = False
        self._line: Line[None, None] | None = None

    def __call__(self, problem: str | None) -> None:
        self.problem = problem
        self._answered = True
        if self._line is not None:
            for waiter in self._line:
                self._line.grant(waiter, None)

    async def wait(self, seconds: float) -> None:
        """Wait for the answer in a shield, at most so long."""
        if not self._answered:
            self._line = Line(_nothing)
            with anyio.move_on_after(seconds, shield=True):
                await self._line.wait(self._line.join(None))


def _tell_of_the_loss(error: BaseException | None, name: str, task: Task) -> None:
    if task.lost and isinstance(error, Exception):
        error.add_note(f"{name} was lost meanwhile ({task.lost})")


def _nothing(_: object) -> None:
    pass
