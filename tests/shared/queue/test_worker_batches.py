"""Batches: many tasks for one call of a handler, each with a lease and a verdict of its own."""

from __future__ import annotations

import threading

import anyio
import pytest
from traced import spans
from workers import work_off, working

import tenure
from tenure import (
    BatchWorker,
    Discard,
    Job,
    LeaseLost,
    Retry,
    RetryLater,
    WorkQueue,
)
from tenure.engine import Exchange
from tenure.engines.memory import MemoryEngine
from tenure.testing import FaultyEngine


def payloads(tasks):
    return [task.payload for task in tasks]


# what is in a batch


async def test_a_batch_of_payloads(store, virtual_clock):
    queue, batches = WorkQueue(store, "jobs"), []

    async def handler(numbers):
        batches.append(numbers)

    await queue.put_many(range(5))
    worker = BatchWorker(queue, handler, size=3, concurrency=1)
    await work_off(queue, worker)
    assert batches == [[0, 1, 2], [3, 4]]
    assert worker.statistics().done == 5


class Picky:
    """A codec of small numbers that refuses to decode 2."""

    def encode(self, value, /):
        return bytes([value])

    def decode(self, data, /):
        if data == b"\2":
            raise ValueError("2 is refused")
        return data[0]


async def test_a_payload_that_cannot_be_decoded_fails_alone(store, virtual_clock):
    queue, batches = WorkQueue(store, "jobs", codec=Picky(), retry=Retry(attempts=1)), []

    def handler(numbers):
        batches.append(numbers)

    ids = await queue.put_many([1, 2, 3])
    await work_off(queue, BatchWorker(queue, handler, size=10))
    assert batches == [[1, 3]]
    assert [(await queue.get(task_id)).state for task_id in ids] == ["done", "dead", "done"]
    assert "2 is refused" in (await queue.tasks("dead").page()).records[0].error


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_handler_is_not_called_without_a_payload(store, virtual_clock, kind):
    queue, batches = WorkQueue(store, "jobs", codec=Picky(), retry=Retry(attempts=1)), []

    async def handler(numbers):
        batches.append(numbers)

    ids = await queue.put_many([2, 2])
    await work_off(queue, BatchWorker(queue, handler if kind == "async" else batches.append, size=10))
    assert batches == []
    assert [(await queue.get(task_id)).state for task_id in ids] == ["dead", "dead"]


async def test_a_batch_has_what_there_is_up_to_its_size(store, virtual_clock):
    queue, batches = WorkQueue(store, "jobs"), []

    async def handler(tasks: list[tenure.Task]):
        batches.append(payloads(tasks))

    worker = BatchWorker(queue, handler, size=20, concurrency=1)
    await queue.put_many(range(50))
    await work_off(queue, worker)
    assert batches == [[*range(20)], [*range(20, 40)], [*range(40, 50)]]
    assert worker.statistics().done == 50


async def test_it_waits_for_more_only_so_long(store, virtual_clock):
    queue, batches = WorkQueue(store, "jobs"), []
    start = virtual_clock.now()

    async def handler(tasks: list[tenure.Task]):
        batches.append((payloads(tasks), virtual_clock.now() - start))

    worker = BatchWorker(queue, handler, size=100, linger=2, concurrency=1)
    async with working(queue, worker):
        for i in range(6):
            await anyio.sleep(1)
            await queue.put(i)
    sizes = [len(batch) for batch, _ in batches]
    assert sizes in ([2, 2, 2], [3, 3])  # the third comes at the very end of the wait
    assert batches[0][1] == pytest.approx(3, abs=0.2)


async def test_a_full_batch_does_not_wait(store, virtual_clock):
    queue, batches = WorkQueue(store, "jobs"), []
    start = virtual_clock.now()

    async def handler(tasks: list[tenure.Task]):
        batches.append(payloads(tasks))

    await queue.put_many(range(6))
    await work_off(queue, BatchWorker(queue, handler, size=3, linger=1000, concurrency=1))
    assert batches == [[0, 1, 2], [3, 4, 5]]
    assert virtual_clock.now() - start < 10


async def test_without_lingering_it_takes_what_is_there(store, virtual_clock):
    queue, batches = WorkQueue(store, "jobs"), []

    async def handler(tasks: list[tenure.Task]):
        batches.append(payloads(tasks))

    await queue.put_many(range(6))
    await work_off(queue, BatchWorker(queue, handler, size=100, linger=0))
    assert batches == [[*range(6)]]


