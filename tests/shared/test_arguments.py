"""Arguments at the front door: refused by name on every engine, or plain values by the time an engine sees them."""

from __future__ import annotations

import dataclasses
import inspect
from contextlib import suppress
from datetime import timedelta
from enum import IntEnum, StrEnum
from importlib import import_module
from math import inf, nan

import anyio
import pytest

import tenure
from tenure import (
    AcquireTimeout,
    Barrier,
    DuplicateTask,
    Election,
    Item,
    Job,
    Keep,
    Key,
    Limit,
    Lock,
    PoolTimeout,
    RateLimiter,
    ResourcePool,
    Retry,
    RetryLater,
    RWLock,
    Schedule,
    Semaphore,
    Worker,
    WorkQueue,
)
from tenure.engines.memory import MemoryEngine
from tenure.engines.sqlite import SqliteEngine
from tenure.local import Coalescer, KeyedPool, TokenBucket
from tenure.processor import Processor
from tenure.serving import serve
from tenure.store import Store
from tenure.testing import FaultyEngine


class Number(IntEnum):
    ONE = 1
    TWO = 2


class Word(StrEnum):
    NAME = "name"


class Said(StrEnum):
    KEEP = "keep"


class Seconds(float):
    pass


async def put_dead(queue):
    number = await queue.put(1)
    with pytest.raises(ZeroDivisionError):
        async with queue.take():
            1 / 0  # noqa: B018
    return number


async def use_everything(store):
    """Each argument that an engine gets to see, as something that is less plain than it looks."""
    one, two, name, second = Number.ONE, Number.TWO, Word.NAME, Seconds(1)
    async with Lock(store, name, ttl=Seconds(5)).hold(timeout=second):
        pass
    async with Semaphore(store, name, two).hold(one, timeout=one):
        pass
    await Semaphore(store, "s", one).resize(two)
    async with RWLock(store, name, ttl=two).read(timeout=second):
        pass
    async with Election(store, name, node=name).term(timeout=one) as term:
        assert term.node == "name"
    await Barrier(store, name, one).wait()
    limiter = RateLimiter(store, name, Limit(two, per=second, burst=two))
    assert await limiter.try_acquire(one)
    await limiter.acquire(second)
    pool = ResourcePool(store, name, quarantine=second)
    await pool.add(name, {name: 1}, one)
    async with pool.claim(one, {name: 1}, quarantine=second) as claim:
        await claim.cool_down(second)
    queue = WorkQueue(
        store,
        name,
        max_size=Number.TWO,
        aging=second,
        retry=Retry(attempts=one, backoff=second, factor=second),
        max_deliveries=two,
        keep=Keep(results=second),
        max_payload=1000,
    )
    key = Key(name, Said.KEEP, second / 1000)
    done = await queue.put(1, priority=one, delay=second / 1000, key=key, expires=second)
    async with queue.take(timeout=two):
        pass
    await queue.result(done)
    assert not await queue.cancel(one)
    await queue.put_many([Item(1, priority=two, delay=Seconds(0))], cursor=(name, 1))
    await queue.purge("waiting")
    dead = await put_dead(queue)
    assert len((await queue.tasks("dead", limit=two).page(limit=two)).records) == 1
    assert await queue.requeue([type(one)(one)]) == 0
    assert await queue.requeue([dead]) == 1


async def test_what_is_less_plain_than_it_looks_is_used_on_every_engine(open_store_on):
    async with open_store_on(ttl=Seconds(3), settle_timeout=Number.ONE, close_timeout=Number.ONE) as store:
        with anyio.fail_after(20):
            await use_everything(store)


PLAIN = (int, float, str, bytes, bool, type(None))


def leaves(value):
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name))
    elif isinstance(value, tuple | frozenset | list):
        for part in value:
            yield from leaves(part)
    elif not type(value).__module__.startswith("tenure.engine"):
        yield value


