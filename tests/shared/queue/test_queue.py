"""The work queue: order, keys, expiry, the dead, pausing, cancelling, and the books."""

from __future__ import annotations

import gc
from contextlib import suppress
from itertools import count

import anyio
import depth
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenure
from tenure import (
    AcquireTimeout,
    DuplicateTask,
    LeaseLost,
    ResultUnavailable,
    Retry,
    TaskCancelled,
    WorkQueue,
)
from tenure.engines.memory import MemoryEngine
from tenure.testing import run


async def take_all(queue):
    taken = []
    with pytest.raises(AcquireTimeout):
        while True:
            async with queue.take(timeout=0) as task:
                taken.append(task.payload)
    return taken


async def fail(queue):
    with pytest.raises(ZeroDivisionError):
        async with queue.take():
            raise ZeroDivisionError


# order


async def test_higher_priorities_first_and_first_come_first_served_within_one(store):
    queue = WorkQueue(store, "jobs")
    for n, priority in enumerate((0, 5, -3, 5, 0, 2**31 - 1, -(2**31) + 1)):
        await queue.put(n, priority=priority)
    assert await take_all(queue) == [5, 1, 3, 0, 4, 2, 6]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from((0, 0, 1, 2)), st.sampled_from((0, 0.5, 1)))))
@settings(max_examples=depth.share(60))
def test_the_order_is_that_of_the_model(engine, puts):
    """Row 23: (higher priority, ready_at, sequence)."""

    async def scenario():
        async with tenure.open_store(MemoryEngine()) as store:
            queue = WorkQueue(store, "jobs")
            expected = []
            for n, (priority, delay, pause) in enumerate(puts):
                await queue.put(n, priority=priority, delay=delay)
                expected.append((-priority, anyio.current_time() + delay, n))
                await anyio.sleep(pause)
            await anyio.sleep(3)
            assert await take_all(queue) == [n for _, _, n in sorted(expected)]

    run(scenario)


async def test_a_priority_is_not_an_age_in_disguise(store, virtual_clock):
    # in the sketch, priorities are seconds
    queue = WorkQueue(store, "jobs")
    await queue.put("old")
    await anyio.sleep(100)
    await queue.put("important", priority=1)
    assert await take_all(queue) == ["important", "old"]


async def test_aging_bounds_the_wait(store, virtual_clock):
    """A stream of important tasks does not keep an old one waiting for longer than `aging` plus the one at hand."""
    queue = WorkQueue(store, "jobs", aging=10)
    start = virtual_clock.now()
    await queue.put("old")
    while True:
        await queue.put("important", priority=9)
        async with queue.take() as task:
            if task.payload == "old":
                break
            await anyio.sleep(1)
    assert 10 <= virtual_clock.now() - start <= 12
    await take_all(queue)


async def test_those_that_have_aged_go_oldest_first(store, virtual_clock):
    queue = WorkQueue(store, "jobs", aging=10)
    for n, priority in enumerate((1, 0, 2)):
        await queue.put(n, priority=priority)
        await anyio.sleep(1)
    await anyio.sleep(20)
    await queue.put("new", priority=3)
    assert await take_all(queue) == [0, 1, 2, "new"]


async def test_a_retry_goes_behind_and_what_is_given_back_keeps_its_place(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(backoff=0))
    await queue.put_many(range(3))
    with anyio.move_on_after(1):
        async with queue.take() as task:
            assert task.payload == 0
            await anyio.sleep(10)
    await fail(queue)
    assert await take_all(queue) == [1, 2, 0]


# keys


@pytest.mark.parametrize("ending", ["done", "dead", "discarded", "cancelled", "expired", "purged"])
async def test_a_key_is_released_when_its_task_has_ended(store, virtual_clock, ending):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    first = await queue.put(1, key="k", expires=5 if ending == "expired" else None)
    with pytest.raises(DuplicateTask) as refused:
        await queue.put(2, key="k")
    assert refused.value.task_id == first
    match ending:
        case "done":
            await take_all(queue)
        case "dead":
            await fail(queue)
        case "discarded":
            async with queue.take():
                raise tenure.Discard
        case "cancelled":
            await queue.cancel(first)
        case "expired":
            await anyio.sleep(6)
        case "purged":
            await queue.purge("waiting")
    second = await queue.put(2, key="k")
    assert second != first


