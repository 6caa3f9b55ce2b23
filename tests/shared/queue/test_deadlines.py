"""The deadlines of tasks: put with a task, in the scope of its handler, and in what everybody sees of it."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

import tenure
from tenure import (
    BatchWorker,
    Item,
    Job,
    Processor,
    Schedule,
    TaskCancelled,
    TaskFailed,
    Worker,
    WorkQueue,
)


@pytest.fixture
def queue(store):
    return WorkQueue(store, "jobs")


@asynccontextmanager
async def working(queue, *workers):
    """Workers that work while the block runs, and until all tasks have ended."""
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(worker.run)
        yield
        await queue.join()
        group.cancel_scope.cancel()


async def expired(queue, task_id):
    with pytest.raises(TaskFailed) as failed:
        await queue.result(task_id)
    return failed.value.state == "expired"


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), True, "60"])
async def test_a_wrong_deadline_is_refused(queue, wrong):
    with pytest.raises((TypeError, ValueError), match="deadline must be"):
        await queue.put(1, deadline=wrong)
    with pytest.raises((TypeError, ValueError), match="deadline must be"):
        await queue.put_many([Item(1, deadline=wrong)])
    with pytest.raises((TypeError, ValueError), match="deadline must be"):
        Schedule(queue, "often", every=3600, deadline=wrong)
    assert (await queue.statistics()).put == 0


async def test_a_record_shows_what_is_left(queue, virtual_clock):
    task_id = await queue.put("late", deadline=60)
    other = await queue.put("any time")
    await virtual_clock.advance(20)
    assert (await queue.get(task_id)).deadline == pytest.approx(40, abs=0.1)
    assert (await queue.get(other)).deadline is None
    await virtual_clock.advance(41)
    assert await expired(queue, task_id)
    record = await queue.get(task_id)
    assert (record.state, record.deadline) == ("expired", None)
    assert (await queue.statistics()).expired == 1


async def test_the_scope_of_a_handler_has_it(queue, virtual_clock):
    seen = []

    async def handler(task: tenure.Task):
        seen.append((task.payload, task.deadline, anyio.current_effective_deadline()))

    start = virtual_clock.now()
    await queue.put("deadline", deadline=20)
    await queue.put("timeout", deadline=60)
    await queue.put("neither")
    async with working(queue, Worker(queue, handler, concurrency=1, timeout=30)):
        pass
    assert seen == [
        ("deadline", pytest.approx(start + 20, abs=0.5), pytest.approx(start + 20, abs=0.5)),
        ("timeout", pytest.approx(start + 60, abs=0.5), pytest.approx(start + 30, abs=0.5)),
        ("neither", None, pytest.approx(start + 30, abs=0.5)),
    ]


async def test_a_handler_is_cancelled_at_the_deadline_and_its_runner_goes_on(open_store_on, virtual_clock):
    events, ended = [], []

    class Observer:
        def notice(self, event, /, **fields):
            events.append(event)

    async with open_store_on(ttl=300, observer=Observer()) as store:
        queue = WorkQueue(store, "jobs")

        async def handler(task: tenure.Task):
            try:
                await anyio.sleep(10)
            finally:
                ended.append((task.payload, round(virtual_clock.now() - start)))

        start = virtual_clock.now()
        task_id = await queue.put("late", deadline=5)
        await queue.put("next")
        worker = Worker(queue, handler, concurrency=1)
        async with working(queue, worker):
            pass
        assert ended == [("late", 5), ("next", 15)]
        assert await expired(queue, task_id)
        record = await queue.get(task_id)
        assert (record.attempts, record.error) == (0, None)
        statistics = worker.statistics()
        assert (statistics.expired, statistics.done, statistics.postponed) == (1, 1, 0)
        assert (await queue.statistics()).expired == 1
    assert [event for event in events if event.startswith("task.")] == ["task.expired", "task.done"]


async def test_a_failure_past_the_deadline_ends_it_and_a_result_is_accepted(queue, virtual_clock):
    async def handler(task: tenure.Task):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(10)
        if task.payload == "fails":
            raise ValueError("too late")
        return "done all the same"

    failing, done = await queue.put_many([Item("fails", deadline=5), Item("ends", deadline=15)])
    worker = Worker(queue, handler, concurrency=1, retry=tenure.Retry(attempts=1))
    async with working(queue, worker):
        pass
    assert await expired(queue, failing)
    assert "too late" in (await queue.get(failing)).error
    assert await queue.result(done) == "done all the same"
    assert worker.statistics().dead == 0


async def test_a_timeout_before_the_deadline_fails_the_try(queue, virtual_clock):
    async def handler(payload):
        await anyio.sleep(100)

    task_id = await queue.put(1, deadline=20)
    worker = Worker(queue, handler, timeout=4, retry=tenure.Retry(attempts=2, jitter=0))
    async with working(queue, worker):
        pass
    assert (await queue.get(task_id)).state == "dead"
    assert (worker.statistics().retried, worker.statistics().dead) == (1, 1)


async def test_a_block_ends_at_the_deadline(queue, virtual_clock):
    task_id = await queue.put(1, deadline=5)
    start = virtual_clock.now()
    with pytest.raises(TaskCancelled):
        async with queue.take() as task:
            assert anyio.current_effective_deadline() == task.deadline
            await anyio.sleep(100)
    assert virtual_clock.now() - start == pytest.approx(5, abs=0.1)
    assert await expired(queue, task_id)


async def test_a_block_that_ends_before_is_done(queue, virtual_clock):
    task_id = await queue.put(1, deadline=5)
    async with queue.take() as task:
        task.set_result("in time")
    assert await queue.result(task_id) == "in time"


async def test_a_handler_of_batches_goes_on_until_no_task_is_left(queue, virtual_clock):
    ended = []

    async def handler(tasks: list[tenure.Task]):
        try:
            await anyio.sleep(30)
        finally:
            ended.append((len(tasks), round(virtual_clock.now() - start)))

    start = virtual_clock.now()
    ids = await queue.put_many([Item(n, deadline=deadline) for n, deadline in enumerate((5, 10))])
    worker = BatchWorker(queue, handler, size=2, linger=0)
    async with working(queue, worker):
        pass
    assert ended == [(2, 10)]
    assert [await expired(queue, task_id) for task_id in ids] == [True, True]
    assert worker.statistics().expired == 2
    late, lasting = await queue.put_many([Item(1, deadline=5), Item(2)])
    async with working(queue, BatchWorker(queue, handler, size=2, linger=0)):
        pass
    assert ended[1:] == [(2, 40)]
    assert await expired(queue, late)
    assert await queue.result(lasting) is None


async def test_a_prefetched_task_keeps_its_time(queue, virtual_clock):
    deadlines = []

    async def handler(task: tenure.Task):
        deadlines.append(task.deadline - virtual_clock.now())
        await anyio.sleep(10)

    await queue.put_many([Item(n, deadline=60) for n in range(3)])
    async with working(queue, Worker(queue, handler, concurrency=1, prefetch=2)):
        pass
    assert deadlines == pytest.approx([60, 50, 40], abs=0.5)


async def test_a_prefetched_task_that_is_late_is_not_begun(queue, virtual_clock):
    begun = []

    async def handler(task: tenure.Task):
        begun.append(task.payload)
        await anyio.sleep(10)

    await queue.put("first")
    late = await queue.put("late", deadline=5)
    async with working(queue, Worker(queue, handler, concurrency=1, prefetch=1)):
        pass
    assert begun == ["first"]
    assert await expired(queue, late)


async def test_a_task_of_a_processor(store, virtual_clock):
    async def handler(payload):
        await anyio.sleep(10)

    async with Processor(store, "books", handler) as processor:
        task_id = await processor.submit(1, deadline=5)
        assert await expired(processor.queue(), task_id)
        await processor.queue().join()
        await anyio.sleep(1)
        assert processor.metrics().totals["expired"] == 1


async def test_the_deadline_of_a_schedule_counts_from_each_tick(queue, virtual_clock):
    schedule = Schedule(queue, "hourly", every=300, payload=1, deadline=20)
    async with anyio.create_task_group() as group:
        group.start_soon(schedule.run)
        while not (await queue.statistics()).put:
            await virtual_clock.advance(1)
        await virtual_clock.advance(17)
        assert (await queue.statistics()).expired == 0
        await virtual_clock.advance(5)
        assert (await queue.statistics()).expired == 1
        group.cancel_scope.cancel()


async def test_a_job_is_put_with_one(queue, virtual_clock):
    async def add(a, b):
        return a + b

    job = Job(queue, add)
    assert (await queue.get(await job.options(deadline=60).put(1, 2))).deadline == pytest.approx(60, abs=0.1)
