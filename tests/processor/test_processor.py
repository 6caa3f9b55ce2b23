"""The processor as users see it: what is submitted is done, once on record, with all that its handler needs."""

from __future__ import annotations

import gc
import logging
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.lowlevel
import pytest

import tenure
from tenure import (
    AcquireTimeout,
    Discard,
    Item,
    Lock,
    PoolTimeout,
    ResourcePool,
    Retry,
    TaskFailed,
    WorkQueue,
)
from tenure.local import CircuitBreaker, Pool
from tenure.processor import Claims, Context, Processor

QUIET = {"workers": 10}
ONCE = Retry(attempts=1)


async def nothing(task: tenure.Task, context: Context):
    return task.payload


async def keys(store, n):
    pool = ResourcePool(store, "keys")
    for i in range(n):
        await pool.add(f"key-{i}", {"tier": "paid" if i % 2 else "free"})
    return pool


async def all_free(pool):
    counts = await pool.statistics()
    return (counts.claimed, counts.waiting) == (0, 0)


# ------------------------------------------------------------------------------------------------ submitting and doing


async def test_what_is_submitted_is_done_with_its_result(store, virtual_clock):
    async with Processor(store, "harvest", nothing, **QUIET) as processor:
        first = await processor.submit({"url": "a"}, priority=10)
        rest = await processor.submit_many([1, Item(2, priority=5)])
        await processor.join()
        assert [await processor.queue().result(i) for i in (first, *rest)] == [{"url": "a"}, 1, 2]
        counts = await processor.queue().statistics()
        assert (counts.put, counts.done, counts.unfinished) == (3, 3, 0)


async def test_the_example_of_all_parts(store, virtual_clock, connections):
    pool = await keys(store, 4)
    cache, at_once = [0, 0], 0

    async def handler(task: tenure.Task, context: Context):
        nonlocal at_once
        assert context.claim.metadata == {"tier": "paid"} and context.kind is None
        assert context.connection in connections.open
        context.claim.check()
        async with context.lock("cache") as lease:
            lease.check()
            at_once += 1
            assert at_once == 1
            seen = cache[0]
            await anyio.sleep(0.01)
            cache[0] = seen + 1
            at_once -= 1

    options = {"claims": Claims(pool, {"tier": "paid"}), "pool": connections.pool, "timeout": 5.0}
    async with Processor(
        store, "harvest", handler, preset="small", breaker=CircuitBreaker, **options
    ) as processor:
        await processor.submit_many(range(30))
        await processor.join()
        metrics = processor.metrics()
    assert cache == [30, 0] and metrics.totals["done"] == 30
    assert await all_free(pool)
    assert connections.open == set() and 1 <= len(connections.made) <= 5


@pytest.mark.backends("asyncio", "trio", "uvloop")
async def test_in_real_time_on_every_loop(store, connections):
    pool = await keys(store, 6)

    async def handler(task: tenure.Task, context: Context):
        async with context.lock("one") as lease:
            lease.check()
            context.claim.check()
        return task.payload

    parts = {"claims": pool, "pool": connections.pool, "breaker": CircuitBreaker, "rate": 1e5}
    async with Processor(store, "p", handler, preset="small", timeout=30, **parts) as processor:
        ids = await processor.submit_many(range(60))
        await processor.join()
        assert [await processor.queue().result(i) for i in ids[::10]] == list(range(60))[::10]
        assert processor.metrics().totals["done"] == 60
    assert await all_free(pool) and connections.open == set()


async def test_the_rate_is_one_for_all_processes(open_store_on, virtual_clock):
    starts = []

    async def handler(task: tenure.Task, context: Context):
        starts.append(virtual_clock.now())

    async with open_store_on() as store, open_store_on() as other:
        async with (
            Processor(store, "p", handler, preset="small", rate=10) as processor,
            Processor(other, "p", handler, preset="small", rate=10),
        ):
            await processor.submit_many(range(50))
            await processor.join()
    # ten at once, then ten a second
    assert len([s for s in starts if s - starts[0] < 0.05]) <= 10
    assert starts[-1] - starts[0] == pytest.approx(4.0, abs=0.2)