class Customs(FaultyEngine):
    """Looks at everything that comes in."""

    def __init__(self):
        super().__init__(MemoryEngine())
        self.seen = 0

    async def execute(self, operations):
        for operation in operations:
            self.seen += 1
            for leaf in leaves(operation):
                assert type(leaf) in PLAIN, (operation, leaf)
        return await super().execute(operations)


async def test_an_engine_sees_nothing_but_plain_values():
    engine = Customs()
    async with tenure.open_store(engine, ttl=Seconds(3)) as store:
        await use_everything(store)
    assert engine.seen > 30


NAMES = {
    "Lock": Lock,
    "Semaphore": lambda store, name: Semaphore(store, name, 1),
    "RWLock": RWLock,
    "Election": Election,
    "Election.node": lambda store, name: Election(store, "e", node=name),
    "Barrier": lambda store, name: Barrier(store, name, 1),
    "RateLimiter": lambda store, name: RateLimiter(store, name, Limit(1)),
    "ResourcePool": ResourcePool,
    "ResourcePool.add": lambda store, name: ResourcePool(store, "p").add(name),
    "ResourcePool.add, metadata": lambda store, name: ResourcePool(store, "p").add("r", {name: 1}),
    "ResourcePool.claim": lambda store, name: ResourcePool(store, "p").claim(where={name: 1}),
    "ResourcePool.remove": lambda store, name: ResourcePool(store, "p").remove(name),
    "WorkQueue": WorkQueue,
    "WorkQueue.put": lambda store, name: WorkQueue(store, "q").put(1, key=name),
    "WorkQueue.put_many": lambda store, name: WorkQueue(store, "q").put_many([], cursor=(name, 1)),
    "open_store": lambda store, name: tenure.open_store("memory:", namespace=name),
}


@pytest.mark.parametrize("what", NAMES)
async def test_every_name_has_one_limit(faulty_store, what):
    for wrong in ("", 5, b"a", True, "\ud800", "a" * 513, "é" * 257):
        with pytest.raises((ValueError, TypeError), match=r"must (be a str|not|have at most 512 bytes)"):
            if (result := NAMES[what](faulty_store, wrong)) is not None and inspect.iscoroutine(result):
                await result
    result = NAMES[what](faulty_store, "é" * 256)
    if inspect.iscoroutine(result):
        await result


LONG = [inf, nan, -1, -inf, "1", True, 1e9 + 1, 10**400, timedelta(seconds=-1), timedelta.max]

