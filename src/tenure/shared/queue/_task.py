"""A task that was taken: leased for as long as its block lasts, and settled when it ends, however it ends."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Generic, NoReturn, Protocol, TypeVar, Unpack, cast, overload

import anyio
import anyio.lowlevel
from anyio import CancelScope

import tenure.engine as e
from tenure.arguments import Seconds, check_flag, check_name, check_timeout, shows_options
from tenure.dbapi import run_enlisted, run_enlisted_sync
from tenure.errors import AcquireTimeout, LeaseLost, ReleaseFailed, TaskCancelled, TaskFailed
from tenure.handlers import NotBegun, split_failure
from tenure.observe import Trying
from tenure.shared._block import LeasedBlock
from tenure.shared._guard import Guarded
from tenure.store import Codec, Held, Session, decoded, numbers
from tenure.upkeep import leaves
from tenure.waiting import Parked, now, park, this_task, wake

from ._batch import Batch
from ._children import Children, OnFailure, Target
from ._failures import recorded, tried_at
from ._family import SIGNAL, Family, FamilySource, HandlerScope
from ._groups import shown_group
from ._meta import decode_meta
from ._options import PutOptions
from ._own_options import options_in, thing_of
from ._payload import P, P_co, encode
from ._releases import Release, change_release, name_release
from ._reports import numbered_report, report_in
from ._retry import (
    CANNOT_BE_KEPT,
    CANNOT_BE_RESULT,
    IS_UNKNOWN,
    NOT_AGAIN,
    Dead,
    Discard,
    Retry,
    RetryLater,
    are_messages,
    decisive,
    error_of,
)
from ._steps import step
from ._takes import OnSettled, Takers

R = TypeVar("R")
C = TypeVar("C")

_UNCOMMITTED = "uncommitted"
_LATE_PAUSE = 1.0
"""Seconds for which a late task rests that the engine, whose clock may be behind, does not know to be late."""
_EVENTS = {
    e.Verdict.DONE: "task.done",
    e.Verdict.RETRY: "task.retry",
    e.Verdict.DEAD: "task.dead",
    e.Verdict.DISCARD: "task.discarded",
    e.Verdict.CANCEL: "task.cancelled",
    e.Verdict.GIVE_BACK: "task.given_back",
    e.Verdict.POSTPONE: "task.postponed",
    e.Verdict.WAIT: "task.suspended",
    e.Verdict.WAIT_FOR: "task.suspended",
    e.Verdict.WAIT_FOR_END: "task.suspended",
}


def event_of(task: Task[Any], settle: e.Settle, refused: str | None) -> str:
    if refused:
        return "task.lost"
    return "task.expired" if task._expires_by(settle) else _EVENTS[settle.verdict]


class Source(FamilySource, Protocol):
    name: str
    codec: Codec
    _takers: Takers
    retry: Retry
    max_payload: int


class Task(Guarded, Held, Generic[P_co]):
    """A task in the hands of a handler; generic in its payload.

    - `id`, `priority`, `token` (the fence).
    - `group`: the group that it was put into, or None.
    - `attempt`: the number of this try (failures since the last stored step + 1).
    - `deliveries`: how often the task has been handed out, this time included.
    - `waited`: for how many seconds it had been ready.
    - `deadline`: the time on the loop's clock at which its deadline passes, or None.
    - `timeout`: the seconds for a try with which it was put, or None.
    - `lost`: why the lease was lost, or None.
    - `cancelled`: whether its cancellation was requested.

    Thread safety: `payload`, `set_result`, `fail`, `check`, `complete_in` and the guards may be used in a handler's
    thread, the rest on the event loop.
    """

    __slots__ = (
        "_error",
        "_failure",
        "_family",
        "_if_uncommitted",
        "_job",
        "_joined",
        "_meta",
        "_payload",
        "_progress",
        "_queue",
        "_reports",
        "_result",
        "_scope",
        "_session",
        "_since",
        "_trying",
        "_unkept",
        "attempt",
        "cancelled",
        "deadline",
        "deliveries",
        "group",
        "id",
        "lost",
        "priority",
        "timeout",
        "token",
        "waited",
    )

    def __init__(
        self, queue: Source, session: Session, taken: e.Taken, scope: CancelScope | HandlerScope | Batch[Any]
    ) -> None:
        self.id: int = taken.id
        self.token: int = taken.token
        self.priority: int = taken.priority
        self.group: str | None = shown_group(taken.group) if taken.group else None
        self.attempt: int = taken.attempts + 1
        self.deliveries: int = taken.deliveries
        self.waited: float = taken.waited
        self.deadline: float | None = taken.deadline
        self._payload = taken.payload
        self._progress = taken.progress
        self._failure = taken.failure
        self._meta = taken.meta
        self.timeout: float | None = options_in(taken.meta).timeout if taken.meta else None
        self._family: Family | int = taken.entries
        self._reports = 0
        self.lost: str | None = None
        self.cancelled: bool = False
        self._queue = queue
        self._session = session
        # the loop's clock costs ten times as much: not for each task without an observer
        self._since = monotonic() if session.reporter.observer is None else now()
        self._error: BaseException | None = None
        self._scope: CancelScope | HandlerScope | Batch[Any] | None = scope
        self._result = b"null"
        self._joined = False
        self._job: object = None  # whose function handles it
        self._if_uncommitted: e.Settle | None = None
        self._trying: Trying | None = None
        self._unkept: tuple[Exception, str] | None = (
            None  # the error by which a value was refused, the reason
        )
        session.add(self)
        queue._takers.hold(self.token, self)

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled else "held" if self._scope is not None else "settled"
        state = f"lost={self.lost!r}" if self.lost else state
        return f"<Task {self.id} of {self._queue.key} attempt={self.attempt} {state}>"

    @property
    def payload(self) -> P_co:
        """The payload that was put; by default the `thing` of a release. Raises `ValueError` for bad data."""
        if not self._payload and self.thing is not None:
            return cast("P_co", self.thing)
        return decoded(self._queue.codec, f"{self._name}: the payload", self._payload)

    @property
    def thing(self) -> str | None:
        """The name of what a release undoes: the `thing` that its owner was given. None of any other task."""
        queue = options_in(self._meta).thing
        return None if queue is None else thing_of(queue, self.id)

    @property
    def release(self) -> str | None:
        """Of a release, the name that its owner gave it; None of any other task."""
        return options_in(self._meta).release

    @property
    def last_progress(self) -> Any:
        """The last report of an earlier delivery, or None. Raises `ValueError` if the codec refuses it."""
        report = report_in(self._progress)
        return decoded(self._queue.store.codec, f"{self._name}: the progress", report) if report else None

    @property
    def meta(self) -> dict[str, str]:
        """The texts that the producer sent along with the payload."""
        return decode_meta(self._meta)

    def set_result(self, value: Any) -> None:
        """Set the value that `queue.result(task_id)` returns once the task is done; the last call counts.

        Raises `PayloadTooLarge`, and the codec's errors for a value that it cannot express. A task that fails with
        this exception is not tried again: its work is done.
        """
        self._result = self._kept("result", value)

    def _encoded(self, what: str, value: Any) -> bytes:
        queue = self._queue
        return encode(queue.store.codec, queue.key, what, value, queue.max_payload)

    def _kept(self, what: str, value: Any) -> bytes:
        try:
            return self._encoded(what, value)
        except Exception as problem:
            self._note_unkept(problem, f"the {what}, of type {type(value).__name__}, {CANNOT_BE_KEPT}")
            raise

    def _note_unkept(self, problem: Exception, reason: str) -> Exception:
        self._unkept = problem, reason
        problem.add_note(reason)
        return problem

    def fail(self, error: BaseException) -> None:
        """Fail the try of this one task of a batch, as if its handler had raised `error`; the last call counts.

        `RetryLater`, `Discard` and `Dead` have their meaning. Nothing happens before the handler has ended. A task
        that is lost or cancelled stays so. Raises `LeaseLost` after the handler's end, `RuntimeError` for a task that
        is not in a batch, `TypeError` for an object that is no exception.
        """
        if not isinstance(error, BaseException):  # pyright: ignore[reportUnnecessaryIsInstance] users choose it
            raise TypeError(f"error must be an exception, not {error!r}")
        scope = self._scope
        if scope is None:
            raise LeaseLost(self._name, self.lost or "released")
        if isinstance(scope, Batch):
            scope.failures[self.token] = error
        else:
            raise RuntimeError(f"{self!r} is not in a batch: raise the exception instead")  # noqa: TRY004 no argument

    async def progress(self, value: Any) -> None:
        """Report how far the task is: for anybody who looks, and for a next delivery.

        If the cancellation of the task was requested, asynchronous code in the block is cancelled. Raises `LeaseLost`
        if the task is no longer this holder's, `PayloadTooLarge`, `EngineError`, `StoreClosed`, and the errors of the
        codec.
        Cancellation: the report may or may not be stored.
        """
        queue, data = self._queue, self._kept("progress", value)
        self._reports += 1
        report = numbered_report(self.token, self._reports, data)
        answer = await queue._takers.store.call(
            e.Progress(queue.key, self.id, self.token, report), patient=True
        )
        if answer is e.Reply.REFUSED:
            raise LeaseLost(self._name, self.lost or "refused")
        if answer is e.Reply.REQUESTED:
            self._stop()

    @overload
    async def step(
        self, name: str, function: Callable[[], Awaitable[R]], *, find: Callable[[], Any] | None = None
    ) -> R: ...
    @overload
    async def step(
        self, name: str, function: Callable[[], R], *, find: Callable[[], Any] | None = None
    ) -> R: ...
    async def step(
        self, name: str, function: Callable[[], Any], *, find: Callable[[], Any] | None = None
    ) -> Any:
        """Call a function once on record: a later delivery of the task gets the stored value.

        A handler that is delivered again runs again from its start, so put into a step what is costly, or must not
        happen twice. The value is always as `store.codec` decodes it: a tuple is a list. An exception is not stored.
        If the process dies before the value is stored, the function may be called again. A stored value ends the count
        of earlier failures. If the value cannot be kept, the task is dead at once, and a later delivery raises
        `RuntimeError` here.

        With `find`, the step is marked as begun before the first call. A later try asks `find()` first: a value is
        kept; None: call; `OutcomeUnknown`: the task is dead.

        Raises `LeaseLost`, `TaskCancelled` if the cancellation of the task was requested, `RuntimeError` for a name
        that was used before in this delivery, and for more than 10,000 steps; `PayloadTooLarge`, `EngineError`,
        `StoreClosed`, and the errors of the codec and of the function.
        Cancellation: the value may or may not be stored.
        """
        self.check()
        family = self._opened_family()
        try:
            made = await step(family, name, self.check, function, find, self._encoded, self._note_unkept)
        finally:
            if family.progressed:
                self.attempt = 1
        self._check_answer(made)
        return made

    @overload
    def children(
        self,
        queue: None = None,
        name: str = "children",
        *,
        on_failure: OnFailure = "cancel",
        max_children: int = 1_000,
    ) -> Children[Any]: ...
    @overload
    def children(
        self,
        queue: Target[C],
        name: str = "children",
        *,
        on_failure: OnFailure = "cancel",
        max_children: int = 1_000,
    ) -> Children[C]: ...
    def children(
        self,
        queue: Target[Any] | None = None,
        name: str = "children",
        *,
        on_failure: OnFailure = "cancel",
        max_children: int = 1_000,
    ) -> Children[Any]:
        """A block of children: tasks that this task puts into `queue`, and after which it ends, wherever they run.

            async with task.children(pages) as children:
                await children.put(url)

        - `queue`: a `WorkQueue` or a `Job` of the same store; None: the task's own queue.
        - `name`: two blocks of a handler need different names.
        - `on_failure`: "cancel" cancels the siblings of a failed child, and the block raises an `ExceptionGroup` of
          `TaskFailed` and `TaskCancelled`; "collect" lets them go on, and raises nothing.
        - `max_children`: at most 10,000, ended children included.

        At the end of the block, the task is suspended until its children have ended, and holds nothing. Then **its
        handler runs again from its start**: `put` finds the children by their names. Put costly calls into a `step`.

        Raises `RuntimeError` outside of an asynchronous handler's own task, in a batch and in a block of `take`,
        and for a name that was used before in this delivery; `LeaseLost`; `ValueError` and `TypeError`.

        Cancellation: leaving the block, the task is given back, and a later delivery goes on with the children.
        Source: the nursery of trio, kept on record.
        """
        target = self._target("queue", queue)
        self._check_place("children")
        return Children(self, self._opened_family(), target, name, on_failure, max_children)

    async def wait_for(self, name: str, timeout: Seconds | None = None) -> Any:
        """Wait until somebody has sent the task a signal with `WorkQueue.signal`, and return the signal's value.

        The task is suspended meanwhile: its handler is cancelled, and it holds nothing. Then the task is delivered
        again, and **its handler runs again from its start**. A signal that came before is found at once, and may be
        waited for more than once. `timeout` is in seconds from the suspension on; a later signal is refused.

        Raises `TimeoutError`, also in each later delivery; `RuntimeError` where `children` does; `LeaseLost`,
        `EngineError`, `StoreClosed`, and `ValueError` for a value that the codec refuses.
        Cancellation: the task is given back, and a later delivery waits again.
        """
        check_name("name", name)
        timeout = check_timeout("timeout", timeout)
        self._check_place("wait_for")
        family = self._opened_family()
        entry = await family.found(SIGNAL, name)
        self.check()
        if entry is None:
            # the contract has 0 for no timeout
            await self._suspend(
                e.Verdict.WAIT_FOR, SIGNAL + name, max(timeout, 1e-3) if timeout is not None else 0.0
            )
        if entry.state == "expired":
            raise TimeoutError(f"{self._name}: the signal {name!r} has not come in time")
        return decoded(family.codec, f"{self._name}: the signal {name!r}", entry.value)

    @shows_options(PutOptions)
    async def at_end(
        self,
        name: str,
        queue_or_job: Target[Any] | None = None,
        payload: Any = ...,
        *,
        unless_done: bool = False,
        together: bool = False,
        **options: Unpack[PutOptions],
    ) -> Release:
        """Name a release: a task that is put when this task would end, however it ends, and before it has ended.

            release = await task.at_end("sandbox", destroy)
            box = await task.step("launch", partial(launch, release.thing))

        Name it before there is anything to undo. A suspension, a retry and a lost lease begin nothing. The end waits
        for the children, and then for the releases, the last named first. A release that fails is a dead letter. A
        later delivery is given the same release, with its state.

        - `queue_or_job`: None: the task's own queue, whose handler knows a release by `task.thing`. A task of a `Job`
          has to name one.
        - `payload`: by default the release's `thing`.
        - `unless_done`: a task that is done drops the release, since its result hands the thing over.
        - `together`: it runs beside the releases that were named next to it.
        - `options`: as for `children.put`, without `delay` and `at`; `deadline` counts from the beginning.

        Raises as `children.put` does, and `ValueError` for another target or payload than before.
        Cancellation: the release may or may not be named.
        """
        self.check()
        if queue_or_job is None and self._job is not None:
            raise ValueError(
                f"queue_or_job must be given in a task of a Job: else {self._job} would be called for it"
            )
        target, held = self._target("queue_or_job", queue_or_job), check_flag("unless_done", unless_done)
        return await name_release(
            *(self, self._opened_family(), target, name, payload, "unless_done" if held else "end"),
            check_flag("together", together),
            options,
        )

    async def undo(self, name: str) -> None:
        """Begin a release now, and wait for its end, once the children have ended.

        The task is suspended meanwhile, and **its handler runs again from its start**. So between `at_end` and `undo`
        there are only steps: a later delivery passes them when the thing is gone.

        Raises `ReleaseFailed` if the release is a dead letter, in each delivery; `ValueError` for a name that no
        release has; `RuntimeError` for a release that is kept, and where `children` does; `LeaseLost`, `EngineError`,
        `StoreClosed`.
        Cancellation: the release may have begun; a later delivery waits for it.
        """
        check_name("name", name)
        self._check_place("undo")
        entry = await change_release(self, self._opened_family(), name, "begin")
        if entry is None or entry.state == "unfinished":
            await self._suspend(e.Verdict.WAIT, "")
        if entry.state == "kept":
            raise RuntimeError(f"{self._name}: the release {name!r} is kept, so it is never begun")
        if entry.state == "dead":
            raise ReleaseFailed(entry.queue, entry.id, name, entry.value.decode(errors="replace"))

    async def keep(self, name: str) -> bool:
        """Never begin a release: what it would undo is somebody else's now. Returns False if it has begun.

        To hand over the result of the task, use `unless_done` instead: then no cancellation comes between.

        Raises `ValueError` for a name that no release has, `LeaseLost`, `EngineError`, `StoreClosed`.
        Cancellation: the release may or may not be kept.
        """
        check_name("name", name)
        self.check()
        entry = await change_release(self, self._opened_family(), name, "keep")
        return entry is None or entry.state == "kept"

    def check(self) -> None:
        """Raise `LeaseLost` if the task is lost, its time has passed, or the block was left ("released").

        Call it right before a side effect. It sends nothing.
        """
        if self._scope is None:
            raise LeaseLost(self._name, self.lost or "released")
        if self._is_over():
            raise LeaseLost(self._name, self.lost or "expired")

    def _is_over(self) -> bool:
        """True if the time of the lease has passed; from any thread."""
        return self.lost is not None or self._session.is_over()

    def _target(self, argument: str, given: Target[Any] | None) -> Target[Any]:
        target = cast("Target[Any]", self._queue) if given is None else given
        if not isinstance(target, Target):  # pyright: ignore[reportUnnecessaryIsInstance] users are not all type-checked
            raise TypeError(f"{argument} must be a WorkQueue or a Job, not {type(target).__name__}")
        if target._place.store is not self._queue.store:
            raise ValueError(
                f"{argument} must be of the task's own store {self._queue.store!r}, not {target!r}"
            )
        return target

    def _check_place(self, what: str) -> None:
        self.check()
        scope = self._scope
        if isinstance(scope, HandlerScope):
            with suppress(RuntimeError):  # in a thread, no task is running
                if scope.host is this_task():
                    return
            where = "in the handler's own task: an asynchronous handler's, and no task that it has started"
        elif isinstance(scope, Batch):
            where = "in a handler of single tasks, since it interrupts the handler: not in one of batches"
        else:
            where = "in the handler of a Worker, which can be run again: the body of a take() block cannot"
        raise RuntimeError(f"{self._name}: call task.{what} {where}")

    def _opened_family(self) -> Family:
        if isinstance(self._family, int):
            self._family = Family(self._queue, self.id, self.token, self._family)
        return self._family

    async def complete_in(self, connection: object) -> None:
        """Complete the task in a transaction of yours, on a connection to the store's own database.

        So the writes of that transaction take effect exactly once. After the commit the task is done, with the result
        set so far; after a rollback, it is still yours. A block that ends without an exception and without the commit
        fails the try, and raises `LeaseLost` ("uncommitted"). Rules and connections are as for `WorkQueue.put_in`.

        Raises `LeaseLost` if the task is no longer this holder's, and `RuntimeError` for a task with unfinished
        children. Connections raise as in `WorkQueue.put_in`. Cancellation: roll back; it may have been applied in the
        transaction.
        """
        await run_enlisted(connection, self._joining(), self._completed)

    def complete_in_sync(self, connection: object) -> None:
        """Like `complete_in`, with a connection that blocks; in any thread."""
        run_enlisted_sync(connection, self._joining(), self._completed)

    def _joining(self) -> e.Enlistment[e.Reply]:
        self.check()
        queue = self._queue
        return queue._takers.store.enlist(e.Complete(self._session.id, queue.key, self._done()))

    def _completed(self, answer: e.Reply) -> None:
        if answer is e.Reply.CHILDREN:
            raise RuntimeError(f"{self._name} has unfinished children: complete it after their block")
        if answer is not e.Reply.OK:
            raise LeaseLost(self._name, self.lost or answer.value)
        self._joined = True

    def _done(self) -> e.Settle:
        return e.Settle(
            self.id, self.token, e.Verdict.DONE, self._result, 0.0, self._queue._takers.record.current.results
        )

    def _fence(self) -> tuple[str, int]:
        return self._name, self.token

    @property
    def _name(self) -> str:
        return f"{self._queue.key} task {self.id}"

    # for its family

    def _check_answer(self, answer: object) -> None:
        if answer is e.Reply.REFUSED:
            raise LeaseLost(self._name, self.lost or "refused")
        if answer is e.Reply.REQUESTED:
            self._stop()
            raise TaskCancelled(self._queue.key, self.id)

    async def _suspend(self, verdict: e.Verdict, until: str, delay: float = 0.0) -> NoReturn:
        family, scope = self._opened_family(), self._scope
        assert isinstance(scope, HandlerScope)
        family.wait = e.Settle(self.id, self.token, verdict, until.encode(), delay)
        scope.cancel(f"task {self.id} is suspended")
        await anyio.lowlevel.checkpoint_if_cancelled()
        # `wait` stays: a handler that catches this is interrupted where its shield ends
        raise RuntimeError(f"{self._name}: a task cannot be suspended within a shielded cancel scope")

    @property
    def _suspended(self) -> bool:
        return not isinstance(self._family, int) and self._family.wait is not None

    # for the session and the takers

    @property
    def _granted_as(self) -> tuple[str, int] | None:
        """The name and the token; None once the user's transaction may have done the task."""
        return None if self._joined else (f"{self.id} {self.token}", self.token)

    def _lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            if self._scope is not None:
                self._scope.cancel(f"task {self.id} lost: {reason}")

    def _stop(self) -> None:
        if not self.cancelled and self.lost is None and self._scope is not None:
            self.cancelled = True
            self._scope.cancel(f"task {self.id} cancelled")

    def _fail_from_outside(self, problem: Exception) -> e.Operation[Any] | None:
        """The verdict that the handler has failed; None for a settled task. From any thread."""
        if self._scope is None or self._joined:
            return None
        settle = self._verdict(problem, outside=True)  # where no clock of a loop can be read
        return e.Exchange(self._session.id, next(numbers), self._queue.key, (settle,), wait=False)

    # for completing many at once

    def _completion(self, key: str) -> tuple[Session, e.Settle] | None:
        if self._queue.key != key:
            raise ValueError(f"tasks must be of {key}, not {self!r}")
        scope, session = self._scope, self._session
        if scope is None or self.cancelled or self.lost is not None or session.is_over():
            return None
        if isinstance(scope, Batch) and self.token in scope.failures:
            return None
        return session, self._done()

    def _on_completed(self) -> None:
        self._joined = True

    # for the block and the worker

    @property
    def _late(self) -> bool:
        return self.deadline is not None and now() >= self.deadline

    def _limit_to_deadline(self) -> None:
        assert isinstance(self._scope, HandlerScope)
        self._scope.scope.deadline = inf if self.deadline is None else self.deadline

    def _expires_by(self, settle: e.Settle) -> bool:
        return settle.verdict is not e.Verdict.DONE and self._late

    def _verdict(self, failure: BaseException | None, *, outside: bool = False) -> e.Settle:
        if failure is None:
            if self._joined:
                problem = RuntimeError("the transaction that completes the task was not committed")
                self._if_uncommitted = self._verdict(problem)
            elif not isinstance(self._family, int) and (wait := self._waiting(self._family)):
                return wait
            return self._done()
        if isinstance(failure, NotBegun):
            return e.Settle(self.id, self.token, e.Verdict.GIVE_BACK)
        settings = self._queue._takers.record.current
        seconds = None if outside else self._seconds()
        tried = tried_at(self.attempt, self.token, seconds)
        record = recorded(failure, tried, self._failure, with_traceback=settings.tracebacks)
        message = decisive(failure)
        settle = e.Settle(self.id, self.token, e.Verdict.RETRY, failure=record)
        if isinstance(message, Discard):
            reason = message.reason.encode(errors="replace")
            return replace(settle, verdict=e.Verdict.DISCARD, result=reason, ttl=settings.results)
        if isinstance(message, RetryLater) and not message.counts:
            result = e.ANEW if message.resets else b""
            return replace(settle, verdict=e.Verdict.POSTPONE, result=result, delay=message.delay)
        text, retry = error_of(message), options_in(self._meta).retry or self._queue.retry
        if (reason := self._why_unkept(failure)) is not None:
            text += f"\n{NOT_AGAIN}{reason}"
        elif not (isinstance(message, Dead) or self.attempt >= retry.attempts):
            if isinstance(message, RetryLater):
                return replace(settle, delay=message.delay)
            if (refusal := retry.refusal(failure)) is None:
                return replace(settle, delay=retry.delay(self.attempt))
            text += f"\n{refusal}"
        result = text.encode(errors="replace")
        return replace(settle, verdict=e.Verdict.DEAD, result=result, ttl=settings.dead)

    def _why_unkept(self, failure: BaseException) -> str | None:
        for leaf in leaves(failure):
            if self._unkept is not None and leaf is self._unkept[0]:
                return self._unkept[1]
            if isinstance(leaf, TaskFailed):
                reason = leaf.error.rpartition("\n")[2]
                if reason.startswith(NOT_AGAIN) and reason.endswith((CANNOT_BE_KEPT, IS_UNKNOWN)):
                    return reason.removeprefix(NOT_AGAIN)
                if CANNOT_BE_RESULT in leaf.error:
                    return f"the result of a child {CANNOT_BE_KEPT}"
        return None

    def _waiting(self, family: Family) -> e.Settle | None:
        if family.wait is None and family.left:
            return e.Settle(self.id, self.token, e.Verdict.WAIT)
        return family.wait

    def _interrupted(self) -> e.Settle:
        if self._late and not self.cancelled:
            return e.Settle(self.id, self.token, e.Verdict.POSTPONE, delay=_LATE_PAUSE)
        if not (isinstance(self._family, int) or self.cancelled) and (wait := self._family.wait) is not None:
            return wait
        verdict = e.Verdict.CANCEL if self.cancelled else e.Verdict.GIVE_BACK
        return e.Settle(self.id, self.token, verdict, ttl=self._queue._takers.record.current.results)

    def _settle(
        self,
        settle: e.Settle,
        on_settled: Callable[[Task[Any], e.Settle, str | None], object],
        error: BaseException | None = None,
    ) -> None:
        """Let go of the task: synchronous, so that nothing can stop it."""
        self._scope = None
        if settle.verdict is e.Verdict.DONE and self._session.reporter.observer is None:
            answered = partial(on_settled, self, settle)
        else:
            self._error = None if isinstance(error, NotBegun) else error
            answered = partial(self._report, settle, self._seconds(), on_settled)
        if self._if_uncommitted is not None:
            settle, answered = self._if_uncommitted, partial(_refused_if_committed, answered)
        self._queue._takers.settle(self._session, settle, answered)
        self._session.drop(self)

    def _report_loss(self, refused: str) -> None:
        error, self._error = self._error or LeaseLost(self._name, refused), None
        self._session.report_loss("task.lost", refused, **self._about(self._seconds()), error=error)

    def _report(
        self,
        settle: e.Settle,
        seconds: float,
        on_settled: Callable[[Task[Any], e.Settle, str | None], object],
        refused: str | None,
    ) -> None:
        if self._trying is not None:
            lost = LeaseLost(self._name, refused) if refused else None
            self._end_trying(event_of(self, settle, refused), self._error or lost)
        if refused is None:
            # its traceback refers to the task
            error, self._error = self._error, None
            event, reporter = event_of(self, settle, None), self._session.reporter
            if event == "task.dead":
                reporter.warn(event, **self._about(seconds), error=error)
            elif reporter.observer is not None:
                reporter.notice(event, **self._about(seconds), **({"error": error} if error else {}))
        on_settled(self, settle, refused)

    def _seconds(self) -> float:
        return (monotonic() if self._session.reporter.observer is None else now()) - self._since

    def _about(self, seconds: float) -> dict[str, Any]:
        about = {"queue": self._queue.name, "id": self.id, "attempt": self.attempt, "seconds": seconds}
        return about if self.release is None else about | {"release": self.release}

    # for tracing

    def _begin_trying(self) -> None:
        reporter = self._session.reporter
        if reporter.tracing is not None:
            self._trying = reporter.attempt(reporter.tracing.trying, self._queue.key, self)

    def _leave_trying(self) -> None:
        if self._trying is not None:
            self._session.reporter.attempt(self._trying.leave)

    def _abandon_trying(self, error: BaseException) -> None:
        """The handler's coroutine is being closed, and the engine is not asked."""
        self._end_trying("task.lost", error)

    def _end_trying(self, event: str, error: BaseException | None) -> None:
        trying, self._trying = self._trying, None
        if trying is not None:
            self._session.reporter.attempt(trying.end, event.removeprefix("task."), error)


