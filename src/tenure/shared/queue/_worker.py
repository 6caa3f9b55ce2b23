from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast, overload

import tenure.engine as e
from tenure.arguments import Seconds, check_count, check_seconds, check_timeout, shows_options
from tenure.handlers import adapted, in_thread, is_async, name_of, until_free
from tenure.local import Threads
from tenure.observe import Sample
from tenure.store import handle_of

from ._around import Around, Surroundings, check_around
from ._batch_runners import BatchRunners
from ._dead_letters import DeadLetters
from ._job import Job
from ._payload import P
from ._queue import WorkQueue, check_queue
from ._records import TaskRecord
from ._retry import Retry, check_retry
from ._runners import Handle, Runners
from ._task import Task

if TYPE_CHECKING:
    from tenure.handlers import HandlerProcess

Executor = Literal["thread", "process"]

OnDead = Callable[[TaskRecord[Any]], Any] | Callable[[Task[TaskRecord[Any]]], Any]


class WorkerOptions(TypedDict, total=False):
    """The options of a `Worker` that a `BatchWorker` and a `Processor` take too."""

    timeout: Seconds | None
    """Duration that a try may take. None: no limit."""
    retry: Retry | None
    """The rule for further tries. None: the queue's."""
    prefetch: int | None
    """The number of tasks that are leased ahead while all runners are busy. None: as many as end in two round trips."""
    on_dead: OnDead | None
    """The handler of the `TaskRecord` of each dead letter."""


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """A worker at one moment: how many of its `concurrency` runners are `busy`, and what became of its tasks.

    A busy runner has one task, or one batch. `retried` tries failed and will be repeated, `dead` failed for good, and
    `postponed` ended by `RetryLater(counts=False)`. `suspended` tasks wait for children or a signal, `lost` were
    settled too late, and `expired` were not done by their deadlines. `abandoned` threads of sync handlers still run
    although their tasks are lost or timed out.
    """

    concurrency: int
    busy: int
    done: int
    retried: int
    dead: int
    discarded: int
    cancelled: int
    postponed: int
    given_back: int
    lost: int
    abandoned: int
    suspended: int = 0
    expired: int = 0