async def test_a_key_is_kept_through_leases_and_retries(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=3, backoff=10))
    await queue.put(1, key="k")
    with suppress(ZeroDivisionError):
        async with queue.take():
            with pytest.raises(DuplicateTask):
                await queue.put(2, key="k")
            raise ZeroDivisionError
    with pytest.raises(DuplicateTask):
        await queue.put(2, key="k")


async def test_keys_of_two_queues_have_nothing_to_do_with_each_other(store):
    await WorkQueue(store, "a").put(1, key="k")
    await WorkQueue(store, "b").put(1, key="k")


# expiry


async def test_what_nobody_has_taken_expires(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    await queue.put("short", expires=5)
    await queue.put("long")
    await anyio.sleep(6)
    assert await take_all(queue) == ["long"]
    assert (await queue.statistics()).expired == 1


async def test_what_was_taken_does_not_expire(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    await queue.put("short", expires=5)
    async with queue.take() as task:
        await anyio.sleep(20)
        task.check()
    assert (await queue.statistics()).done == 1


async def test_expiry_makes_room(store, virtual_clock):
    queue = WorkQueue(store, "jobs", max_size=1)
    await queue.put("short", expires=5)
    start = virtual_clock.now()
    await queue.put("next")
    assert virtual_clock.now() - start <= 5 + 4
    assert await take_all(queue) == ["next"]


# the dead


async def test_the_dead_are_raised_with_all_their_attempts(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=0))
    ids = [await queue.put(n) for n in range(3)]
    for _ in range(6):
        await fail(queue)
    assert [dead.id for dead in await queue.dead()] == ids
    assert await queue.requeue([ids[1], 10**6]) == 1
    async with queue.take() as task:
        assert (task.id, task.payload, task.attempt, task.deliveries) == (ids[1], 1, 1, 1)
    assert await queue.requeue() == 2
    assert await queue.requeue() == 0
    assert await take_all(queue) == [0, 2]
    assert await queue.dead() == []
    assert await queue.verify()


async def test_many_dead(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    number = depth.share(600)
    await queue.put_many(range(number))
    for _ in range(number):
        await fail(queue)
    page = await queue.dead(limit=10)
    assert [dead.payload for dead in page] == list(range(10))
    assert [dead.payload for dead in await queue.dead(after=page[-1].rank, limit=2)] == [10, 11]
    assert await queue.requeue() == number
    assert await take_all(queue) == list(range(number))


async def test_one_whose_key_is_in_use_again_stays_dead(store):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    await queue.put("old", key="k")
    await fail(queue)
    await queue.put("new", key="k")
    assert await queue.requeue() == 0
    assert await take_all(queue) == ["new"]
    assert await queue.requeue() == 1


async def test_requeueing_wakes_takers(open_store_on, virtual_clock):
    async with open_store_on(ttl=300) as a, open_store_on(ttl=300) as b:
        queue, other = (WorkQueue(store, "jobs", retry=Retry(attempts=1)) for store in (a, b))
        await queue.put(1)
        await fail(queue)
        start = virtual_clock.now()
        async with anyio.create_task_group() as group:
            group.start_soon(_complete, other)
            await virtual_clock.settle()
            await queue.requeue()
        assert virtual_clock.now() - start < 0.1


async def _complete(queue):
    async with queue.take():
        pass


async def test_the_dead_do_not_expire(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1), results_ttl=1)
    await queue.put(1)
    await fail(queue)
    await anyio.sleep(100)
    assert len(await queue.dead()) == 1


# purging, pausing, cancelling


async def test_purging(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    for n in range(4):
        await queue.put(n)
    await queue.put("delayed", delay=100)
    await fail(queue)
    task_id = (await queue.browse("waiting")).tasks[0].id
    await _complete(queue)
    async with queue.take() as task:
        assert await queue.purge("waiting", "delayed") == 2
        assert await queue.purge("dead") == 1
        assert await queue.purge("dead") == 0
        task.check()
    assert await queue.purge("done") == 2
    with pytest.raises(ResultUnavailable):
        await queue.result(task_id)
    statistics = await queue.statistics()
    assert (statistics.put, statistics.purged, statistics.done) == (5, 3, 2)
    assert await queue.verify()


async def test_purging_many(store):
    queue = WorkQueue(store, "jobs")
    await queue.put_many(range(1000))
    assert await queue.purge("waiting") == 1000
    assert (await queue.statistics()).unfinished == 0
    await queue.join()


@pytest.mark.parametrize("states", [(), ("leased",), ("waiting", "odd")])
async def test_what_cannot_be_purged(store, states):
    with pytest.raises(ValueError, match="states must be some of"):
        await WorkQueue(store, "jobs").purge(*states)


async def test_a_paused_queue_hands_out_nothing(open_store_on, virtual_clock):
    async with open_store_on(ttl=300) as a, open_store_on(ttl=300) as b:
        queue, other = WorkQueue(a, "jobs"), WorkQueue(b, "jobs")
        taken = []

        async def work():
            for _ in range(3):
                async with other.take() as task:
                    taken.append(task.payload)
                    await anyio.sleep(1)

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await queue.put(0)
            await anyio.sleep(0.5)
            await queue.pause()
            await queue.put(1)
            await queue.put(2, delay=1)
            assert (await queue.statistics()).paused
            await anyio.sleep(50)
            assert taken == [0]
            with pytest.raises(AcquireTimeout):
                async with queue.take(timeout=0):
                    pytest.fail("paused")
            start = virtual_clock.now()
            await queue.resume()
        assert taken == [0, 1, 2]
        assert virtual_clock.now() - start < 2.5


async def test_cancelling_what_nobody_has_taken(store):
    queue = WorkQueue(store, "jobs")
    ids = [await queue.put(1), await queue.put(2, delay=100), await queue.put(3)]
    assert await queue.cancel(ids[0])
    assert await queue.cancel(ids[1])
    assert not await queue.cancel(ids[1])
    assert not await queue.cancel(10**6)
    assert await take_all(queue) == [3]
    assert not await queue.cancel(ids[2])
    with pytest.raises(TaskCancelled):
        await queue.result(ids[0])
    assert (await queue.statistics()).cancelled == 2


async def test_cancelling_makes_room(store, virtual_clock):
    queue = WorkQueue(store, "jobs", max_size=1)
    task_id = await queue.put(1)
    async with anyio.create_task_group() as group:
        group.start_soon(queue.put, 2)
        await virtual_clock.settle()
        start = virtual_clock.now()
        await queue.cancel(task_id)
    assert virtual_clock.now() - start < 0.1


# looking


async def test_statistics_and_browsing(store, virtual_clock):
    queue = WorkQueue(store, "jobs", max_size=5, retry=Retry(attempts=1), keep_payloads=True)
    await queue.put("dead")
    await fail(queue)
    await queue.put("done")
    async with queue.take() as task:
        task.set_result("result")
    await queue.put("leased")
    async with queue.take():
        await queue.put("waiting", priority=3, key="k")
        await queue.put("delayed", delay=100)
        await anyio.sleep(5)
        statistics = await queue.statistics()
        assert (statistics.put, statistics.waiting, statistics.delayed, statistics.leased) == (5, 1, 1, 1)
        assert (statistics.done, statistics.dead, statistics.unfinished) == (1, 1, 3)
        assert statistics.oldest == pytest.approx(5, abs=0.01)
        (waiting,) = (await queue.browse("waiting")).tasks
        assert (waiting.payload, waiting.priority, waiting.key, waiting.state) == (
            "waiting",
            3,
            "k",
            "waiting",
        )
        assert waiting.age == pytest.approx(5, abs=0.01)
        assert [record.payload for record in (await queue.browse("delayed")).tasks] == ["delayed"]
        assert [record.payload for record in (await queue.browse("leased")).tasks] == ["leased"]
        ended = (await queue.browse("ended")).tasks
        assert [(record.state, record.payload) for record in ended] == [("dead", "dead"), ("done", "done")]
        assert ended[1].result == "result"
        assert (await queue.browse("ended", after=str(ended[0].rank))).tasks == ended[1:]
    with pytest.raises(ValueError, match="state must be"):
        await queue.browse("odd")
    with pytest.raises(ValueError, match="limit"):
        await queue.browse("dead", limit=0)


async def test_payloads_of_ended_tasks_are_not_kept_unless_asked_for(store):
    """Row 5: what has ended must not grow the store."""
    queue = WorkQueue(store, "jobs")
    await queue.put("payload")
    await take_all(queue)
    (record,) = (await queue.browse("ended")).tasks
    assert record.payload is None


async def test_the_same_name_for_a_lock_and_a_queue(store):
    async with tenure.Lock(store, "jobs"):
        await WorkQueue(store, "jobs").put(1)
    assert await take_all(WorkQueue(store, "jobs")) == [1]


async def test_repr(store):
    queue = WorkQueue(store, "jobs", max_size=5)
    assert repr(queue) == "<WorkQueue 'jobs' max_size=5 taking=0>"


@pytest.mark.parametrize(
    "options",
    [
        {"max_size": 0},
        {"max_size": 1.5},
        {"max_deliveries": 0},
        {"max_payload": 0},
        {"aging": 0},
        {"aging": float("inf")},
        {"results_ttl": -1},
        {"results_ttl": float("nan")},
    ],
)
async def test_wrong_options(store, options):
    with pytest.raises((ValueError, TypeError), match=f"^{next(iter(options))} must be"):
        WorkQueue(store, "jobs", **options)


async def test_a_retry_that_is_none_is_refused_before_a_task_fails(store):
    with pytest.raises(TypeError, match="retry must be a Retry, not 3"):
        WorkQueue(store, "q", retry=3)


# the books


EXAMPLES = count()
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.integers(-1, 1), st.sampled_from((0, 2)), st.sampled_from((None, "a", "b"))
        ),
        st.tuples(st.just("expiring"), st.sampled_from((1, 3))),
        st.tuples(st.sampled_from(("done", "fail", "discard", "give back", "crash", "later"))),
        st.tuples(st.just("cancel"), st.integers(1, 12)),
        st.tuples(st.just("cancel running")),
        st.tuples(st.just("purge"), st.sampled_from(("waiting", "delayed", "dead", "done", "cancelled"))),
        st.tuples(st.just("requeue")),
        st.tuples(st.just("sleep"), st.sampled_from((0.5, 2, 4))),
    ),
    max_size=40,
)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@given(STEPS)
@settings(max_examples=depth.share(150))
def test_the_books_balance_whatever_happens(engine, steps):
    async def scenario():
        async with tenure.open_store(MemoryEngine(), ttl=3) as store:
            await _go_through(store, steps)

    run(scenario)