# verdicts


async def test_so_many_batches_run_at_a_time(store, virtual_clock):
    queue, busy = WorkQueue(store, "jobs"), []

    async def handler(tasks: list[tenure.Task]):
        await anyio.sleep(1)
        busy.append(worker.statistics().busy)
        assert len(tasks) == 10

    worker = BatchWorker(queue, handler, size=10, concurrency=3)
    await queue.put_many(range(90))
    await work_off(queue, worker)
    assert len(busy) == 9 and max(busy) == 3
    assert worker.statistics().concurrency == 3


async def test_one_bad_of_a_hundred_fails_alone(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))

    async def handler(tasks: list[tenure.Task]):
        for task in tasks:
            if task.payload == 42:
                task.fail(ValueError("is bad"))
            else:
                task.set_result(2 * task.payload)

    worker = BatchWorker(queue, handler, size=100)
    ids = await queue.put_many(range(100))
    await work_off(queue, worker)
    assert (worker.statistics().done, worker.statistics().dead) == (99, 1)
    assert await queue.result(ids[41]) == 82
    (dead,) = (await queue.tasks("dead").page()).records
    assert (dead.payload, dead.error) == (42, "ValueError: is bad")


async def test_each_mark_has_the_meaning_of_its_exception(store, virtual_clock):
    queue, tries = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=1, jitter=0)), []
    marks = {"later": RetryLater(5, counts=False), "discard": Discard("no"), "exit": SystemExit(1)}

    async def handler(tasks: list[tenure.Task]):
        for task in tasks:
            tries.append((task.payload, task.attempt))
            if task.payload in marks and tries.count((task.payload, task.attempt)) == 1 == task.attempt:
                task.fail(KeyError("the last call counts"))
                task.fail(marks[task.payload])

    worker = BatchWorker(queue, handler, size=10)
    await queue.put_many([*marks, "done"])
    await work_off(queue, worker)
    assert sorted(tries) == [
        ("discard", 1),
        ("done", 1),
        ("exit", 1),
        ("exit", 2),
        ("later", 1),
        ("later", 1),
    ]
    state = worker.statistics()
    assert (state.done, state.postponed, state.discarded, state.retried, state.dead) == (3, 1, 1, 1, 0)


async def test_what_the_handler_raises_fails_those_that_are_not_marked(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))

    async def handler(tasks: list[tenure.Task]):
        tasks[0].fail(Discard("no"))
        raise ZeroDivisionError

    worker = BatchWorker(queue, handler, size=10)
    await queue.put_many(list("abc"))
    await work_off(queue, worker)
    assert (worker.statistics().discarded, worker.statistics().dead) == (1, 2)
    assert {(dead.payload, dead.error) for dead in (await queue.tasks("dead").page()).records} == {
        ("b", "ZeroDivisionError"),
        ("c", "ZeroDivisionError"),
    }


async def test_retry_later_and_discard_may_be_raised_for_all(store, virtual_clock):
    queue, times = WorkQueue(store, "jobs"), []

    async def handler(tasks: list[tenure.Task]):
        times.append(virtual_clock.now())
        raise RetryLater(5, counts=False) if len(times) == 1 else Discard("enough")

    worker = BatchWorker(queue, handler, size=10)
    await queue.put_many(list("abc"))
    await work_off(queue, worker)
    assert (worker.statistics().postponed, worker.statistics().discarded) == (3, 3)
    assert times[1] - times[0] >= 5


async def test_a_handler_that_returns_something_is_wrong(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))

    async def handler(tasks: list[tenure.Task]):
        return [1, 2]

    await queue.put_many(list("ab"))
    await work_off(queue, BatchWorker(queue, handler, size=10))
    errors = {dead.error for dead in (await queue.tasks("dead").page()).records}
    assert len(errors) == 1 and "must return None, not list" in errors.pop()


async def test_the_list_is_the_handlers_own(store, virtual_clock):
    queue = WorkQueue(store, "jobs")

    async def handler(tasks: list[tenure.Task]):
        while tasks:
            tasks.pop()

    worker = BatchWorker(queue, handler, size=10)
    await queue.put_many(list("abc"))
    await work_off(queue, worker)
    assert worker.statistics().done == 3