# ------------------------------------------------------------------------------------------------------- how tasks end


async def test_a_failed_try_is_repeated_and_then_dead(memory):
    tries = []

    async def handler(task: tenure.Task, context: Context):
        tries.append(task.attempt)
        if task.payload == "discard":
            raise Discard("no")
        raise KeyError("x")

    async with Processor(memory, "p", handler, retry=Retry(attempts=2, backoff=1), **QUIET) as processor:
        task_id = await processor.submit(1)
        await processor.submit("discard")
        await processor.join()
        with pytest.raises(TaskFailed, match="KeyError"):
            await processor.queue().result(task_id)
        totals = processor.metrics().totals
        assert (totals["retried"], totals["dead"], totals["discarded"], totals["failures"]) == (1, 1, 1, 2)
    assert sorted(tries) == [1, 1, 2]


async def test_the_dead_of_each_kind_are_told_of(memory):
    told = []

    async def fail(payload):
        raise ValueError

    async def tell(letter):
        told.append((letter.payload, letter.error))

    async with Processor(
        *(memory, "p", fail), preset="small", kinds={"a": 2}, retry=Retry(attempts=1), on_dead=tell
    ) as processor:
        await processor.submit("first", kind="a")
        await processor.submit("second")
        await processor.join()
        while len(told) < 2:
            await anyio.sleep(0.1)
    assert sorted(told) == [("first", "ValueError"), ("second", "ValueError")]
    assert [(await WorkQueue(memory, name).statistics()).done for name in ("p/a.dead", "p.dead")] == [1, 1]


async def test_a_handler_that_takes_too_long_is_cancelled_and_its_try_fails(memory, told, connections):
    async def handler(task: tenure.Task, context: Context):
        await anyio.sleep_forever()

    parts = {"pool": connections.pool, "timeout": 2, "retry": ONCE}
    async with Processor(memory, "p", handler, **parts, **QUIET) as processor:
        task_id = await processor.submit(1)
        await processor.join()
        with pytest.raises(TaskFailed, match="TimeoutError: not done within 2 s"):
            await processor.queue().result(task_id)
        errors = processor.metrics().errors
    assert errors.timeouts == errors.failures == pytest.approx(30)
    assert told.of("processor.timeouts") == [
        {"processor": "p", "kind": None, "id": task_id, "attempt": 1, "seconds": 2}
    ]


async def test_a_task_whose_lease_is_lost_is_counted_and_done_again(open_store_on, virtual_clock, freeze):
    tries = []

    async def handler(task: tenure.Task, context: Context):
        tries.append(task.deliveries)
        if len(tries) == 1:
            freeze(10)
            await anyio.sleep_forever()

    async with open_store_on(ttl=3.0) as store:
        async with Processor(store, "p", handler, **QUIET) as processor:
            await processor.submit(1)
            await processor.join()
            await anyio.sleep(1)
            metrics = processor.metrics()
    assert tries == [1, 2]
    assert metrics.totals["leases_lost"] >= 1 and metrics.totals["lost"] == 1
    assert metrics.heartbeats_late >= 1


# ----------------------------------------------------------------------------------- entered and left in a fixed order


class Steps:
    """Notes in which order the steps are taken, and cancels or fails one of them."""

    def __init__(self, fails=None):
        self.taken = []
        self.fails = fails

    def step(self, name):
        self.taken.append(name)
        if self.fails == name:
            raise OSError(name)


