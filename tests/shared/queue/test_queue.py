"""The work queue: order, keys, expiry, the dead, pausing, cancelling, and the books."""

from __future__ import annotations

import gc

import anyio
import pytest

from tenure import (
    AcquireTimeout,
    Keep,
    ResultUnavailable,
    Retry,
    WorkQueue,
)


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


# keys


# expiry


# the dead


async def test_the_dead_are_raised_with_all_their_attempts(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=0))
    ids = [await queue.put(n) for n in range(3)]
    for _ in range(6):
        await fail(queue)
    assert [dead.id for dead in (await queue.tasks("dead").page()).records] == ids
    assert await queue.requeue([ids[1], 10**6]) == 1
    async with queue.take() as task:
        assert (task.id, task.payload, task.attempt, task.deliveries) == (ids[1], 1, 1, 1)
    assert await queue.requeue() == 2
    assert await queue.requeue() == 0
    assert await take_all(queue) == [0, 2]
    assert (await queue.tasks("dead").page()).records == []
    assert await queue.verify()


async def _complete(queue):
    async with queue.take():
        pass


# purging, pausing, cancelling


async def test_purging(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    for n in range(4):
        await queue.put(n)
    await queue.put("delayed", delay=100)
    await fail(queue)
    task_id = (await queue.tasks("waiting").page()).records[0].id
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


# looking


async def test_statistics_and_browsing(store, virtual_clock):
    queue = WorkQueue(store, "jobs", max_size=5, retry=Retry(attempts=1), keep=Keep(payloads=True))
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
        (waiting,) = (await queue.tasks("waiting").page()).records
        assert (waiting.payload, waiting.priority, waiting.key, waiting.state) == (
            "waiting",
            3,
            "k",
            "waiting",
        )
        assert waiting.age == pytest.approx(5, abs=0.01)
        assert [record.payload for record in (await queue.tasks("delayed").page()).records] == ["delayed"]
        assert [record.payload for record in (await queue.tasks("leased").page()).records] == ["leased"]
        ended = (await queue.tasks("ended").page()).records
        assert [(record.state, record.payload) for record in ended] == [("dead", "dead"), ("done", "done")]
        assert ended[1].result == "result"
        assert (await queue.tasks("ended").page(after=str(ended[0].rank))).records == ended[1:]
    with pytest.raises(ValueError, match="state must be one of waiting, delayed, leased, suspended, ending,"):
        queue.tasks("odd")
    with pytest.raises(ValueError, match="limit"):
        await queue.tasks("dead").page(limit=0)


async def test_payloads_of_ended_tasks_are_not_kept_unless_asked_for(store):
    """Row 5: what has ended must not grow the store."""
    queue = WorkQueue(store, "jobs")
    await queue.put("payload")
    await take_all(queue)
    (record,) = (await queue.tasks("ended").page()).records
    assert record.payload is None


async def test_repr(store):
    queue = WorkQueue(store, "jobs", max_size=5)
    assert repr(queue) == "<WorkQueue 'jobs' taking=0>"


@pytest.mark.parametrize(
    "options",
    [
        {"max_size": 0},
        {"max_size": 1.5},
        {"max_deliveries": 0},
        {"max_payload": 0},
        {"aging": 0},
        {"aging": float("inf")},
        {"keep": Keep(results=-1)},
        {"keep": Keep(results=float("nan"))},
        {"keep": 5},
        {"groups": Keep()},
    ],
)
async def test_wrong_options(store, options):
    with pytest.raises((ValueError, TypeError), match=rf"^{next(iter(options))}(\.results)? must be"):
        WorkQueue(store, "jobs", **options)


async def test_a_retry_that_is_none_is_refused_before_a_task_fails(store):
    with pytest.raises(TypeError, match="retry must be a Retry, not 3"):
        WorkQueue(store, "q", retry=3)


# the books


# many queues


def known(store):
    """How many queues this process still knows."""
    gc.collect()
    return len(store._handle._listeners)


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