DURATIONS = {
    "ttl of a store": lambda store, queue, s: tenure.open_store("memory:", ttl=s),
    "settle_timeout": lambda store, queue, s: tenure.open_store("memory:", settle_timeout=s),
    "close_timeout": lambda store, queue, s: tenure.open_store("memory:", close_timeout=s),
    "keep.keys": lambda store, queue, s: WorkQueue(store, "x", keep=Keep(keys=s)),
    "ttl of Key": lambda store, queue, s: queue.put(1, key=Key("k", ttl=s)),
    "within of Key": lambda store, queue, s: queue.put(1, key=Key("k", "replace", within=s)),
    "deadline": lambda store, queue, s: queue.put(1, deadline=s),
    "timeout of a put": lambda store, queue, s: queue.put(1, timeout=s),
    "jitter": lambda store, queue, s: Schedule(queue, "x", every=1, jitter=s),
    "seconds of RateLimiter.hold_off": lambda store, queue, s: RateLimiter(store, "x", Limit(1)).hold_off(s),
    "ttl of Lock": lambda store, queue, s: Lock(store, "x", ttl=s),
    "ttl of Semaphore": lambda store, queue, s: Semaphore(store, "x", 1, ttl=s),
    "ttl of RWLock": lambda store, queue, s: RWLock(store, "x", ttl=s),
    "ttl of Election": lambda store, queue, s: Election(store, "x", ttl=s),
    "ttl of Barrier": lambda store, queue, s: Barrier(store, "x", 1, ttl=s),
    "ttl of ResourcePool": lambda store, queue, s: ResourcePool(store, "x", ttl=s),
    "timeout of hold": lambda store, queue, s: Lock(store, "x").hold(timeout=s),
    "timeout of read": lambda store, queue, s: RWLock(store, "x").read(timeout=s),
    "timeout of term": lambda store, queue, s: Election(store, "x").term(timeout=s),
    "timeout of claim": lambda store, queue, s: ResourcePool(store, "x").claim(timeout=s),
    "quarantine": lambda store, queue, s: ResourcePool(store, "x", quarantine=s),
    "quarantine of claim": lambda store, queue, s: ResourcePool(store, "x").claim(quarantine=s),
    "check_timeout": lambda store, queue, s: ResourcePool(store, "x", check_timeout=s),
    "per": lambda store, queue, s: RateLimiter(store, "x", Limit(1, per=s)),
    "aging": lambda store, queue, s: WorkQueue(store, "x", aging=s),
    "keep.results": lambda store, queue, s: WorkQueue(store, "x", keep=Keep(results=s)),
    "delay": lambda store, queue, s: queue.put(1, delay=s),
    "expires": lambda store, queue, s: queue.put(1, expires=s),
    "delay of Item": lambda store, queue, s: queue.put_many([Item(1, delay=s)]),
    "expires of Item": lambda store, queue, s: queue.put_many([Item(1, expires=s)]),
    "timeout of take": lambda store, queue, s: queue.take(timeout=s),
    "timeout of Worker": lambda store, queue, s: Worker(queue, print, timeout=s),
    "backoff": lambda store, queue, s: Retry(backoff=s),
    "max_backoff": lambda store, queue, s: Retry(max_backoff=s),
    "delay of RetryLater": lambda store, queue, s: RetryLater(s),
}


@pytest.mark.parametrize("what", DURATIONS)
async def test_every_duration_has_one_bound(faulty_store, what):
    queue = WorkQueue(faulty_store, "jobs")
    for wrong in LONG:
        with pytest.raises((ValueError, TypeError), match=rf"^{what.split()[0]} must be"):
            if inspect.iscoroutine(result := DURATIONS[what](faulty_store, queue, wrong)):
                await result
    assert (await queue.statistics()).put == 0
    for right in (1e9, timedelta(seconds=1e9)):
        with suppress(DuplicateTask):
            if inspect.iscoroutine(result := DURATIONS[what](faulty_store, queue, right)):
                await result


COUNTS = {
    "permits": lambda store, queue, n: Semaphore(store, "x", n),
    "permits of hold": lambda store, queue, n: Semaphore(store, "x", 5).hold(n),
    "permits of resize": lambda store, queue, n: Semaphore(store, "x", 5).resize(n),
    "parties": lambda store, queue, n: Barrier(store, "x", n),
    "max_size": lambda store, queue, n: WorkQueue(store, "x", max_size=n),
    "max_deliveries": lambda store, queue, n: WorkQueue(store, "x", max_deliveries=n),
    "max_payload": lambda store, queue, n: WorkQueue(store, "x", max_payload=n),
    "priority": lambda store, queue, n: queue.put(1, priority=n or None),
    "limit": lambda store, queue, n: queue.tasks("dead").page(limit=n),
    "limit of a listing": lambda store, queue, n: queue.tasks("dead", limit=0 if n is None else n),
    "task_id of cancel": lambda store, queue, n: queue.cancel(n),
    "task_id of result": lambda store, queue, n: queue.result(n),
    "task_ids": lambda store, queue, n: queue.requeue([n]),
    "concurrency": lambda store, queue, n: Worker(queue, print, concurrency=n),
    "prefetch": lambda store, queue, n: Worker(queue, print, prefetch="" if n in (None, 0) else n),
    "attempts": lambda store, queue, n: Retry(attempts=n),
    "preference": lambda store, queue, n: ResourcePool(store, "x").add("r", preference=n or None),
}