async def test_steps_are_entered_in_order_and_left_in_the_opposite_one(memory, monkeypatch):
    steps = Steps()

    class Claims(ResourcePool):
        def claim(self, timeout=None, where=None):
            return Noted("claim", super().claim(timeout, where))

    class Noted:
        def __init__(self, name, inner):
            self.name, self.inner = name, inner

        async def __aenter__(self):
            steps.step(f"+{self.name}")
            return await self.inner.__aenter__()

        async def __aexit__(self, *problem):
            steps.step(f"-{self.name}")
            return await self.inner.__aexit__(*problem)

    class Lent(Pool):
        def acquire(self, timeout=None):
            return Noted("connection", super().acquire(timeout))

    class Breaker(CircuitBreaker):
        async def __aenter__(self):
            steps.step("+breaker")
            return await super().__aenter__()

        async def __aexit__(self, *problem):
            steps.step("-breaker")
            return await super().__aexit__(*problem)

    async def acquire(self, *args):
        steps.step("rate")
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr("tenure.shared.RateLimiter.acquire", acquire)
    claims = Claims(memory, "keys")
    await claims.add("k")

    async def handler(task: tenure.Task, context: Context):
        steps.step("handler")

    make = partial(Lent, anyio.lowlevel.checkpoint, close=lambda _: None)
    async with Processor(
        memory, "p", handler, preset="small", claims=claims, pool=make, breaker=Breaker
    ) as processor:
        await processor.submit(1)
        await processor.join()
    assert steps.taken == [
        *("+claim", "+connection", "rate", "+breaker", "handler"),
        *("-breaker", "-connection", "-claim"),
    ]


async def test_nothing_is_held_when_no_claim_is_to_be_had(memory, connections, told):
    pool = await keys(memory, 1)
    parts = {"claims": Claims(pool, {"tier": "other"}, timeout=3), "pool": connections.pool}
    async with Processor(memory, "p", nothing, retry=ONCE, **parts, **QUIET) as processor:
        task_id = await processor.submit(1)
        await processor.join()
        with pytest.raises(TaskFailed, match="AcquireTimeout"):
            await processor.queue().result(task_id)
        metrics = processor.metrics()
        assert metrics.errors.exhaustion == metrics.errors.failures == pytest.approx(20)
        assert connections.made == [] and await all_free(pool)
    assert "processor.exhaustion" in told.names()


async def test_a_claim_is_given_back_when_no_connection_is_to_be_had(memory, connections, told):
    pool = await keys(memory, 3)
    async with connections.pool(max_size=1) as lent, lent.acquire():
        parts = {"claims": pool, "around": [lambda task: lent.acquire(timeout=2)], "retry": ONCE}
        async with Processor(memory, "p", nothing, **parts, **QUIET) as processor:
            await processor.submit_many(range(6))
            await processor.join()
            assert processor.metrics().totals["dead"] == processor.metrics().totals["exhaustion"] == 6
            assert await all_free(pool)


async def test_all_is_given_back_when_the_handler_raises(memory, connections):
    pool = await keys(memory, 2)

    async def handler(task: tenure.Task, context: Context):
        async with context.lock("a"), context.lock("b"):
            raise OSError

    parts = {"claims": pool, "pool": connections.pool, "retry": ONCE, "breaker": CircuitBreaker}
    async with Processor(memory, "p", handler, **parts, **QUIET) as processor:
        await processor.submit_many(range(20))
        await processor.join()
        assert processor.metrics().totals["dead"] == 20
        assert await all_free(pool)
        assert not (await Lock(memory, "a").holders().page()).records


async def test_a_where_may_depend_on_the_task_and_a_wrong_one_fails_the_try(memory):
    pool = await keys(memory, 2)
    got = {}

    async def handler(task: tenure.Task, context: Context):
        got[task.payload] = context.claim.resource

    parts = {"claims": Claims(pool, lambda task: {"tier": task.payload["tier"]}), "retry": ONCE}

    async def named(task: tenure.Task, context: Context):
        got[task.payload["tier"]] = context.claim.resource

    async with Processor(memory, "p", named, **parts, **QUIET) as processor:
        await processor.submit_many([{"tier": "free"}, {"tier": "paid"}, {}])
        await processor.join()
        assert processor.metrics().totals["dead"] == 1
    assert got == {"free": "key-0", "paid": "key-1"}


async def test_what_was_not_given_is_refused_by_name(memory):
    async def handler(task: tenure.Task, context: Context):
        with pytest.raises(RuntimeError, match="claims="):
            _ = context.claim
        with pytest.raises(RuntimeError, match="pool="):
            _ = context.connection
        return "seen"

    async with Processor(memory, "p", handler, **QUIET) as processor:
        task_id = await processor.submit(1)
        assert await processor.queue().result(task_id) == "seen"