class AnyWorker:
    """The common part of workers of tasks and of batches."""

    _is_timeout_for_all: bool = True
    """False if the timeout is for the handler alone, without its managers."""

    def __init__(
        self,
        queue: WorkQueue[Any],
        handler: object,
        adapt: Callable[[Callable[..., Any] | None], Callable[..., Any]],
        *,
        concurrency: int,
        executor: Executor | None,
        around: Sequence[Around] = (),
        timeout: Seconds | None = None,
        retry: Retry | None = None,
        prefetch: int | None = None,
        on_dead: OnDead | None = None,
    ) -> None:
        check_queue(queue)
        if not callable(handler):
            raise TypeError(f"handler must be a function, not {handler!r}")
        concurrency = check_count("concurrency", concurrency)
        if executor not in (None, "thread", "process"):
            raise ValueError(f'executor must be "thread" or "process", not {executor!r}')
        if executor is not None and is_async(handler):
            raise TypeError(
                f"executor is for synchronous handlers, and {name_of(handler)} is a coroutine function"
            )
        timeout = check_timeout("timeout", timeout, least=None)
        self._name = queue.name
        self._store = queue.store
        self._concurrency = concurrency
        self._threads: list[Threads] = []
        self._processes: list[HandlerProcess] = []
        if executor == "process":
            from tenure.handlers import HandlerProcess

            self._processes = [HandlerProcess(handler) for _ in range(concurrency)]
            handles = [adapt(process.call) for process in self._processes]
        elif is_async(handler):
            handles = [adapt(None)] * concurrency
        else:
            # a thread for each runner, so that one whose thread cannot be stopped takes nothing until that has ended
            self._threads = [Threads(1) for _ in range(concurrency)]
            handles = [partial(in_thread, threads, adapt(None)) for threads in self._threads]
        self._surroundings: Surroundings | None = None
        if around:
            self._surroundings = Surroundings(around, timeout, whole=self._is_timeout_for_all)
            handles = [partial(self._surroundings.handle, handle) for handle in handles]
        self._dead = None if on_dead is None else DeadLetters(queue, partial(dead_letter_worker, on_dead))
        self._runners = self._make_runners(
            queue,
            cast("list[Handle]", handles),
            timeout=timeout,
            retry=check_retry(retry),
            prefetch=None if prefetch is None else check_count("prefetch", prefetch, least=0),
            pause=self._pause if self._threads or self._processes else None,
            prepare=self._prepare if self._processes else None,
            on_settled=None if self._dead is None else partial(_wake, self._dead),
            name=name_of(handler),
        )

    def _make_runners(self, queue: WorkQueue[Any], handles: list[Handle], **options: Any) -> Runners:
        return Runners(queue, handles, **options)

    def __repr__(self) -> str:
        runners = self._runners
        state = "draining" if runners.draining else "running" if runners.running else "idle"
        return f"<{type(self).__name__} {self._name!r} {state} busy={runners.busy}/{self._concurrency}>"

    def _pause(self, number: int) -> Awaitable[None] | None:
        if self._processes:
            return self._processes[number].replacing()
        return until_free(self._threads, number)

    async def _prepare(self, number: int) -> None:
        await self._processes[number].start()

    @property
    def unready(self) -> str | None:
        """The reason why the worker cannot take tasks, in words.

        None if the store can work, exchanges come back, and a thread is free or at work.
        """
        return self._store.unready or self._runners.stalled or self._hanging

    @property
    def _hanging(self) -> str | None:
        abandoned = sum(threads.statistics().abandoned for threads in self._threads)
        if not abandoned or abandoned < self._concurrency:
            return None
        return f"each of its {abandoned:,} threads is in a handler that was abandoned and has not ended"

    async def run(self) -> None:
        """Work until cancelled or drained; once only.

        Raises `StoreClosed`, `EngineError`; `RuntimeError` if it runs already, or was drained.
        Cancellation: handlers are cancelled; their tasks and those leased ahead are given back, without counting an
        attempt.
        """
        if self._runners.running:
            raise RuntimeError(f"{self!r}: runs already")
        try:
            await (self._runners.run() if self._dead is None else self._dead.run(self._runners.run))
        finally:
            for process in self._processes:
                await process.end()

    async def drain(self) -> None:
        """Take no more tasks, finish those at hand, end `run`; return when that is done and no task is leased.

        Tasks that wait for what is `around` are given back. Cancellation: the worker goes on draining.
        """
        if self._runners.running:
            handle_of(self._store).home.check()
        if self._surroundings is not None:
            self._surroundings.drain()
        await self._runners.drain()
        if self._dead is not None:
            await self._dead.drained()

    def statistics(self) -> WorkerStatistics:
        """The worker at this moment."""
        counts = self._runners.counts
        return WorkerStatistics(
            concurrency=self._concurrency,
            busy=self._runners.busy,
            done=counts["task.done"],
            retried=counts["task.retry"],
            dead=counts["task.dead"],
            discarded=counts["task.discarded"],
            cancelled=counts["task.cancelled"],
            postponed=counts["task.postponed"],
            given_back=counts["task.given_back"],
            lost=counts["task.lost"],
            abandoned=sum(threads.statistics().abandoned for threads in self._threads),
            suspended=counts["task.suspended"],
            expired=counts["task.expired"],
        )

    def samples(self) -> tuple[Sample, ...]:
        """The figures of the worker, for collectors, as `PrometheusObserver().watch(worker)`. Works from any thread."""
        seen, of = self.statistics(), {"queue": self._name}
        return (
            Sample("worker_concurrency", "gauge", "Runners of the worker.", of, seen.concurrency),
            Sample("worker_busy", "gauge", "Runners that have a task or a batch.", of, seen.busy),
            *(
                Sample("worker_tasks", "counter", "Tasks by outcome.", {**of, "outcome": name}, count)
                for name, count in asdict(seen).items()
                if name not in ("concurrency", "busy", "abandoned")
            ),
        )


