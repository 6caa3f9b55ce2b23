from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Any, Self, Unpack

import anyio
from anyio import AsyncContextManagerMixin

from tenure.arguments import AsyncBlock, Seconds, check_flag, check_number, check_timeout, shows_options
from tenure.errors import AcquireTimeout, DuplicateTask, StoreUnavailable
from tenure.limits import Limit
from tenure.local import Bulkhead, CircuitBreaker, Pool
from tenure.observe import LoggingObserver, Sample
from tenure.shared import (
    PutOptions,
    QueueOptions,
    RateLimiter,
    ResourcePool,
    Semaphore,
    WorkerOptions,
    WorkQueue,
)
from tenure.store import Store, handle_of
from tenure.upkeep import Upkeep, unwrapped_task_group
from tenure.waiting import now

from ._adaptive import Adaptive
from ._fleet import Fleet, Fleets, Report
from ._kind_worker import KindWorker, Parts
from ._meter import Meter
from ._metrics import Errors, Latencies, LockTimes, Metrics, Utilisation, Waits, times_of
from ._minutes import Minutes
from ._monitor import Monitor
from ._polling import EVERY, repeat, watch_heartbeats
from ._presets import Preset, preset_of
from ._samples import samples_of
from ._settings import Around, Claims, check_maker, check_type, shares
from ._window import Tally