async def test_a_lock_that_is_not_had_in_time_is_counted(memory):
    async def handler(task: tenure.Task, context: Context):
        async with context.lock("busy", timeout=1):
            pass

    async with Lock(memory, "busy"):
        async with Processor(memory, "p", handler, retry=ONCE, **QUIET) as processor:
            await processor.submit(1)
            await processor.join()
            assert processor.metrics().errors.lock_timeouts == pytest.approx(60)


async def test_locks_are_measured(memory):
    async def handler(task: tenure.Task, context: Context):
        async with context.lock("one"):
            await anyio.sleep(2)

    async with Processor(memory, "p", handler, **QUIET) as processor:
        await processor.submit_many(range(4))
        await processor.join()
        locks = processor.metrics().locks
    assert locks.hold.count == 4 and locks.hold.mean == pytest.approx(2, abs=0.01)
    assert locks.wait.mean == pytest.approx(3, rel=0.02)  # 0, 2, 4 and 6
    assert locks.handover.count == 3 and locks.handover.greatest < 0.01


# --------------------------------------------------------------------------------------------------- kinds and breakers


async def test_a_slow_kind_does_not_keep_another_waiting(memory):
    ended = {}

    async def handler(task: tenure.Task, context: Context):
        await anyio.sleep(100 if context.kind == "slow" else 0.1)
        ended[task.payload] = anyio.current_time()

    start = anyio.current_time()
    async with Processor(memory, "p", handler, kinds={"slow": 4, "fast": 6}) as processor:
        await processor.submit_many([f"slow {i}" for i in range(20)], kind="slow")
        await processor.submit("fast", kind="fast")
        with pytest.raises(ValueError, match="kind must be one of 'slow', 'fast', not None"):
            await processor.submit("nobody's")
        await processor.join()
        kinds = processor.metrics().kinds
    assert ended["fast"] - start < 1
    assert kinds["slow"].totals["done"] == 20 and kinds["fast"].totals["done"] == 1
    assert (kinds["slow"].workers, kinds["fast"].workers) == (4, 6)


async def test_join_waits_for_what_one_kind_submits_to_another(memory):
    async def handler(task: tenure.Task, context: Context):
        await anyio.sleep(1)
        if context.kind is None:
            await processor.submit(task.payload, kind="next")

    async with Processor(memory, "p", handler, kinds={"next": 2}, **QUIET) as processor:
        await processor.submit_many(range(5))
        await processor.join()
        assert processor.metrics().kinds["next"].totals["done"] == 5


async def test_tasks_wait_for_an_open_breaker_without_losing_attempts(memory, told, connections):
    down_until = anyio.current_time() + 20
    pool = await keys(memory, 10)
    calls = []

    async def handler(task: tenure.Task, context: Context):
        calls.append(task.attempt)
        if anyio.current_time() < down_until:
            raise OSError("down")

    breaker = partial(CircuitBreaker, min_calls=3, window=10, open_seconds=7, probes=2)
    parts = {"breaker": breaker, "claims": pool, "pool": connections.pool}
    parts["retry"] = Retry(attempts=6, backoff=0.1)
    async with Processor(memory, "p", handler, **parts, **QUIET) as processor:
        await processor.submit_many(range(40))
        await anyio.sleep(3)
        assert await all_free(pool), "who waits for a breaker holds nothing"
        await processor.join()
        totals = processor.metrics().totals
    assert totals["done"] == 40 and "dead" not in totals
    assert totals["refused"] > 0
    states = [fields["state"] for fields in told.of("processor.breaker")]
    assert states[0] == "open" and states[-1] == "closed"


async def test_the_breaker_of_one_kind_is_not_that_of_another(memory):
    async def handler(task: tenure.Task, context: Context):
        if context.kind == "down":
            raise OSError

    breaker = partial(CircuitBreaker, min_calls=2, window=4, open_seconds=1000)
    async with Processor(
        memory, "p", handler, kinds={"down": 5}, breaker=breaker, retry=ONCE, **QUIET
    ) as processor:
        await processor.submit_many(range(20), kind="down")
        ids = await processor.submit_many(range(20))
        for task_id in ids:
            await processor.queue().result(task_id)
        assert (await processor.queue("down").statistics()).dead < 20
        await processor.queue("down").purge("waiting")