class Worker(AnyWorker):
    """Takes the tasks of a queue, `concurrency` at a time, and calls `handler` for each.

        async def send(mail: Mail) -> None: ...

        await Worker(queue, send, timeout=30).run()

    - `handler`: its first parameter gets the payload, or the task if it is annotated `Task`. A sync function runs
      in a thread. `Worker(job)` calls the function of a `Job`.
    - `timeout`: seconds for a try, which then fails with `TimeoutError`.
    - `retry`: when failed tries are repeated; the queue's by default.
    - `prefetch`: tasks leased ahead; by default as many as end in two round trips.
    - `executor`: "process" runs a sync handler in processes, which can be killed.
    - `on_dead`: a handler of the `TaskRecord` of each dead letter.
    - `around`: functions of the task that return async context managers. A parameter annotated with the class of
      a manager's value gets it.

    The return value is the result. An exception fails the try; `RetryLater`, `Discard` and `Dead` decide otherwise.

    Raises `TypeError` for a handler with a parameter that nothing fills, or with a parameter named `task` without an
    annotation.
    Cancellation: see `run`.
    """

    @overload
    def __init__(
        self,
        queue: WorkQueue[P],
        handler: Callable[[P], Any] | Callable[[Task[P]], Any],
        *,
        concurrency: int = 10,
        executor: Executor | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        queue: WorkQueue[Any],
        handler: Callable[..., Any],
        *,
        around: Sequence[Around],
        concurrency: int = 10,
        executor: Executor | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        queue: Job[..., Any],
        *,
        concurrency: int = 10,
        executor: Executor | None = None,
        around: Sequence[Around] = (),
        **options: Unpack[WorkerOptions],
    ) -> None: ...
    @shows_options(WorkerOptions)
    def __init__(
        self,
        queue: WorkQueue[Any] | Job[..., Any],
        handler: Callable[..., Any] | None = None,
        *,
        concurrency: int = 10,
        executor: Executor | None = None,
        around: Sequence[Around] = (),
        **options: Unpack[WorkerOptions],
    ) -> None:
        job = queue if isinstance(queue, Job) else None
        if isinstance(queue, Job):
            if handler is not None:
                raise TypeError(f"handler must not be given with a job: {queue!r} has its function")
            queue, handler = queue.queue, queue.function
        around = check_around(around)

        def adapt(instead: Callable[..., Any] | None) -> Callable[..., Any]:
            assert handler is not None
            if job is not None:
                return adapted(job._handler(instead), around=bool(around))  # pyright: ignore[reportPrivateUsage]
            return adapted(handler, around=bool(around), instead=instead)

        super().__init__(
            *(queue, handler, adapt), concurrency=concurrency, executor=executor, around=around, **options
        )


class BatchWorker(AnyWorker):
    """Takes the tasks of a queue in batches, `concurrency` batches at a time, and calls `handler` for each batch.

    The handler gets a list of up to `size` payloads (at most 256), or tasks if its parameter is annotated
    `list[Task]`: those that there are, and those that come within `linger` seconds after the first. It returns None.
    Each task keeps its own lease and verdict: `task.fail(error)` fails one, the handler's exception fails all others;
    else they are done, with the results of `task.set_result`. A lost or cancelled task says so in `lost` or
    `cancelled`, and `complete_in` leaves it out; the handler is cancelled when no other task is left. `timeout` is for
    the batch. The other options are as of a `Worker`.
    """

    def __init__(
        self,
        queue: WorkQueue[P],
        handler: Callable[[list[P]], Awaitable[None] | None]
        | Callable[[list[Task[P]]], Awaitable[None] | None],
        *,
        size: int,
        linger: Seconds = 0.0,
        concurrency: int = 10,
        executor: Executor | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        self._size = check_count("size", size, most=e.CAP)
        self._linger = check_seconds("linger", linger)
        super().__init__(
            *(queue, handler, partial(_adapted_to_batches, handler)),
            concurrency=concurrency,
            executor=executor,
            **options,
        )

    def _make_runners(self, queue: WorkQueue[Any], handles: list[Handle], **options: Any) -> Runners:
        return BatchRunners(queue, handles, batch=self._size, linger=self._linger, **options)


def _adapted_to_batches(
    handler: Callable[..., Any], instead: Callable[..., Any] | None
) -> Callable[..., Any]:
    return adapted(handler, batch=True, instead=instead)


def dead_letter_worker(handler: OnDead, queue: WorkQueue[Any]) -> Worker:
    try:
        return Worker(queue, handler)
    except TypeError as problem:
        raise TypeError(f"on_dead: {problem}") from None


def _wake(dead: DeadLetters, task: Task[Any], settle: e.Settle, refused: str | None) -> None:
    del task
    if refused is None and settle.verdict is e.Verdict.DEAD:
        dead.wake()