@pytest.mark.parametrize("what", COUNTS)
async def test_every_number_is_an_int_within_bounds(faulty_store, what):
    queue = WorkQueue(faulty_store, "jobs")
    for wrong in (True, False, "1", 1.0, None, 0, 2**63, 10**30):
        with pytest.raises((ValueError, TypeError), match=rf"^{what.split()[0]} must be"):
            if inspect.iscoroutine(result := COUNTS[what](faulty_store, queue, wrong)):
                await result
    assert (await queue.statistics()).put == 0


@pytest.mark.parametrize(
    "options", [{"rate": 1e-6, "per": 1e9}, {"rate": 1, "burst": 1e10}, {"rate": 1e12, "per": 0.1}]
)
async def test_rates_that_no_clock_can_keep(faulty_store, options):
    with pytest.raises(ValueError, match="^rate must be at most 1e\\+12 a second, and bring the burst"):
        Limit(**options)


async def test_the_slowest_rate_works_on_every_engine(store):
    limiter = RateLimiter(store, "slow", Limit(1, per=1e9))
    assert await limiter.try_acquire()
    assert not await limiter.try_acquire()


async def test_the_longest_durations_harm_nobody(open_store_on):
    """One call with a huge duration made a whole server useless, for everybody and for good."""
    async with open_store_on(ttl=1e9, namespace="long") as store, open_store_on(ttl=3) as other:
        with anyio.fail_after(20):
            queue = WorkQueue(store, "jobs", aging=1e9, keep=Keep(results=1e9))
            await queue.put(1, expires=1e9, delay=1e9)
            await queue.put(2, expires=1e9)
            async with queue.take() as task:
                assert task.payload == 2
            async with Lock(store, "x", ttl=1e9).hold(timeout=1e9), Lock(other, "x").hold(timeout=5):
                assert await WorkQueue(other, "jobs").put(1)


# flags


def flags():
    """All arguments of the public classes and functions that are True or False: their places, "Class.method.name"."""
    for room in ("shared", "processor", "store", "local", "serving", "engines.sqlite"):
        module = import_module(f"tenure.{room}")
        for name in module.__all__:
            made = getattr(module, name)
            functions = [(name, made)] if inspect.isfunction(made) else []
            if inspect.isclass(made) and not dataclasses.is_dataclass(made):
                functions = [
                    (f"{name}.{method}", function)
                    for method, function in vars(made).items()
                    if inspect.isfunction(function) and (method == "__init__" or not method.startswith("_"))
                ]
            for place, function in functions:
                yield from (
                    f"{place}.{parameter.name}"
                    for parameter in inspect.signature(function).parameters.values()
                    if parameter.annotation == "bool" and parameter.default in (True, False)
                )


FLAGS = {
    "Keep.payloads": lambda store, flag: WorkQueue(store, "x", keep=Keep(payloads=flag)),
    "Keep.tracebacks": lambda store, flag: WorkQueue(store, "x", keep=Keep(tracebacks=flag)),
    "WorkQueue.cancel.dry_run": lambda store, flag: WorkQueue(store, "x").cancel(
        state="waiting", dry_run=flag
    ),
    "WorkQueue.purge.dry_run": lambda store, flag: WorkQueue(store, "x").purge("dead", dry_run=flag),
    "WorkQueue.requeue.dry_run": lambda store, flag: WorkQueue(store, "x").requeue(dry_run=flag),
    "Task.at_end.unless_done": lambda store, flag: at_end(store, unless_done=flag),
    "Task.at_end.together": lambda store, flag: at_end(store, together=flag),
    "RateLimiter.acquire.fail_fast": lambda store, flag: RateLimiter(store, "x", Limit(1)).acquire(1, flag),
    "RateLimiter.spend.fail_fast": lambda store, flag: RateLimiter(store, "x", Limit(1)).spend(1, flag),
    "ResourcePool.add.revive": lambda store, flag: ResourcePool(store, "x").add("r", revive=flag),
    "Processor.__init__.lend": lambda store, flag: Processor(store, "x", handle, kinds={"a": 1}, lend=flag),
    "Coalescer.__init__.leading": lambda _, flag: Coalescer(handle, window=1, leading=flag),
    "KeyedPool.acquire.exclusive": lambda _, flag: KeyedPool(handle, close=handle).acquire(
        "x", exclusive=flag
    ),
    "TokenBucket.acquire.fail_fast": lambda _, flag: TokenBucket(1).acquire(1, flag),
    "TokenBucket.spend.fail_fast": lambda _, flag: TokenBucket(1).spend(1, flag),
    "RetryLater.__init__.counts": lambda _, flag: tenure.RetryLater(1, counts=flag),
    "RetryLater.__init__.resets": lambda _, flag: tenure.RetryLater(1, resets=flag),
    "serve.signals": lambda _, flag: serve(signals=flag),
    "SqliteEngine.__init__.inline": lambda _, flag: SqliteEngine("x.db", inline=flag),
}