async def test_a_breaker_may_be_shared_and_forced(memory):
    shared = CircuitBreaker()
    done = []

    async def handler(task: tenure.Task, context: Context):
        done.append(context.kind)

    async with Processor(
        memory, "p", handler, kinds={"a": 3, "b": 3}, breaker=lambda name: shared, **QUIET
    ) as processor:
        shared.force_open()
        await processor.submit("x", kind="a")
        await processor.submit("y", kind="b")
        await anyio.sleep(100)
        assert done == []
        shared.reset()
        await processor.join()
        assert sorted(done) == ["a", "b"]
    assert shared._listeners == []


async def test_a_handlers_own_circuit_open_is_an_error_as_any_other(memory):
    async def handler(task: tenure.Task, context: Context):
        raise tenure.CircuitOpen("elsewhere", retry_after=5)

    async with Processor(memory, "p", handler, breaker=CircuitBreaker, retry=ONCE, **QUIET) as processor:
        await processor.submit(1)
        await processor.join()
        assert processor.metrics().totals["dead"] == 1


# ------------------------------------------------------------------------------------------------------------- draining


async def test_draining_finishes_what_runs_and_gives_back_what_has_not_started(store, virtual_clock):
    pool = await keys(store, 2)
    started = []

    async def handler(task: tenure.Task, context: Context):
        started.append(task.payload)
        await anyio.sleep(5)

    async with Processor(store, "p", handler, claims=pool, **QUIET) as processor:
        await processor.submit_many(range(10))
        await anyio.sleep(1)
        begun = anyio.current_time()
        await processor.drain()
        assert anyio.current_time() - begun == pytest.approx(4, abs=0.1)
        counts = await processor.queue().statistics()
        assert (counts.done, counts.waiting, counts.leased) == (2, 8, 0)
        assert await all_free(pool)
        totals = processor.metrics().totals
        assert (totals["done"], totals["given_back"]) == (2, 8)
        await processor.drain()
    assert len(started) == 2
    queue = WorkQueue(store, "p")
    async with queue.take() as task:
        assert task.attempt == 1
    await queue.purge("waiting")


async def test_after_the_grace_what_still_runs_is_given_back(memory, connections):
    async def handler(task: tenure.Task, context: Context):
        await anyio.sleep_forever()

    async with Processor(memory, "p", handler, pool=connections.pool, **QUIET) as processor:
        await processor.submit_many(range(20))
        await anyio.sleep(1)
        begun = anyio.current_time()
        await processor.drain(grace=3)
        assert anyio.current_time() - begun == pytest.approx(3, abs=0.5)
        counts = await processor.queue().statistics()
        assert (counts.waiting, counts.leased) == (20, 0)
    assert connections.open == set()


async def test_an_error_in_the_block_cancels_the_handlers_and_is_raised_alone(memory, connections):
    async def handler(task: tenure.Task, context: Context):
        await anyio.sleep_forever()

    with pytest.raises(ZeroDivisionError):
        async with Processor(memory, "p", handler, pool=connections.pool, **QUIET) as processor:
            await processor.submit_many(range(30))
            await anyio.sleep(1)
            raise ZeroDivisionError
    counts = await processor.queue().statistics()
    assert (counts.waiting, counts.leased) == (30, 0)
    assert connections.open == set()


async def test_a_processor_is_entered_once_and_asked_only_then(memory):
    processor = Processor(memory, "p", nothing, **QUIET)
    for ask in (processor.metrics, processor.monitor):
        with pytest.raises(RuntimeError, match="async with"):
            ask()
    with pytest.raises(RuntimeError, match="async with"):
        await processor.drain()
    async with processor:
        assert "running" in repr(processor)
    assert "ended" in repr(processor)
    with pytest.raises(RuntimeError, match="entered before"):
        async with processor:
            pass


