"""A process of `tenure work`: a store, and a worker on it or a program of the user's."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from tenure.arguments import LONGEST
from tenure.cli._arguments import run_on
from tenure.cli._errors import UsageError
from tenure.cli._handler import Handler, HandlerCodec, load_handler
from tenure.cli._parent import parent_ended
from tenure.cli._table import many
from tenure.cli._with_store import check_visible
from tenure.engines import open_store
from tenure.errors import EngineError, StoreUnavailable
from tenure.observe import LoggingObserver, exposition, log
from tenure.serving import Serving, answering, signals_received
from tenure.shared import (
    BatchWorker,
    QueueFigures,
    QueueOptions,
    Retry,
    Schedule,
    Worker,
    WorkerStatistics,
    WorkQueue,
)
from tenure.store import Store, handle_of
from tenure.upkeep import leaves, unwrapped_task_group
from tenure.waiting import now

from ._children import LONG, RENEW, TOLD
from ._failure import report
from ._log import start_logging

_STALLED = 10.0
_TURN = 0.1
_CONCURRENCY = 10
_ENDS = ("done", "retried", "dead", "given_back")
_RARE_ENDS = ("discarded", "cancelled", "expired", "postponed", "suspended", "lost")


@dataclass(frozen=True, slots=True)
class Options:
    handler: str
    queue: str | None
    store: str
    store_option: str
    namespace: str
    ttl: float
    concurrency: int | None
    batch: int | None
    linger: float | None
    every: float | None
    cron: str | None
    tz: str | None
    timeout: float | None
    retries: int | None
    max_deliveries: int | None
    executor: Literal["thread", "process"] | None
    on_dead: str | None
    health: tuple[str | None, int] | None
    metrics: tuple[str | None, int] | None
    grace: float
    backend: str
    log_level: str
    log_format: str
    parent: int | None
    told: tuple[int, int] | None
    deaths: int
    until_empty: bool | None
    max_tasks: int | None
    max_memory: int | None


def work_here(options: Options) -> int:
    handler = load_handler(options.handler)
    on_dead = None if options.on_dead is None else load_handler(options.on_dead)
    _check(options, handler, on_dead)
    # after the import of the handler, which may set up logging itself
    ours = start_logging(options.log_level, options.log_format)
    try:
        return run_on(options.backend, _serve, options, handler, on_dead)
    except (Exception, BaseExceptionGroup) as problem:
        if any(isinstance(leaf, UsageError) for leaf in leaves(problem)):
            raise
        module = options.handler.partition(":")[0]
        report(problem, module, text=options.log_format == "text", ours=ours, told=options.told)
        return 1


def _check(options: Options, handler: Handler, on_dead: Handler | None) -> None:
    if not handler.wants_store:
        if options.queue is None:
            raise UsageError("--queue is missing: name the queue whose tasks the handler gets")
        handler.of_tasks(batch=options.batch is not None)
        if options.executor is not None:
            _check_executor(options, handler)
        if on_dead is not None:
            if on_dead.wants_store:
                raise UsageError(
                    f"--on-dead: {options.on_dead} takes a store; it gets the record of a dead task"
                )
            on_dead.of_tasks()
        _check_schedule(options)
        check_visible(options.store, options.store_option)
        return
    if not handler.is_async:
        raise UsageError(f"{options.handler} takes a store, so it has to be an async function")
    for name in (
        "queue",
        "concurrency",
        "batch",
        "every",
        "cron",
        "tz",
        "timeout",
        "retries",
        "max_deliveries",
        "executor",
        "on_dead",
        "until_empty",
        "max_tasks",
        "max_memory",
    ):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} is for a handler of tasks; {options.handler} takes a store"
            )


def _check_executor(options: Options, handler: Handler) -> None:
    make = _worker_class(options)
    try:
        make(WorkQueue(open_store("memory:"), "any"), handler.function, executor=options.executor)
    except TypeError as problem:
        raise UsageError(f"--executor {options.executor}: {problem}") from problem


def _worker_class(options: Options) -> Callable[..., Worker | BatchWorker]:
    if options.batch is None:
        return Worker
    return partial(BatchWorker, size=options.batch, linger=options.linger or 0.0)


def _check_schedule(options: Options) -> None:
    if options.every is not None and options.cron is not None:
        raise UsageError("--every or --cron, not both")
    if options.tz is not None and options.cron is None:
        raise UsageError("--tz is for --cron")
    try:
        _schedule(options, WorkQueue(open_store("memory:"), "any"))
    except ModuleNotFoundError as problem:
        raise UsageError(str(problem)) from problem
    except ValueError as problem:
        raise UsageError(f"--{problem}") from problem


def _schedule(options: Options, queue: WorkQueue[Any]) -> Schedule[Any] | None:
    if options.every is not None:
        return Schedule(queue, queue.name, every=options.every)
    return (
        None
        if options.cron is None
        else Schedule(queue, queue.name, cron=options.cron, tz=options.tz or "UTC")
    )


async def _serve(options: Options, handler: Handler, on_dead: Handler | None) -> int:
    working = _Working(options, handler, on_dead)
    serving = Serving([working], grace=options.grace)
    async with AsyncExitStack() as stack:
        on_signal = serving.on_signal if options.parent is None else partial(_on_signal, serving)
        await stack.enter_async_context(signals_received(on_signal))
        if options.health is not None:
            ports = stack.enter_context(answering(*options.health, _STALLED, serving.unready))
            working.health = f", health checks at port {ports[0]}"
        if options.metrics is not None:
            ports = stack.enter_context(
                answering(*options.metrics, _STALLED, serving.unready, working.metrics)
            )
            working.health += f", metrics at port {ports[0]}"
        async with unwrapped_task_group() as group:
            if options.parent is not None:
                group.start_soon(_watch_parent, options.parent, serving)
                group.start_soon(working.tell_parent, group)
            finished = await serving.run()
            group.cancel_scope.cancel()
    return 0 if finished else 1


def _on_signal(serving: Serving, number: signal.Signals) -> None:
    """Heed a signal in a child: a supervisor may send SIGTERM to all processes at once, and the parent passes it on."""
    if number is signal.SIGINT:
        serving.cancel(number.name)
    else:
        serving.ask(number.name)


async def _watch_parent(parent: int, serving: Serving) -> None:
    await parent_ended(parent)
    serving.ask("the process that has started this one has ended")


class _Working:
    """The service: it opens the store itself, so that health checks and signals are served meanwhile."""

    def __init__(self, options: Options, handler: Handler, on_dead: Handler | None) -> None:
        self.health = ""
        self._options = options
        self._handler = handler
        self._on_dead = on_dead
        self._store: Store | None = None
        self._worker: Worker | BatchWorker | None = None
        self._figures: QueueFigures | None = None
        self._scope = CancelScope()
        # a process that dies at each start does not fill the log
        self._starts = logging.DEBUG if options.deaths > 1 else logging.INFO

    def __repr__(self) -> str:
        return "<tenure work>" if self._worker is None else repr(self._worker)

    @property
    def unready(self) -> str | None:
        works = self._store if self._worker is None else self._worker
        return "not connected yet" if works is None else works.unready

    def metrics(self) -> tuple[bool, str]:
        figures, worker = self._figures, self._worker
        if figures is None or figures.problem is not None:
            return False, "not connected yet" if figures is None else figures.problem or ""
        return True, exposition([*figures.samples(), *(() if worker is None else worker.samples())])

    async def run(self) -> None:
        with self._scope:
            async with AsyncExitStack() as stack:
                store = await self._open(stack)
                began = now()
                try:
                    async with unwrapped_task_group() as group:
                        if self._options.metrics is not None:
                            self._figures = QueueFigures(store)
                            group.start_soon(self._figures.run)
                        await self._work(store)
                        group.cancel_scope.cancel()
                finally:
                    fields = {} if self._worker is None else _outcomes(self._worker.statistics())
                    if self._starts == logging.INFO or now() - began >= LONG:
                        seconds = round(now() - began, 1)
                        handle_of(store).reporter.inform("work.ended", **fields, seconds=seconds)

    async def drain(self) -> None:
        if self._worker is None:
            self._scope.cancel("stopped")
        else:
            await self._worker.drain()

    async def tell_parent(self, group: TaskGroup) -> None:
        """Tell how many tasks this process has, and let it be replaced once it has done, or used, enough."""
        options, renews = self._options, ""
        one, more = ("task", "tasks") if options.batch is None else ("batch", "batches")
        while options.told is not None:
            await anyio.sleep(_TURN)
            if (worker := self._worker) is None:
                continue
            busy, done = worker.statistics().busy, _outcomes(worker.statistics())["taken"]
            if not renews:
                if options.max_tasks is not None and done >= options.max_tasks:
                    renews = f"has done {many(done, 'task', 'tasks')}"
                elif options.max_memory is not None and done and _memory() > options.max_memory:
                    renews = f"has used {_memory() >> 20:,} MiB of memory"
                if renews:  # without the grace, which is for signals
                    log(logging.INFO, f"{renews}: finishes what has begun, and is replaced")
                    group.start_soon(worker.drain)
            has = f", with {many(busy, one, more)} in work" if busy else ""
            text = f"{RENEW if renews else ''}{has}, after {many(done, 'task', 'tasks')}"
            with suppress(OSError):  # a full disk
                file, place = options.told
                os.pwrite(file, text.encode().ljust(TOLD), place)

    async def _open(self, stack: AsyncExitStack) -> Store:
        try:
            self._store = open_store(
                self._options.store,
                namespace=self._options.namespace,
                ttl=self._options.ttl,
                codec=None if self._handler.wants_store else HandlerCodec(),
                retry=LONGEST,
                observer=LoggingObserver() if self._options.log_level == "debug" else None,
            )
            return await stack.enter_async_context(self._store)
        except (ValueError, ModuleNotFoundError, EngineError) as problem:
            raise UsageError(f"{self._options.store_option}: {problem}") from problem

    async def _work(self, store: Store) -> None:
        options = self._options
        if options.queue is None:
            log(self._starts, f"runs {options.handler} with {store.url}{self.health}; Ctrl-C stops it")
            await self._handler.function(store)
            return
        concurrency = options.concurrency or _CONCURRENCY
        named: QueueOptions = (
            {} if options.max_deliveries is None else {"max_deliveries": options.max_deliveries}
        )
        queue = WorkQueue[Any](store, options.queue, **named)
        worker = self._worker = _worker_class(options)(
            queue,
            self._handler.function,
            concurrency=concurrency,
            timeout=options.timeout,
            retry=None if options.retries is None else Retry(attempts=options.retries),
            executor=options.executor,
            on_dead=None if self._on_dead is None else self._on_dead.function,
        )
        batches = "" if options.batch is None else f" batches of up to {options.batch}"
        log(
            self._starts,
            f"{options.handler} works on queue {options.queue} of {store.url}, {concurrency:,}{batches} at"
            f" once{self.health}; Ctrl-C stops it",
        )
        async with unwrapped_task_group() as group:
            group.start_soon(queue.schedules.run)
            if (schedule := _schedule(options, queue)) is not None:
                group.start_soon(schedule.run)
            if options.until_empty:
                group.start_soon(_drain_when_empty, queue, worker)
            await worker.run()
            group.cancel_scope.cancel()


async def _drain_when_empty(queue: WorkQueue[Any], worker: Worker | BatchWorker) -> None:
    while True:
        await anyio.sleep(_TURN)  # the schedules put first what is due
        with suppress(StoreUnavailable):
            if not worker.statistics().busy:
                seen = await queue.statistics()
                if not seen.waiting and not seen.leased:
                    break
    log(logging.INFO, f"nothing waits in queue {queue.name}: ends")
    await worker.drain()


def _memory() -> int:
    import resource  # Windows has none

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used << 10


def _outcomes(statistics: WorkerStatistics) -> dict[str, int]:
    ends = {name: getattr(statistics, name) for name in (*_ENDS, *_RARE_ENDS)}
    return {"taken": sum(ends.values())} | {n: count for n, count in ends.items() if count or n in _ENDS}