def _refused_if_committed(on_settled: OnSettled, problem: str | None) -> None:
    """A task that is done on record has no holder whose verdict could be accepted."""
    on_settled({None: _UNCOMMITTED, "refused": None}.get(problem, problem))


class TakeBlock(LeasedBlock[Task[P], tuple[Session, e.Taken], bool]):
    __slots__ = ("_answered", "_parked", "_problem", "_queue", "_taken", "_timeout")

    def __init__(self, queue: Source, timeout: Seconds | None) -> None:
        super().__init__(queue._takers.store, queue.key)
        self._queue = queue
        self._timeout = None if timeout is None else check_timeout("timeout", timeout)
        self._taken: tuple[Session, e.Taken] | None = None
        self._answered = False
        self._problem: str | None = "unacknowledged"  # why the engine has not accepted the verdict
        self._parked: Parked | None = None

    @property
    def _name(self) -> str:
        return f"{self._key} task" if self._taken is None else f"{self._key} task {self._taken[1].id}"

    async def _obtain(self) -> tuple[Session, e.Taken]:
        takers = self._queue._takers
        if self._timeout is None:
            self._taken = await takers.take()
            return self._taken
        # one try takes as long as the engine takes to answer, but not for ever when it is away
        with anyio.move_on_after(self._timeout or self._store.settle_timeout):
            self._taken = await (takers.take() if self._timeout else takers.take_at_once())
        if self._taken is None:
            trouble = self._store.dispatchers.trouble(self._key)
            raise AcquireTimeout(self._name, self._timeout, reason=f"the store {trouble}" if trouble else "")
        return self._taken

    def _hand_over(self, obtained: tuple[Session, e.Taken], scope: CancelScope) -> Task[P]:
        task = Task[P](self._queue, *obtained, scope)
        if task.deadline is not None:
            scope.deadline = task.deadline
        if self._store.reporter.tracing is not None:
            task._begin_trying()
        return task

    def _give_back(self, held: Task[P], error: BaseException | None) -> None:
        if self._store.reporter.tracing is not None and this_task() is self._task:
            held._leave_trying()
        failure, interruption = (None, None) if error is None else split_failure(error)
        interrupted = failure is None and interruption is not None
        settle = held._interrupted() if interrupted else held._verdict(failure)
        held._settle(settle, self._on_settled, failure)
        if held.deadline is not None and self._scope is not None:
            self._scope.deadline = inf  # it does not limit the wait for the engine's answer

    def _abandon(self, held: Task[P]) -> None:
        held._settle(e.Settle(held.id, held.token, e.Verdict.GIVE_BACK), self._on_settled)

    def _on_settled(self, task: Task[Any], _: e.Settle, problem: str | None) -> None:
        if problem is not None:
            task._report_loss(problem)
        self._answered = True
        self._problem = problem
        if self._parked is not None:
            wake(self._parked)

    def _acknowledgement(self, held: Task[P], error: BaseException | None) -> tuple[Parked, float] | None:
        if self._answered:
            return None
        self._parked = park()
        assert self._taken is not None
        seconds = self._taken[0].remaining()
        if not _is_silent(error) or held.lost is not None:
            seconds = min(seconds, self._store.settle_timeout)
        return self._parked, seconds

    def _conclude(self, held: Task[P], error: BaseException | None, *, ended_by_us: bool) -> bool:
        if ended_by_us:
            if held.lost is not None:
                raise LeaseLost(self._name, held.lost) from None
            raise TaskCancelled(self._key, held.id) from None
        silent = _is_silent(error)
        if silent and self._problem is not None:
            raise LeaseLost(self._name, held.lost or self._problem) from error
        return silent and error is not None


def _is_silent(error: BaseException | None) -> bool:
    return error is None or are_messages(error)