async def test_a_processor_whose_store_was_not_open_is_entered_later():
    store = tenure.open_store("memory:")
    processor = Processor(store, "p", nothing, **QUIET)
    with pytest.raises(RuntimeError, match="is not open"):
        async with processor:
            pass
    async with store, processor:
        assert "running" in repr(processor)


async def test_a_processor_whose_pool_cannot_be_opened_has_ended(memory):
    @asynccontextmanager
    async def broken():
        raise ZeroDivisionError
        yield

    processor = Processor(memory, "p", nothing, pool=broken, **QUIET)
    with pytest.raises(ZeroDivisionError):
        async with processor:
            pass
    assert "ended" in repr(processor)
    with anyio.fail_after(5):
        assert [metrics async for metrics in processor.monitor(every=1)] == []


async def test_the_end_of_the_store_ends_the_processor(open_store_on, virtual_clock):
    async def serve(store, *, task_status):
        with pytest.raises(tenure.StoreClosed):
            async with Processor(store, "p", nothing, **QUIET) as processor:
                task_status.started()
                async for _ in processor.monitor(every=1000):
                    pass

    async with anyio.create_task_group() as group:
        async with open_store_on(ttl=3.0) as store:
            await group.start(serve, store)


async def test_nothing_stays_in_memory_when_a_processor_has_ended(memory):
    async def handler(task: tenure.Task, context: Context):
        async with context.lock("one"):
            pass

    async with Processor(memory, "p", handler, breaker=CircuitBreaker, **QUIET) as processor:
        await processor.submit_many(range(10))
        await processor.join()
    gc.collect()
    assert processor._workers[None]._tries == {}
    assert dict(processor._workers[None].meter._locks) == {}


async def test_what_goes_wrong_is_logged_with_its_fields(memory, caplog):
    async def handler(task: tenure.Task, context: Context):
        raise OSError("boom")

    with caplog.at_level(logging.WARNING, "tenure"):
        async with Processor(memory, "p", handler, retry=ONCE, **QUIET) as processor:
            await processor.submit(1)
            await processor.join()
    (record,) = [r for r in caplog.records if r.message.startswith("processor.failures")]
    assert record.tenure_processor == "p" and record.tenure_error == "OSError: boom"
    assert record.tenure_attempt == 1


async def test_errors_of_acquiring_are_what_the_parts_raise(memory, connections):
    seen = []

    async def handler(task: tenure.Task, context: Context):
        async with context.lock("l", timeout=0):
            try:
                async with Lock(memory, "l").hold(timeout=0):
                    pass
            except (AcquireTimeout, RuntimeError) as error:
                seen.append(type(error))

    async with Processor(memory, "p", handler, pool=connections.pool, **QUIET) as processor:
        await processor.submit(1)
        await processor.join()
    assert seen == [RuntimeError] and issubclass(PoolTimeout, TimeoutError)


async def test_a_sync_handler_runs_in_threads_as_that_of_a_worker(store, connections):
    def handler(word: str, context: Context) -> str:
        return f"{word} {context.claim.resource} {context.connection}"

    parts = {"claims": await keys(store, 1), "pool": connections.pool}
    async with Processor(store, "p", handler, **parts, **QUIET) as processor:
        task_id = await processor.submit("hi")
        assert await processor.queue().result(task_id) == "hi key-0 0"


async def test_what_the_user_puts_around_is_within_the_claim_and_outside_of_the_breaker(memory):
    order, pool = [], await keys(memory, 1)

    @asynccontextmanager
    async def session(task):
        order.append((await pool.statistics()).claimed)
        try:
            yield 7
        except OSError:
            order.append(breaker.state)
            raise

    async def handler(word: str, context: Context, number: int):
        order.append((context.claim.resource, number))
        raise OSError

    breaker = CircuitBreaker(min_calls=1, window=1)
    parts = {"claims": pool, "breaker": lambda name: breaker, "around": [session], "retry": ONCE}
    async with Processor(memory, "p", handler, **parts, **QUIET) as processor:
        await processor.submit("x")
        await processor.join()
    assert order == [1, ("key-0", 7), "open"]