class Processor(AsyncBlock, AsyncContextManagerMixin):
    """A `Worker` for each kind of task, with claims, connections, a rate and more around the handler, measured.

        async with Processor(store, "harvest", handler, preset="small", timeout=30) as processor:
            await processor.submit("page 1", priority=10)
            await processor.join()

    - `preset`: a `Preset`, or its name: sizes and a rate.
    - `workers`: tasks at once. `kinds`: bulkheads, the workers of each kind. `lend`: idle workers help other kinds.
    - `claims`: a `ResourcePool` or `Claims`, for a claim. `pool`: makes a `local.Pool` for connections.
    - `rate`: starts per second of all processes.
    - `breaker`: makes a breaker for each kind.
    - `limit`: a `Semaphore`: each task has a permit.
    - `adaptive`: follows latency.
    - `around`, `retry`, `prefetch`, `on_dead`: as of a `Worker`.
    - `timeout`: limits the handler and none of the waits.

    A parameter of the handler that is annotated `Context` gets the context. Leaving the block drains.

    Raises `TypeError` and `ValueError` for invalid settings; entering, `CapacityMismatch` if others use the limit
    with another number of permits.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        handler: Callable[..., Any],
        *,
        preset: str | Preset | None = None,
        workers: int | None = None,
        kinds: Mapping[str, int] | None = None,
        lend: bool = False,
        claims: ResourcePool | Claims | None = None,
        pool: Callable[..., Pool[Any]] | None = None,
        rate: float | None = None,
        breaker: Callable[..., CircuitBreaker] | None = None,
        limit: Semaphore | None = None,
        adaptive: bool | Adaptive = False,
        around: Sequence[Around] = (),
        **worker_options: Unpack[WorkerOptions],
    ) -> None:
        check_maker("pool", pool)
        check_maker("breaker", breaker)
        check_type("limit", limit, Semaphore)
        check_type("claims", claims, ResourcePool, Claims)
        if not isinstance(adaptive, bool | Adaptive):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"adaptive must be True, False or an Adaptive, not {adaptive!r}")
        settings: QueueOptions = {}
        if (preset := preset_of(preset)) is not None:
            workers = preset.workers if workers is None else workers
            rate = preset.rate if rate is None else rate
            settings = {"max_size": preset.queue_size}
            pool = pool and partial(pool, max_size=preset.connections)
        self.name = name
        self._store = store
        sizes = shares(workers, kinds or {})
        self.workers: int = sum(sizes.values())
        if check_flag("lend", lend) and not kinds:
            raise ValueError("lend needs kinds=: without them there is no kind to lend to")
        self._parts = parts = Parts(
            limit=limit,
            claims=Claims(claims) if isinstance(claims, ResourcePool) else claims,
            make_pool=pool,
            adaptive=Adaptive() if adaptive is True else adaptive or None,
            around=around,
        )
        if lend:
            parts.places = Bulkhead(self.workers, shares=dict[Hashable, float](sizes.items()))
        if rate not in (None, inf):
            parts.limiter = RateLimiter(store, name, Limit(check_number("rate", rate)))
        self._workers: dict[str | None, KindWorker] = {}
        for kind, size in sizes.items():
            queue = WorkQueue(store, name if kind is None else f"{name}/{kind}", **settings)
            self._workers[kind] = KindWorker(
                *(queue, handler, size, parts, Meter(name, kind, store.observer or LoggingObserver())),
                workers=self.workers if lend else size,
                breaker=breaker and breaker(name=queue.name),
                options=worker_options,
            )
        self._resources = self._polls = 0
        self._fleets = Fleets(handle_of(store), name, self._report)
        self._minutes = Minutes()
        self._samples: tuple[Sample, ...] = ()
        self._entered = False
        self._draining = anyio.Event()
        self._ended = anyio.Event()

    def __repr__(self) -> str:
        state = "draining" if self._draining.is_set() else "running" if self._entered else "new"
        state = "ended" if self._ended.is_set() else state
        busy = sum(worker.busy for worker in self._workers.values())
        return f"<Processor {self.name!r} {state} busy={busy}/{self.workers}>"

    # submitting

    @shows_options(PutOptions, priority=0, delay=0.0)
    async def submit(self, payload: Any, *, kind: str | None = None, **options: Unpack[PutOptions]) -> int:
        """Put a task into the queue of its kind and return its id; waits in line while that is full.

        Options and errors are as of `WorkQueue.put`; `ValueError` for an unknown kind. A handler that submits to a
        full queue may wait for itself: use `queue(kind).try_put` there.
        Cancellation: as with `WorkQueue.put`.
        """
        task_id = await self.queue(kind).put(payload, **options)
        self._workers[kind].meter.depth += 1
        return task_id

    async def submit_many(self, items: Iterable[Any], kind: str | None = None) -> list[int | DuplicateTask]:
        """Put many tasks, payloads or `Item`s, as `WorkQueue.put_many` does.

        Cancellation: portions that were put stay.
        """
        outcomes = await self.queue(kind).put_many(items)
        self._workers[kind].meter.depth += sum(isinstance(outcome, int) for outcome in outcomes)
        return outcomes

    def queue(self, kind: str | None = None) -> WorkQueue:
        """The queue of a kind: for results, cancelling, dead letters. Raises `ValueError` if there is no such kind."""
        if kind not in self._workers:
            names = ", ".join(repr(each) for each in self._workers)
            raise ValueError(f"kind must be one of {names}, not {kind!r}")
        return self._workers[kind].queue

    async def join(self) -> None:
        """Wait until no task of any kind is unfinished, in no process. Raises `StoreClosed`."""
        queues = [worker.queue for worker in self._workers.values()]
        while True:
            for queue in queues:
                await queue.join()
            # the last to end may have submitted to a queue that was seen empty before
            with suppress(StoreUnavailable):  # `join` waits for the store
                if len(queues) == 1 or not any([(await queue.statistics()).unfinished for queue in queues]):
                    return

    @property
    def unready(self) -> str | None:
        """The reason why the processor cannot take tasks, in words; None if the store and its exchanges work."""
        return next(filter(None, (worker.unready for worker in self._workers.values())), None)

    async def run(self) -> None:
        """Enter the processor, and work until cancelled or drained: for `serve`. Raises the errors of the block.

        Cancellation: handlers are cancelled and their tasks given back, without counting an attempt.
        """
        async with self:
            await self._draining.wait()

    async def drain(self, grace: Seconds | None = None) -> None:
        """Take no more tasks, give back those that have not started, finish the others, and return.

        After `grace` seconds (None: never) the handlers that still run are cancelled and their tasks given back,
        without counting an attempt. Tasks may still be submitted, for other processes. Raises `RuntimeError` if the
        processor was not entered.
        Cancellation: it goes on draining.
        """
        grace = check_timeout("grace", grace)
        self._check_entered()
        handle_of(self._store).home.check()
        self._draining.set()
        with anyio.move_on_after(grace) as limit:
            await self._drain_workers()
        if limit.cancelled_caught:
            for worker in self._workers.values():
                if worker.scope is not None:
                    worker.scope.cancel("the grace is over")
            await self._drain_workers()

    # looking

    def metrics(self) -> Metrics:
        """The metrics of this process, over the last minute. Raises `RuntimeError` if the processor was not entered."""
        self._check_entered()
        at = now()
        tallies = {kind: worker.meter.tally(at) for kind, worker in self._workers.items()}
        kinds = {kind: self._metrics(tallies[kind], [worker], {}) for kind, worker in self._workers.items()}
        return self._metrics(Tally(tallies.values()), list(self._workers.values()), kinds)

    async def fleet(self) -> Fleet:
        """The metrics of all processes together. Raises `StoreClosed`, `EngineError`."""
        self._check_entered()
        queues = {kind: await worker.queue.statistics() for kind, worker in self._workers.items()}
        claims = self._parts.claims
        return await self._fleets.read(queues, claims and await claims.pool.statistics())

    def samples(self) -> tuple[Sample, ...]:
        """The figures as they were last taken, every five seconds, for collectors. Works from any thread."""
        return self._samples

    def monitor(self, every: Seconds = 10.0) -> Monitor:
        """The metrics every `every` seconds, until the processor ends: `async for metrics in processor.monitor()`."""
        self._check_entered()
        return Monitor(self.metrics, self._ended, every)

    def _metrics(
        self, tally: Tally, workers: list[KindWorker], kinds: Mapping[str | None, Metrics]
    ) -> Metrics:
        size = sum(each.size for each in workers)
        meters = [each.meter for each in workers]
        pool, limit = self._parts.pool, self._parts.limit
        capacity = {
            "workers": size,
            "claims": self._resources,
            "connections": pool and pool.statistics().max_size,
            "limit": limit and limit.permits,
        }
        return Metrics(
            seconds=tally.seconds,
            workers=size,
            limit=min(self.workers, sum(each.allowed for each in workers)),
            busy=sum(each.busy for each in workers),
            throughput=tally.rate("done"),
            latency=times_of(Latencies, tally),
            waits=times_of(Waits, tally),
            queue_depth=sum(max(0, each.depth) for each in meters),
            queue_suspended=sum(each.suspended for each in meters),
            queue_ending=sum(each.ending for each in meters),
            oldest=max(each.oldest for each in meters),
            figures_age=now() - min(max(each.born, each.polled_at) for each in meters),
            utilisation=Utilisation(
                **{name: tally.mean(name) / most if most else 0.0 for name, most in capacity.items()}
            ),
            errors=Errors(*(60 * tally.rate(name) for name in Errors.__dataclass_fields__)),
            locks=times_of(LockTimes, tally),
            heartbeats_late=tally.counts["heartbeats_late"],
            totals=tally.totals,
            kinds=MappingProxyType(kinds),
        )

    # inside

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        if self._entered:
            raise RuntimeError(f"{self!r}: entered before; make a new one")
        handle_of(self._store).home.check()
        self._entered = True
        async with AsyncExitStack() as stack:
            stack.callback(self._ended.set)
            if self._parts.limit is not None:
                with suppress(AcquireTimeout):  # but no `CapacityMismatch`
                    async with self._parts.limit.hold(timeout=0):
                        pass
            if self._parts.make_pool is not None:
                self._parts.pool = await stack.enter_async_context(self._parts.make_pool())
            for worker in self._workers.values():
                if worker.breaker is not None:
                    stack.callback(worker.breaker.on_change(worker.on_breaker))
            self._samples = samples_of(self.name, self.metrics())
            async with unwrapped_task_group() as group:
                upkeep = Upkeep(group)
                first = next(iter(self._workers.values()))
                upkeep.start(f"processor {self.name} polls", repeat, self._poll)
                upkeep.start(f"processor {self.name} reports", repeat, partial(self._fleets.belong, EVERY))
                upkeep.start(
                    f"processor {self.name} watches heartbeats", watch_heartbeats, first.queue, first.meter
                )
                try:
                    for worker in self._workers.values():
                        group.start_soon(worker.run, name=f"tenure processor {worker.queue.name}")
                    yield self
                    await self.drain()
                finally:
                    upkeep.cancel()

    async def _drain_workers(self) -> None:
        async with unwrapped_task_group() as group:
            for worker in self._workers.values():
                group.start_soon(worker.drain)

    async def _poll(self) -> None:
        try:
            for workers in self._workers.values():
                workers.meter.polled(await workers.queue.statistics())
            # that lists the whole pool, and changes seldom
            if (claims := self._parts.claims) is not None and self._polls % 12 == 0:
                self._resources = (await claims.pool.statistics()).size
            self._polls += 1
        finally:
            self._samples = samples_of(self.name, self.metrics())

    def _report(self) -> Report:
        at = now()
        tally = Tally(worker.meter.tally(at) for worker in self._workers.values())
        return Report(
            self.workers,
            sum(workers.busy for workers in self._workers.values()),
            tally.rate("done"),
            tally,
            self._minutes.taken(tally, at),
        )

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeError(f"{self!r}: use `async with` to enter it first")
