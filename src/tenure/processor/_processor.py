"""The processor: a queue and its workers, with all that their handlers need, and measured."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Any, Self, TypedDict, Unpack

import anyio
from anyio import AsyncContextManagerMixin

from tenure.arguments import AsyncBlock, check_seconds, check_timeout, shows_options
from tenure.errors import DuplicateTask, StoreUnavailable
from tenure.handlers import adapted
from tenure.local import CircuitBreaker, Pool
from tenure.observe import LoggingObserver, Observer, Sample, check_observer, log
from tenure.shared import (
    DeadLetters,
    MoreOptions,
    RateLimiter,
    ResourcePool,
    Retry,
    Semaphore,
    WorkQueue,
    dead_letter_worker,
)
from tenure.store import Store
from tenure.upkeep import Upkeep, unwrapped_task_group
from tenure.waiting import now

from ._adaptive import Adaptive
from ._fleet import Fleet, Fleets, Report
from ._kind_workers import KindWorkers, Parts, Where
from ._meter import Meter
from ._metrics import Metrics, metrics_of
from ._minutes import Minutes
from ._monitor import Monitor
from ._permits import agree_on
from ._places import SharedSlots
from ._polling import poll, watch_heartbeats
from ._presets import Preset, preset_of
from ._samples import samples_of
from ._settings import (
    Handler,
    check_adaptive,
    check_claims,
    check_connections,
    check_functions,
    check_lend,
    check_type,
    shares,
)
from ._window import Tally, total_of


class Overrides(TypedDict, total=False):
    """The fields of a preset to override."""

    workers: int
    connections: int
    rate: float | None
    queue_size: int


class Processor(AsyncBlock, AsyncContextManagerMixin):
    """Runs `handler` for each task that is submitted, here or in any process with one of the same name.

    `async with Processor(...) as processor` runs its workers; leaving the block drains them. Tasks wait in a
    `WorkQueue` of the processor's name, so they are leased and fenced, survive this process, and submitters wait while
    it is full.

    `handler` gets the payload or the task, as the handler of a `Worker` does. A parameter annotated `Context` gets the
    context.

    `preset` is a name of `PRESETS` or a `Preset`. It limits the rate too: without any argument, to 100 tasks a second
    in all processes; the log says so at level INFO. `workers`, `connections`, `rate` (None: no limit) and `queue_size`
    override its fields. The rate is one for all processes, the rest for each process. A task enters, in this order,
    what there is of: a claim of `claims` that matches `where` (a mapping, or a function of the task), a connection of
    `pool`, the rate, the circuit breaker; and leaves it in the opposite order, however it ends. `pool` makes a
    `local.Pool`, given `max_size=`, as `partial(Pool, connect, close=...)` does; `breaker` makes a circuit breaker for
    each kind, given `name=`. A task that the breaker does not let start waits until it does.

    `kinds` are bulkheads: each kind has a queue (`name/kind`) and that many of the workers for itself; the workers that
    no kind has are for tasks of no kind. With `lend`, those that are idle are lent to kinds that have work, and come
    back with the end of a task. `limit` is a `Semaphore`: a worker holds one of its permits before it takes a task, so
    no more tasks run at once in all processes than it has permits.

    `adaptive` lowers the number of tasks at once when they take longer than they need to. `timeout` limits the handler,
    `claim_timeout`, `connection_timeout` and `lock_timeout` the waits (None: for ever), `grace` how long `drain` waits
    for handlers; all in seconds. `retry` is the queue's by default; `queue_options` are options of `WorkQueue`. Every
    `poll_every` seconds the engine is asked how the queues are. `observer` (the store's by default, else the log) gets
    the events that begin with `processor.`. `on_dead` is a handler of dead letters, as of a `Worker`; each kind
    has a queue for them, such as `name/kind.dead`.

    Raises `TypeError` and `ValueError` for settings that are invalid or cannot work together. Entering raises
    `CapacityMismatch` if others use the limit with another number of permits.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        handler: Handler,
        *,
        preset: str | Preset = "medium",
        kinds: Mapping[str, int] | None = None,
        lend: bool = False,
        limit: Semaphore | None = None,
        claims: ResourcePool | None = None,
        where: Where | None = None,
        claim_timeout: float | None = None,
        pool: Callable[..., Pool[Any]] | None = None,
        connection_timeout: float | None = None,
        breaker: Callable[..., CircuitBreaker] | None = None,
        timeout: float | None = None,
        lock_timeout: float | None = None,
        adaptive: bool | Adaptive = False,
        grace: float | None = None,
        retry: Retry | None = None,
        poll_every: float = 5.0,
        observer: Observer | None = None,
        queue_options: Mapping[str, Any] | None = None,
        on_dead: Callable[[Any], Any] | None = None,
        **overrides: Unpack[Overrides],
    ) -> None:
        check_functions(handler, {"pool": pool, "breaker": breaker})
        check_claims(claims, where)
        check_type("retry", retry, Retry)
        check_type("limit", limit, Semaphore)
        # a rate that nobody has asked for by its number
        self._rate_of = preset if isinstance(preset, str) and "rate" not in overrides else None
        if overrides.get("rate", 1) is None:
            overrides["rate"] = inf
        self.preset: Preset = replace(preset_of(preset), **overrides)
        self.name = name
        self._store = store
        self._handler = adapted(handler, around=True)
        self._shares = shares(self.preset.workers, kinds or {})
        self._lend = check_lend(lend, kinds)
        self._limit = limit
        check_type("queue_options", queue_options, Mapping)
        options: dict[str, Any] = {"max_size": self.preset.queue_size, **(queue_options or {})}
        self._queues = {
            kind: WorkQueue(store, name if kind is None else f"{name}/{kind}", **options)
            for kind in self._shares
        }
        self._claims = claims
        self._where = where
        self._claim_timeout = check_timeout("claim_timeout", claim_timeout)
        self._make_pool = pool
        self._connection_timeout = check_timeout("connection_timeout", connection_timeout)
        self._make_breaker = breaker
        self._timeout = check_timeout("timeout", timeout, least=None)
        self._lock_timeout = check_timeout("lock_timeout", lock_timeout)
        self._adaptive = check_adaptive(adaptive)
        self._grace = check_timeout("grace", grace)
        self._retry = retry
        self._poll_every = check_seconds("poll_every", poll_every, least=None)
        self._observer = check_observer(observer) or store.observer or LoggingObserver()
        if pool is not None:
            check_connections(self.preset, self._connection_timeout, self._timeout)
        self._dead = {
            kind: DeadLetters(queue, partial(dead_letter_worker, on_dead)) if on_dead is not None else None
            for kind, queue in self._queues.items()
        }
        self._workers: dict[str | None, KindWorkers] = {}
        self._resources = self._polls = 0
        self._fleets = Fleets(store, name, self._report)
        self._minutes = Minutes()
        self._samples: tuple[Sample, ...] = ()
        self._closed = anyio.Event()
        self._draining = anyio.Event()
        self._state = "new"

    def __repr__(self) -> str:
        busy = sum(workers.busy for workers in self._workers.values())
        return f"<Processor {self.name!r} {self._state} busy={busy}/{self.preset.workers}>"

    # submitting

    @shows_options(MoreOptions)
    async def submit(
        self,
        payload: Any,
        priority: int = 0,
        delay: float = 0.0,
        key: str | None = None,
        expires: float | None = None,
        *,
        kind: str | None = None,
        **options: Unpack[MoreOptions],
    ) -> int:
        """Put a task into the queue of its kind and return its id; waits in line while that is full.

        Options and errors are as of `WorkQueue.put`; `ValueError` for a kind that there is not. A handler that
        submits to a full queue may wait for itself: use `queue(kind).try_put` there.
        Cancellation: while waiting, nothing is put and no place is kept; when it is under way, it may be put.
        """
        task_id = await self.queue(kind).put(payload, priority, delay, key, expires, **options)
        self._submitted(kind, 1)
        return task_id

    async def submit_many(self, items: Iterable[Any], kind: str | None = None) -> list[int | DuplicateTask]:
        """Put many tasks, payloads or `Item`s, and return for each its id or the `DuplicateTask` in its way.

        As `WorkQueue.put_many`. Cancellation: portions that were put stay.
        """
        outcomes = await self.queue(kind).put_many(items)
        self._submitted(kind, sum(isinstance(outcome, int) for outcome in outcomes))
        return outcomes

    def queue(self, kind: str | None = None) -> WorkQueue:
        """The queue of a kind: for results, cancelling, dead letters. Raises `ValueError` if there is no such kind."""
        if kind not in self._queues:
            names = ", ".join(repr(each) for each in self._queues)
            raise ValueError(f"kind must be one of {names}, not {kind!r}")
        return self._queues[kind]

    async def join(self) -> None:
        """Wait until no task of any kind is unfinished, in no process. Raises `StoreClosed`."""
        while True:
            for queue in self._queues.values():
                await queue.join()
            # the last to end may have submitted to a queue that was seen empty before
            with suppress(StoreUnavailable):  # `join` waits for the store
                if len(self._queues) == 1 or not any(
                    [(await queue.statistics()).unfinished for queue in self._queues.values()]
                ):
                    return

    @property
    def ready(self) -> bool:
        """True if tasks can be taken: the store is `ready`, and exchanges come back."""
        return self.unready is None

    @property
    def unready(self) -> str | None:
        """The reason why the processor is not `ready`, in words; None if it is."""
        if (reason := self._store.unready) is not None:
            return reason
        return next((reason for each in self._workers.values() if (reason := each.stalled) is not None), None)

    async def run(self) -> None:
        """Enter the processor, and work until cancelled or drained: for `serve`. Raises what the block would raise.

        Cancellation: handlers are cancelled and their tasks given back, without counting an attempt.
        """
        async with self:
            await self._draining.wait()

    async def drain(self) -> None:
        """Take no more tasks, give back those that have not started, finish the others, and return.

        After `grace` seconds the handlers that still run are cancelled and their tasks given back, without counting an
        attempt. Tasks may still be submitted, for other processes. `RuntimeError` if the processor was not entered.
        Cancellation: it goes on draining.
        """
        if self._state == "new":
            self._check_entered()
        self._state = "draining"
        self._draining.set()
        all_workers = list(self._workers.values())
        for workers in all_workers:
            workers.begin_draining()
        with anyio.move_on_after(self._grace) as grace:
            for workers in all_workers:
                await workers.drain()
        if grace.cancelled_caught:
            for workers in all_workers:
                workers.scope.cancel("the grace is over")
            for workers in all_workers:
                await workers.drain()

    # looking

    def metrics(self) -> Metrics:
        """The metrics of this process, over the last minute. Raises `RuntimeError` if the processor was not entered."""
        self._check_entered()
        at = now()
        tallies = {kind: workers.meter.window.tally(at) for kind, workers in self._workers.items()}
        whole = total_of(tallies.values())
        kinds = {kind: self._metrics(tallies[kind], [workers], {}) for kind, workers in self._workers.items()}
        return self._metrics(whole, list(self._workers.values()), kinds)

    async def fleet(self) -> Fleet:
        """The metrics of all processes together. Raises `StoreClosed`, `EngineError`."""
        self._check_entered()
        return await self._fleets.read(self._queues, self._claims)

    def samples(self) -> tuple[Sample, ...]:
        """The figures as they were last taken, every `poll_every` seconds, for collectors. Works from any thread."""
        return self._samples

    def monitor(self, every: float = 10.0) -> Monitor:
        """The metrics every `every` seconds, until the processor ends: `async for metrics in processor.monitor()`."""
        self._check_entered()
        return Monitor(self.metrics, self._closed, check_seconds("every", every, least=None))

    def _metrics(
        self, tally: Tally, workers: list[KindWorkers], kinds: Mapping[str | None, Metrics]
    ) -> Metrics:
        return metrics_of(
            tally,
            workers=sum(each.size for each in workers),
            limit=min(self.preset.workers, sum(each.allowed for each in workers)),
            busy=sum(each.busy for each in workers),
            depth=sum(each.meter.depth for each in workers),
            suspended=sum(each.meter.suspended for each in workers),
            ending=sum(each.meter.ending for each in workers),
            oldest=max(each.meter.oldest for each in workers),
            figures_age=max(each.meter.since_poll for each in workers),
            resources=self._resources,
            connections=0 if self._make_pool is None else self.preset.connections,
            permits=0 if self._limit is None else self._limit.permits,
            kinds=MappingProxyType(kinds),
        )

    # inside

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        if self._state != "new":
            raise RuntimeError(f"{self!r}: entered before; make a new one")
        self._store.home.check()
        self._state = "running"
        if self._rate_of is not None:
            limit = f"limited to {self.preset.rate:g} tasks/s by preset {self._rate_of}"
            log(logging.INFO, f"processor {self.name}: {limit}; rate=None lifts the limit")
        if self._limit is not None:
            await agree_on(self._limit)
        async with AsyncExitStack() as stack:
            pool = None
            if self._make_pool is not None:
                pool = await stack.enter_async_context(self._make_pool(max_size=self.preset.connections))
            self._make_workers(pool)
            self._samples = samples_of(self.name, self.metrics())
            stack.callback(self._end)
            async with unwrapped_task_group() as group:
                upkeep = Upkeep(group)
                first = next(iter(self._workers.values()))
                upkeep.start(f"processor {self.name} polls", poll, self._poll, self._poll_every)
                upkeep.start(f"processor {self.name} reports", self._fleets.belong, self._poll_every)
                upkeep.start(
                    f"processor {self.name} watches heartbeats", watch_heartbeats, first.queue, first.meter
                )
                try:
                    for workers in self._workers.values():
                        group.start_soon(_run, workers, name=f"tenure processor {workers.queue.name}")
                    yield self
                    await self.drain()
                finally:
                    upkeep.cancel()

    def _make_workers(self, pool: Pool[Any] | None) -> None:
        rate = self.preset.rate
        parts = Parts(
            handler=self._handler,
            timeout=self._timeout,
            claims=self._claims,
            where=self._where,
            claim_timeout=self._claim_timeout,
            pool=pool,
            connection_timeout=self._connection_timeout,
            limiter=None if rate == inf else RateLimiter(self._store, self.name, rate=rate),
            lock_timeout=self._lock_timeout,
            places=SharedSlots(self._shares) if self._lend else None,
            limit=self._limit,
        )
        for kind, size in self._shares.items():
            queue = self._queues[kind]
            self._workers[kind] = KindWorkers(
                queue,
                kind,
                size,
                parts,
                Meter(self.name, kind, self._observer),
                retry=self._retry,
                breaker=self._make_breaker and self._make_breaker(name=queue.name),
                adaptive=self._adaptive,
                dead=self._dead[kind],
            )

    def _end(self) -> None:
        self._state = "ended"
        self._closed.set()

    async def _poll(self) -> None:
        try:
            for workers in self._workers.values():
                workers.meter.polled(await workers.queue.statistics())
            # that lists the whole pool, and changes seldom
            if self._claims is not None and self._polls % 12 == 0:
                self._resources = (await self._claims.statistics()).size
            self._polls += 1
        finally:
            self._samples = samples_of(self.name, self.metrics())

    def _report(self) -> Report:
        at = now()
        tally = total_of(workers.meter.window.tally(at) for workers in self._workers.values())
        done = tally.counts["done"]
        throughput = done / tally.seconds if tally.seconds else 0.0
        return Report(
            self.preset.workers,
            sum(workers.busy for workers in self._workers.values()),
            throughput,
            tally,
            self._minutes.taken(tally, at),
        )

    def _submitted(self, kind: str | None, tasks: int) -> None:
        if kind in self._workers:
            self._workers[kind].meter.queued(tasks)

    def _check_entered(self) -> None:
        if not self._workers:
            raise RuntimeError(f"{self!r}: use `async with` to enter it first")


async def _run(workers: KindWorkers) -> None:
    with workers.scope:
        await workers.run()