async def handle(payload, context=None):
    pass


async def at_end(store, **flag):
    queue = WorkQueue(store, "x")
    await queue.put(1)
    async with queue.take() as task:
        await task.at_end("x", **flag)


def test_each_flag_is_known():
    made_by_others = {"Hold.__init__.exclusive", "Runners.__init__.limits"}
    made_by_others |= {"StoreHandle.call.patient", "read_pages.patient", "read_counts.patient"}
    made_by_others |= {"read_counts.recount"}
    fields = {"Keep.payloads", "Keep.tracebacks"}
    assert set(flags()) - made_by_others == set(FLAGS) - fields


@pytest.mark.parametrize("place", FLAGS)
async def test_a_flag_is_true_or_false(place):
    flag = place.rpartition(".")[2]
    flag = {"payloads": "keep.payloads", "tracebacks": "keep.tracebacks"}.get(flag, flag)
    async with tenure.open_store("memory:") as store:
        for odd in ({"a": 1}, "no", 1, 0, None, [], nan):
            with pytest.raises(TypeError, match=f"^{flag} must be True or False, not "):
                called = FLAGS[place](store, odd)
                if inspect.isawaitable(called):
                    await called


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("queue", lambda store: Worker(store, handle)),
        ("queue", lambda store: Job(store, handle)),
        ("observer", lambda store: Store(MemoryEngine(), observer={})),
        ("preset", lambda store: Processor(store, "x", handle, preset=["small"])),
    ],
)
async def test_what_has_the_wrong_type_is_named(name, call):
    async with tenure.open_store("memory:") as store:
        with pytest.raises((TypeError, ValueError), match=f"^{name} must "):
            call(store)


async def test_a_timedelta_lasts_for_its_seconds(store, virtual_clock):
    half, begun = timedelta(milliseconds=500), virtual_clock.now()
    async with Semaphore(store, "a", 1, ttl=timedelta(seconds=9)).hold(timeout=half):
        with pytest.raises(AcquireTimeout):
            await take(Semaphore(store, "a", 1).hold(timeout=half))
    pool = ResourcePool(store, "keys", quarantine=half)
    await pool.add("one", {"tier": "paid"})
    with pytest.raises(AcquireTimeout):
        await take(pool.claim(timeout=half, where={"tier": "free"}))
    queue = WorkQueue(store, "mail", retry=Retry(attempts=2, backoff=half, jitter=0))
    with pytest.raises(AcquireTimeout):
        await take(queue.take(timeout=half))
    await queue.put(1)
    with pytest.raises(ZeroDivisionError):
        async with queue.take():
            raise ZeroDivisionError
    async with queue.take(timeout=timedelta(seconds=5)):
        pass
    assert virtual_clock.now() - begun == pytest.approx(2, abs=0.3)
    async with KeyedPool(anyio.sleep, close=lambda _: None, max_total=1, idle_timeout=half) as local_pool:
        async with local_pool.acquire(0):
            with pytest.raises(PoolTimeout):
                await take(local_pool.acquire(0, timeout=half))


async def take(block):
    async with block:
        pass
