"""A task that was taken: leased for as long as its block lasts, and settled when it ends, however it ends."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio import CancelScope

from tenure.engine import Progress, Reply, Settle, Taken, Verdict
from tenure.errors import AcquireTimeout, LeaseLost, PayloadTooLarge, TaskCancelled
from tenure.local._line import Line
from tenure.local._park import this_task
from tenure.store import Session, Store

from ._lease import check_timeout
from ._retry import Discard, Retry, RetryLater
from ._takes import Takers

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_ERROR = 2000


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
    data = store.codec.encode(value)
    if len(data) > limit:
        raise PayloadTooLarge(key, what, len(data), limit)
    return data


class Task:
    """A task in the hands of a handler.

    `id`, `priority`, `token` (the fence); `attempt` is the number of this try (failures so far + 1), `deliveries` how
    often the task has been handed out, this time included; `waited` for how many seconds it had been ready; `lost` why
    the lease was lost, or None; `cancelled` whether its cancellation was requested.
    Thread safety: `payload`, `set_result` and `check` may be used in a handler's thread, the rest on the event loop.
    """

    __slots__ = (
        "_payload",
        "_progress",
        "_queue",
        "_result",
        "_scope",
        "_session",
        "_taken",
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
        self.id, self.token, self._payload, self.priority, failures, self.deliveries, self.waited, self._progress = taken
        self.attempt = failures + 1
        self.lost: str | None = None
        self.cancelled = False
        self._queue = queue
        self._session = session
        self._scope: CancelScope | None = scope
        self._result = b"null"
        session.add(self)
        queue.takers.holders[self.token] = self

    def __repr__(self) -> str:
        state = f"lost={self.lost!r}" if self.lost else "cancelled" if self.cancelled else "held"
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

        Raises `LeaseLost` if the task is no longer this holder's, `PayloadTooLarge`, `EngineError`.
        Cancellation: the report may or may not be stored.
        """
        queue = self._queue
        data = encode(queue.store, queue.key, "progress", value, queue.max_payload)
        answer = await queue.store.call(Progress(queue.key, self.id, self.token, data))
        if answer is Reply.REFUSED:
            raise LeaseLost(f"{queue.key} task {self.id}", self.lost or "refused")
        if answer is Reply.REQUESTED:
            self.stop()

    def check(self) -> None:
        """Raise `LeaseLost` if the task is lost, or its time has passed; costs nothing, sends nothing."""
        if self.lost or self._session.is_over():
            raise LeaseLost(f"{self._queue.key} task {self.id}", self.lost or "expired")

    # for the session and the takers

    def lose(self, reason: str) -> None:
        """The session is lost."""
        self.lost = reason
        if self._scope is not None:
            self._scope.cancel(f"task {self.id} lost: {reason}")

    def stop(self) -> None:
        """Its cancellation was requested."""
        if not self.cancelled and self.lost is None and self._scope is not None:
            self.cancelled = True
            self._scope.cancel(f"task {self.id} cancelled")

    # for the block and the worker

    def verdict(self, error: BaseException | None, retry: Retry) -> Settle:
        """What the way in which the body ended means for the task."""
        ttl = self._queue.results_ttl
        if error is None:
            return Settle(self.id, self.token, Verdict.DONE, self._result, 0.0, ttl)
        if isinstance(error, Discard):
            return Settle(self.id, self.token, Verdict.DISCARD, error.reason.encode(), 0.0, ttl)
        if not isinstance(error, Exception):
            verdict = Verdict.CANCEL if self.cancelled else Verdict.GIVE_BACK
            return Settle(self.id, self.token, verdict, ttl=ttl)
        text = describe(error).encode()
        if self.attempt >= retry.attempts:
            return Settle(self.id, self.token, Verdict.DEAD, text)
        delay = error.delay if isinstance(error, RetryLater) else retry.delay(self.attempt)
        return Settle(self.id, self.token, Verdict.RETRY, text, delay)

    def settle(self, settle: Settle, on_settled: Callable[[bool], object]) -> None:
        """Let go of the task: synchronous, so that nothing can stop it."""
        self._scope = None
        del self._queue.takers.holders[self.token]
        self._queue.takers.settle(self._session, settle, on_settled)
        self._session.drop(self)

    def seconds_left(self) -> float:
        """For how long the session can still be trusted."""
        return self._session.remaining()


def describe(error: BaseException) -> str:
    """An error in a line or two, for the record."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    parts: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if isinstance(error, BaseExceptionGroup):
        text += " [" + "; ".join(map(describe, parts)) + "]"
    return text[:_LONGEST_ERROR]


class Taking:
    """An async context manager that takes a task and settles it. For one use.

    Thread safety: none.
    """

    __slots__ = ("_entered_in", "_queue", "_scope", "_task", "_timeout")

    def __init__(self, queue: Source, timeout: float | None) -> None:
        check_timeout(timeout)
        self._queue = queue
        self._timeout = timeout
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
        lost = task.lost
        settle = task.verdict(error, self._queue.retry)
        acknowledged = _Acknowledgement()
        limit = task.seconds_left() if settle.verdict is Verdict.DONE else self._queue.store.settle_timeout
        task.settle(settle, acknowledged)
        if this_task() is not self._entered_in:
            raise RuntimeError(f"task {task.id}: left from another task than it was entered in; it has been settled")
        name = f"{self._queue.key} task {task.id}"
        try:
            ended_by_us = bool(self._scope.__exit__(kind, error, trace))
        except BaseException as rest:
            if lost and isinstance(rest, Exception):
                rest.add_note(f"{name} was lost meanwhile ({lost})")
            raise
        await acknowledged.wait(limit)
        if lost and (ended_by_us or error is None):
            raise LeaseLost(name, lost) from None
        if ended_by_us and error is not None:
            raise TaskCancelled(self._queue.key, task.id) from None
        if error is None and not acknowledged.accepted:
            raise LeaseLost(name, "unacknowledged" if acknowledged.accepted is None else "refused")
        if lost and isinstance(error, Exception):
            error.add_note(f"{name} was lost meanwhile ({lost})")
        return isinstance(error, (RetryLater, Discard))

    async def _take(self) -> tuple[Session, Taken]:
        if self._timeout is None:
            return await self._queue.takers.take()
        if self._timeout == 0:
            found = await self._queue.takers.take_at_once()
            if found is not None:
                return found
        else:
            with anyio.move_on_after(self._timeout):
                return await self._queue.takers.take()
        raise AcquireTimeout(f"{self._queue.key} task", self._timeout)


class _Acknowledgement:
    """Whether the engine has accepted a settlement: None while it has not answered."""

    __slots__ = ("_line", "accepted")

    def __init__(self) -> None:
        self.accepted: bool | None = None
        self._line: Line[None, None] | None = None

    def __call__(self, accepted: bool) -> None:  # noqa: FBT001 a callback
        self.accepted = accepted
        if self._line is not None:
            for waiter in self._line:
                self._line.grant(waiter, None)

    async def wait(self, seconds: float) -> None:
        """Wait for the answer in a shield, at most so long."""
        if self.accepted is None:
            self._line = Line(lambda _: None)
            with anyio.move_on_after(seconds, shield=True):
                await self._line.wait(self._line.join(None))