@given(STEPS)
@settings(max_examples=depth.share(15))
async def test_the_books_balance_on_each_engine(engine, virtual_clock, steps):
    # all examples share the engine
    async with tenure.open_store(engine, ttl=3, namespace=f"example {next(EXAMPLES)}") as store:
        await _go_through(store, steps)


async def _go_through(store, steps):
    queue = WorkQueue(
        store, "jobs", max_size=6, retry=Retry(attempts=2, backoff=1, jitter=0), max_deliveries=3
    )
    # a queue that says nothing any more would be forgotten, its books included; a cursor says something
    await queue.put_many([], cursor=("read", 0))
    ids = []
    put = 0
    for step in steps:
        match step:
            case ("put", priority, delay, key):
                with suppress(tenure.QueueFull, DuplicateTask):
                    ids.append(await queue.try_put(put, priority, delay, key))
                    put += 1
            case ("expiring", seconds):
                with suppress(tenure.QueueFull):
                    ids.append(await queue.try_put(put, expires=seconds))
                    put += 1
            case ("cancel", n):
                if ids:
                    await queue.cancel(ids[n % len(ids)])
            case ("purge", state):
                await queue.purge(state)
            case ("requeue",):
                await queue.requeue()
            case ("sleep", seconds):
                await anyio.sleep(seconds)
            case (what,):
                with suppress(AcquireTimeout, ZeroDivisionError, LeaseLost, TaskCancelled):
                    await _take_one(queue, store, what)
        statistics = await queue.statistics()
        audit = await queue.verify()
        assert audit, audit
        assert audit.statistics.put == put
        assert (statistics.leased, statistics.reserved, statistics.producers) == (0, 0, 0)
        assert statistics.unfinished <= 6 or "requeue" in {step[0] for step in steps}
    # and every unfinished task is in exactly one state
    statistics = await queue.statistics()
    for state in ("waiting", "delayed", "leased"):
        assert len((await queue.browse(state, limit=1000)).tasks) == getattr(statistics, state)


