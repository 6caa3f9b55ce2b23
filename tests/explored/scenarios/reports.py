"""Nothing fails silently: each verdict has its event, and each exception of a user's function is seen."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager, suppress

import anyio
import anyio.lowlevel
from explored.catalogue import on_every_engine, scenario
from explored.world import pause

from tenure import (
    CircuitOpen,
    Discard,
    Lock,
    PoolTimeout,
    ResourcePool,
    Retry,
    RetryLater,
    Task,
    Worker,
    WorkQueue,
)
from tenure.local import CircuitBreaker, Coalescer, KeyedPool, Pool, SingleFlight
from tenure.testing import cancellable

FAILED = {"task.retry", "task.dead", "task.discarded", "task.postponed", "task.lost"}


class Trouble(Exception):
    """Of a user's function."""


class Witness(logging.Handler):
    """Notes what users' functions raise, what the observer gets and what is logged; at the end nothing is missing.

    The observer itself raises, too, with every third event.
    """

    def __init__(self):
        super().__init__()
        self.raised = []
        self.tries = Counter()
        self.events = []
        self.observed = []
        self.caught = []
        self.logged = []
        self.left_out = Counter()

    def fails(self, kind=Trouble, *args):
        """Raise an exception as a user's function does."""
        self.raised.append(kind(*args))
        raise self.raised[-1]

    def notice(self, event, /, **fields):
        self.events.append((event, fields))
        if len(self.events) % 3 == 0:
            self.observed.append(Trouble(event))
            raise self.observed[-1]

    def emit(self, record):
        if hasattr(record, "tenure_left_out"):
            self.left_out[record.message if hasattr(record, "message") else record.getMessage()] += (
                record.tenure_left_out
            )
        elif hasattr(record, "tenure_error"):
            self.logged.append(record.tenure_error)

    @contextmanager
    def catches(self):
        """Where the user's code gets what its own functions have raised."""
        try:
            yield
        except Trouble as error:
            self.caught.append(error)

    @contextmanager
    def judges(self):
        """A stretch at the end of which, however it ends, everything was seen."""
        logger = logging.getLogger("tenure")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
            self.judge()

    def judge(self):
        tasks = [(event, fields) for event, fields in self.events if event.startswith("task.")]
        for event, fields in tasks:
            assert event not in FAILED or isinstance(fields["error"], BaseException), (event, fields)
        if self.tries:
            assert Counter((fields["id"], fields["attempt"]) for _, fields in tasks) == self.tries
        reported = Counter(id(fields["error"]) for _, fields in self.events if "error" in fields)
        logged = Counter(map(id, self.logged))
        for error in self.raised:
            ways = (reported[id(error)], any(error is one for one in self.caught), logged[id(error)])
            assert ways[0] <= 1 and any(ways), f"{error!r} was reported, caught, logged: {ways}"
        lines = sum(logged[id(error)] for error in self.observed)
        left_out = sum(count for line, count in self.left_out.items() if line.startswith("the observer"))
        assert lines + left_out == len(self.observed), "what the observer raised"


@on_every_engine("shared.Worker.run")
async def each_try_has_one_event_with_its_error(world):
    witness = Witness()
    with witness.judges():
        async with world.open(observer=witness) as store:
            queue = WorkQueue(store, "q", retry=Retry(attempts=2, backoff=0.05, jitter=0))

            async def handle(task: Task):
                witness.tries[task.id, task.attempt] += 1
                match task.payload:
                    case "fails":
                        await pause()
                        witness.fails()
                    case "exits":
                        witness.fails(SystemExit, 3)
                    case "later" if witness.tries[task.id, task.attempt] == 1:
                        witness.fails(RetryLater, 0.05)
                    case "discard":
                        witness.fails(Discard, "no")
                    case "slow":
                        await anyio.sleep(20)
                    case "cancelled":
                        await queue.cancel(task.id)
                        await anyio.sleep(1)
                    case _:
                        with cancellable():
                            await pause()

            worker = Worker(queue, handle, concurrency=3, timeout=10)

            async def dying():
                with cancellable():
                    await Worker(queue, handle, concurrency=2).run()

            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                group.start_soon(dying)
                await queue.put_many(["done", "fails", "exits", "later", "discard", "slow", "cancelled"])
                with anyio.move_on_after(world.patience):
                    await queue.join()
                group.cancel_scope.cancel()