async def test_a_batch_that_takes_too_long_is_a_failed_try_of_each(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    sizes = []

    async def handler(tasks: list[tenure.Task]):
        sizes.append(len(tasks))
        if tasks[0].payload == "a":
            tasks[1].fail(Discard("no"))
            await anyio.sleep(100)

    worker = BatchWorker(queue, handler, size=3, timeout=5, concurrency=1)
    await queue.put_many(list("abcdef"))
    await work_off(queue, worker)
    state = worker.statistics()
    assert sizes == [3, 3]
    assert (state.dead, state.discarded, state.done) == (2, 1, 3)
    assert {dead.error for dead in (await queue.tasks("dead").page()).records} == {
        "TimeoutError: not done within 5 s"
    }


async def test_a_sync_handler_runs_in_threads(store):
    queue, threads = WorkQueue(store, "jobs", retry=Retry(attempts=1)), set()

    def handler(tasks: list[tenure.Task]):
        threads.add(threading.current_thread())
        for task in tasks:
            task.check()
            if task.payload == "b":
                task.fail(ValueError())
            else:
                task.set_result(task.payload)

    worker = BatchWorker(queue, handler, size=10, concurrency=1)
    ids = await queue.put_many(list("abc"))
    await work_off(queue, worker)
    assert len(threads) == 1 and threading.current_thread() not in threads
    assert (worker.statistics().done, worker.statistics().dead) == (2, 1)
    assert await queue.result(ids[2]) == "c"


async def test_a_task_may_be_marked_only_in_a_batch_and_until_it_has_ended(store, virtual_clock):
    queue, seen = WorkQueue(store, "jobs"), []

    async def handler(tasks: list[tenure.Task]):
        seen.extend(tasks)
        with pytest.raises(TypeError, match=r"error must be an exception, not <class 'ValueError'>"):
            tasks[0].fail(ValueError)

    await queue.put("job")
    await work_off(queue, BatchWorker(queue, handler, size=10))
    with pytest.raises(LeaseLost, match="released"):
        seen[0].fail(ValueError())
    await queue.put("job")
    async with queue.take() as task:
        with pytest.raises(RuntimeError, match="not in a batch: raise the exception instead"):
            task.fail(ValueError())


# losing, cancelling, draining


async def test_one_that_is_cancelled_before_its_batch_begins_is_left_out(store, virtual_clock):
    queue, seen = WorkQueue(store, "jobs"), []

    async def handler(tasks: list[tenure.Task]):
        seen.append(payloads(tasks))

    worker = BatchWorker(queue, handler, size=10, linger=10)
    async with working(queue, worker):
        ids = await queue.put_many(list("abc"))
        await anyio.sleep(5)
        assert await queue.cancel(ids[1])
        await queue.join()
        for number, task_id in enumerate(await queue.put_many(list("de"))):
            await anyio.sleep(1 - number)
            assert await queue.cancel(task_id)
    assert seen == [["a", "c"]]
    assert (worker.statistics().done, worker.statistics().cancelled) == (2, 3)


async def test_when_all_are_cancelled_the_handler_is_and_the_runner_goes_on(store, virtual_clock):
    queue, ended = WorkQueue(store, "jobs"), []
    start = virtual_clock.now()

    async def handler(tasks: list[tenure.Task]):
        try:
            await anyio.sleep(1000 if tasks[0].payload in "ab" else 0)
        finally:
            ended.append(payloads(tasks))

    worker = BatchWorker(queue, handler, size=10, concurrency=1)
    ids = await queue.put_many(list("ab"))
    async with working(queue, worker):
        await anyio.sleep(1)
        await queue.put("c")
        for task_id in ids:
            await queue.cancel(task_id)
    assert ended == [["a", "b"], ["c"]] and virtual_clock.now() - start < 100
    assert (worker.statistics().done, worker.statistics().cancelled) == (1, 2)


async def test_one_that_is_lost_alone_costs_the_others_nothing(store, virtual_clock):
    queue, tries = WorkQueue(store, "jobs"), []

    async def handler(tasks: list[tenure.Task]):
        if not tries:
            tasks[1]._lose("a replica did not know it")
        tries.append(payloads(tasks))
        await anyio.sleep(1)
        for task in tasks:
            if task.lost:
                with pytest.raises(LeaseLost, match="replica"):
                    task.check()

    worker = BatchWorker(queue, handler, size=10)
    await queue.put_many(list("abc"))
    await work_off(queue, worker)
    assert tries == [["a", "b", "c"]]


async def test_draining_finishes_the_batches_at_hand(store, virtual_clock):
    queue, sizes = WorkQueue(store, "jobs"), []

    async def handler(tasks: list[tenure.Task]):
        sizes.append(len(tasks))
        await anyio.sleep(5)

    worker = BatchWorker(queue, handler, size=10, concurrency=2)
    await queue.put_many(range(50))
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await anyio.sleep(1)
        await worker.drain()
    assert sizes == [10, 10]
    statistics = await queue.statistics()
    assert (statistics.done, statistics.waiting, statistics.leased) == (20, 30, 0)


async def test_draining_does_not_wait_for_more(store, virtual_clock):
    queue, sizes = WorkQueue(store, "jobs"), []
    start = virtual_clock.now()

    async def handler(tasks: list[tenure.Task]):
        sizes.append(len(tasks))

    worker = BatchWorker(queue, handler, size=10, linger=1000)
    await queue.put_many(range(5))
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await anyio.sleep(1)
        await worker.drain()
    assert sizes == [5] and virtual_clock.now() - start < 10
    assert worker.statistics().done == 5


async def test_an_abandoned_batch_is_refused_whatever_it_says_later(store):
    queue, refused = WorkQueue(store, "jobs", retry=Retry(attempts=1)), []
    stuck, ended = threading.Event(), threading.Event()

    def handler(tasks: list[tenure.Task]):
        stuck.wait(30)
        for task in tasks:
            try:
                task.fail(Discard("too late"))
            except LeaseLost as error:
                refused.append(error.reason)
        ended.set()

    worker = BatchWorker(queue, handler, size=10, concurrency=1, timeout=0.4)
    await queue.put_many(list("ab"))
    await work_off(queue, worker)
    assert (worker.statistics().dead, worker.statistics().abandoned) == (2, 1)
    stuck.set()
    assert await anyio.to_thread.run_sync(ended.wait, 30)
    assert refused == ["released", "released"]


# what the engine is asked


class Recording(FaultyEngine):
    def __init__(self):
        super().__init__(MemoryEngine())
        self.exchanges = []

    async def execute(self, operations):
        self.exchanges += [operation for operation in operations if isinstance(operation, Exchange)]
        return await super().execute(operations)


async def test_a_batch_is_taken_and_settled_in_an_exchange_each(virtual_clock):
    engine = Recording()
    async with tenure.open_store(engine) as store:
        queue = WorkQueue(store, "jobs")

        async def handler(tasks: list[tenure.Task]):
            assert len(tasks) == 100

        await queue.put_many(range(1000))
        await work_off(queue, BatchWorker(queue, handler, size=100, concurrency=1))
        assert len(engine.exchanges) <= 1000 / 100 + 3


# traces


async def test_each_task_has_a_span(open_store_on, virtual_clock):
    with spans() as traced:
        async with open_store_on(observer=traced.observer()) as store:
            queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))

            async def handler(tasks: list[tenure.Task]):
                for task in tasks:
                    if task.payload == "b":
                        task.fail(ValueError())
                tasks.clear()

            await queue.put_many(list("abc"))
            await work_off(queue, BatchWorker(queue, handler, size=10))
            await queue.put("d")
            await work_off(queue, BatchWorker(queue, lambda words: 1 / 0, size=10))
        assert sorted(traced.verdicts) == ["dead", "dead", "done", "done"]


# arguments


async def test_wrong_arguments(store):
    queue = WorkQueue(store, "jobs")

    async def handler(tasks: list[tenure.Task]):
        pass

    with pytest.raises(ValueError, match="size must be at least 1"):
        BatchWorker(queue, handler, size=0)
    with pytest.raises(ValueError, match="size must be at most 256"):
        BatchWorker(queue, handler, size=257)
    with pytest.raises(TypeError, match="size must be an int"):
        BatchWorker(queue, handler, size=1.5)
    with pytest.raises(ValueError, match="linger must be at least 0"):
        BatchWorker(queue, handler, size=1, linger=-1)
    with pytest.raises(TypeError, match="a job is a call for each task"):
        BatchWorker(Job(queue, handler), handler, size=1)