async def _take_one(queue, store, what):
    with anyio.CancelScope() as scope:
        async with queue.take(timeout=0) as task:
            match what:
                case "fail":
                    raise ZeroDivisionError
                case "discard":
                    raise tenure.Discard
                case "later":
                    raise tenure.RetryLater(1)
                case "give back":
                    scope.cancel()
                    await anyio.sleep(1)
                case "crash":
                    (await store.session(3.0)).lose("expired")
                    await anyio.sleep(1)
                case "cancel running":
                    await queue.cancel(task.id)
                    await anyio.sleep(1)


# many queues


def known(store):
    """How many queues this process still knows."""
    gc.collect()
    return len(store._listeners)


async def test_queues_that_nobody_uses_any_more_are_forgotten(store, virtual_clock):
    async def use(number):
        queue = WorkQueue(store, f"jobs {number}")
        put = await queue.put(1)
        async with queue.take() as task:
            task.set_result(2)
        assert await queue.result(put) == 2
        with pytest.raises(AcquireTimeout):
            async with queue.take(timeout=0.1):
                pass

    kept = WorkQueue(store, "kept")
    for number in range(20):
        await use(number)
    assert known(store) == 21, "where it has waited, the engine counts on it"
    await anyio.sleep(100)
    assert known(store) < 5, "this one, and what was at work last"
    assert WorkQueue(store, "kept").takers is kept.takers
    await use(0)


async def test_a_process_that_has_waited_and_forgets_the_queue_keeps_no_task_from_others(
    open_store_on, virtual_clock
):
    async with open_store_on() as store, open_store_on() as other:
        with pytest.raises(AcquireTimeout):
            async with WorkQueue(store, "jobs").take(timeout=1):
                pass
        assert known(store) == 1, "the engine will offer it the next task"
        queue = WorkQueue(other, "jobs")
        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(queue.put, 1)
            async with queue.take():
                assert anyio.current_time() - began < 1


async def test_a_process_that_has_waited_long_ago_keeps_no_task_from_others(open_store_on, virtual_clock):
    async with open_store_on() as store, open_store_on() as other:
        queue, others = WorkQueue(store, "jobs"), WorkQueue(other, "jobs")
        with pytest.raises(AcquireTimeout):
            async with queue.take(timeout=1):
                pass
        await anyio.sleep(1000)
        async with anyio.create_task_group() as group:

            async def put_soon():
                await anyio.sleep(1)
                await others.put(1)

            group.start_soon(put_soon)
            began = anyio.current_time()
            async with others.take():
                assert anyio.current_time() - began < 2