@on_every_engine("shared.WorkQueue.take", "shared.ResourcePool.claim")
async def what_blocks_and_checks_raise_is_reported_once(world):
    witness = Witness()
    with witness.judges():
        async with world.open(observer=witness) as store:
            queue = WorkQueue(store, "q", retry=Retry(attempts=2, backoff=0.05, jitter=0))

            async def taker():
                with cancellable(), witness.catches(), suppress(TimeoutError):
                    async with queue.take(1) as task:
                        await pause()
                        witness.fails(*((Trouble,), (RetryLater, 0.05), (Discard, "no"))[task.payload])

            async def check(claim):
                await pause()
                witness.fails()

            resources = ResourcePool(store, "keys", check=check)

            async def claimer():
                with cancellable(), suppress(TimeoutError):
                    async with resources.claim(timeout=1):
                        pass

            async with anyio.create_task_group() as group:
                await queue.put_many([0, 1, 2])
                await resources.add("k")
                for _ in range(4):
                    group.start_soon(taker)
                group.start_soon(claimer)
            async with Lock(store, "x"):
                pass


@scenario("local.Pool.acquire", "local.KeyedPool.acquire")
async def what_the_hooks_of_pools_raise_is_reported():
    witness = Witness()

    def create(*_):
        if len(witness.raised) % 4 == 3:
            witness.fails()
        return object()

    async def fails_at_once(*_):
        witness.fails()

    async def fails_later(*_):
        await pause()
        witness.fails()

    options = {"close": fails_later, "check": fails_later, "observer": witness, "check_after_idle": 0}
    pool = Pool(create, reset=fails_at_once, max_size=2, **options)
    keyed = KeyedPool(create, max_per_key=1, max_total=1, on_evict=fails_later, **options)

    async def borrower(acquire):
        with cancellable(), suppress(PoolTimeout), witness.catches():
            async with acquire():
                await pause()

    with witness.judges():
        async with pool, keyed:
            async with anyio.create_task_group() as group:
                for key in "aba":
                    group.start_soon(borrower, lambda: pool.acquire(timeout=1))
                    group.start_soon(borrower, lambda key=key: keyed.acquire(key, timeout=1))


@scenario("local.CircuitBreaker.call")
async def what_the_listeners_of_a_breaker_raise_is_reported():
    witness = Witness()

    def matches(error):
        return witness.fails() if len(witness.raised) == 1 else True

    breaker = CircuitBreaker(window=2, min_calls=2, open_seconds=0.05, record=matches)
    breaker.on_change(lambda old, new: witness.fails())

    async def caller():
        with cancellable(), witness.catches(), suppress(CircuitOpen):
            await pause()
            await breaker.call(fails)

    async def fails():
        await anyio.lowlevel.checkpoint()
        witness.fails()

    with witness.judges():
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(caller)


@scenario("local.Coalescer.put", "local.SingleFlight.run")
async def what_shared_calls_raise_is_raised_in_a_caller_or_logged():
    witness = Witness()

    async def fails(*_):
        try:
            await pause()
        finally:
            witness.fails()

    with witness.judges():
        async with Coalescer(fails, window=0.02, max_items=2) as coalescer, SingleFlight() as flight:

            async def putter(key):
                with cancellable(), witness.catches():
                    await coalescer.put(key, key)

            async def caller(key):
                with cancellable(), witness.catches():
                    await flight.run(key, fails)

            async with anyio.create_task_group() as group:
                for key in "aab":
                    group.start_soon(putter, key)
                    group.start_soon(caller, key)
