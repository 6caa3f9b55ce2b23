"""The worker: so many handlers at once, each task settled, whatever happens to handlers, sessions and the worker."""

from __future__ import annotations

import asyncio
import functools
import threading
from types import SimpleNamespace

import anyio
import depth
import pytest
from workers import work_off, working

import tenure
from tenure import EngineError, LeaseLost, Retry, RetryLater, StoreClosed, TaskFailed, Worker, WorkQueue
from tenure.engine import Exchange, RenewSession
from tenure.engines.memory import MemoryEngine
from tenure.testing import FaultyEngine


async def nothing_leased(queue):
    statistics = await queue.statistics()
    assert statistics.leased == 0
    assert await queue.verify()


# handlers


async def test_what_the_handler_returns_is_the_result(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    ids = await queue.put_many(range(100))

    async def double(task: tenure.Task):
        await anyio.sleep(0.01)
        return 2 * task.payload

    worker = Worker(queue, double)
    await work_off(queue, worker)
    assert [await queue.result(task_id) for task_id in ids] == [2 * n for n in range(100)]
    statistics = worker.statistics()
    assert (statistics.done, statistics.busy, statistics.concurrency) == (100, 0, 10)
    await nothing_leased(queue)


async def test_without_a_return_value_what_was_set_is_the_result(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)

    async def handler(task: tenure.Task):
        task.set_result("set")

    await work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == "set"


async def test_the_concurrency_is_respected_and_used(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    await queue.put_many(range(40))
    busy = most = 0

    async def handler(task: tenure.Task):
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        assert worker.statistics().busy == busy
        await anyio.sleep(1)
        busy -= 1

    worker = Worker(queue, handler, concurrency=4)
    start = virtual_clock.now()
    await work_off(queue, worker)
    assert most == 4
    assert virtual_clock.now() - start == pytest.approx(10, abs=0.2)


async def test_a_retry_of_its_own(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=100))
    await queue.put(1)

    async def handler(task: tenure.Task):
        raise ZeroDivisionError

    worker = Worker(queue, handler, retry=Retry(attempts=1))
    await work_off(queue, worker)
    assert worker.statistics().dead == 1


async def test_what_a_handler_may_raise(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=0))
    await queue.put_many(["later", "discard", "group", "result", "fine"])

    async def handler(task: tenure.Task):
        match task.payload:
            case "later" if virtual_clock.now() - start < 10:
                raise RetryLater(2, counts=False)
            case "discard":
                raise tenure.Discard("no")
            case "group":
                raise ExceptionGroup("several", [ValueError(), KeyError("k")])
            case "result":
                return object()
            case _:
                return None

    start = virtual_clock.now()
    worker = Worker(queue, handler, concurrency=2)
    await work_off(queue, worker)
    statistics = worker.statistics()
    assert (statistics.done, statistics.discarded, statistics.dead, statistics.retried) == (2, 1, 2, 1)
    assert statistics.postponed == 5
    errors = sorted(dead.error for dead in (await queue.tasks("dead").page()).records)
    assert errors[0] == "ExceptionGroup: several (2 sub-exceptions) [ValueError; KeyError: 'k']"
    assert errors[1].endswith("Object of type object is not JSON serializable")


async def test_a_payload_that_cannot_be_decoded_is_a_dead_letter_and_the_worker_lives(store, virtual_clock):
    """Row 27: taskiq never acknowledges what it cannot parse."""
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    session = await store._handle.session(3.0)
    garbage = tenure.engine.PutRequest("stray", (tenure.engine.NewTask(b"\xff\xfe{"),))
    await store._handle.call(tenure.engine.Put(session.id, 10**9, queue.key, (garbage,)))
    await queue.put("fine")

    async def handler(task: tenure.Task):
        return task.payload

    worker = Worker(queue, handler)
    await work_off(queue, worker)
    assert (worker.statistics().dead, worker.statistics().done) == (1, 1)


async def test_a_try_that_takes_too_long_is_a_failed_one(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=0))
    await queue.put("slow")
    await queue.put("fast")
    cancelled = []

    async def handler(task: tenure.Task):
        try:
            await anyio.sleep(100 if task.payload == "slow" else 0.9)
        except anyio.get_cancelled_exc_class():
            cancelled.append(task.attempt)
            raise

    worker = Worker(queue, handler, concurrency=1, timeout=1)
    start = virtual_clock.now()
    await work_off(queue, worker)
    assert cancelled == [1, 2]
    assert virtual_clock.now() - start < 4
    (dead,) = (await queue.tasks("dead").page()).records
    assert (dead.error, dead.attempts) == ("TimeoutError: not done within 1 s", 2)
    # the time of one does not run on into the next
    assert worker.statistics().done == 1


async def test_a_handler_that_ends_in_spite_of_its_time_limit(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    ids = await queue.put_many(["shielded", "next"])

    async def handler(task: tenure.Task):
        if task.payload == "shielded":
            with anyio.CancelScope(shield=True):
                await anyio.sleep(5)
        else:
            await anyio.lowlevel.checkpoint()
        return "done"

    await work_off(queue, Worker(queue, handler, concurrency=1, timeout=1))
    assert [await queue.result(task_id) for task_id in ids] == ["done", "done"]


@pytest.mark.backends("asyncio")
async def test_a_stray_cancellation_is_a_failed_try_and_does_not_cost_a_runner(store, virtual_clock):
    """An asyncio task that somebody cancelled, awaited by a handler."""
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    await queue.put_many(range(10))

    async def handler(task: tenure.Task):
        if task.payload < 5:
            raise asyncio.CancelledError
        await anyio.sleep(1)

    worker = Worker(queue, handler, concurrency=2)
    with anyio.fail_after(10):
        await work_off(queue, worker)
    assert (worker.statistics().dead, worker.statistics().done) == (5, 5)
    assert "it was not cancelled" in (await queue.tasks("dead").page()).records[0].error


class Callable:
    async def __call__(self, task: tenure.Task):
        return "called"


async def returns(task: tenure.Task, word="partial"):
    return word


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (Callable(), "called"),
        (functools.partial(returns, word="other"), "other"),
        (Callable().__call__, "called"),
    ],
)
async def test_what_counts_as_async(store, virtual_clock, handler, result):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    worker = Worker(queue, handler)
    assert worker._threads == []
    await work_off(queue, worker)
    assert await queue.result(task_id) == result


# sync handlers


async def test_a_sync_handler_runs_in_threads(store):
    queue = WorkQueue(store, "jobs")
    ids = await queue.put_many(range(8))
    threads, lock = set(), threading.Lock()
    together = threading.Barrier(4, timeout=10)

    def handler(task: tenure.Task):
        with lock:
            threads.add(threading.get_ident())
        together.wait()
        task.check()
        return task.payload + 1

    await work_off(queue, Worker(queue, handler, concurrency=4))
    assert [await queue.result(task_id) for task_id in ids] == list(range(1, 9))
    assert threading.get_ident() not in threads
    await nothing_leased(queue)


async def test_a_function_that_returns_a_coroutine(store):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put("word")
    await work_off(queue, Worker(queue, lambda word: returns(None, word)))
    assert await queue.result(task_id) == "word"


async def test_a_sync_handler_that_raises(store):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    await queue.put_many(range(3))

    def handler(task: tenure.Task):
        raise (StopIteration, ZeroDivisionError, tenure.Discard)[task.payload]

    worker = Worker(queue, handler)
    await work_off(queue, worker)
    assert (worker.statistics().dead, worker.statistics().discarded) == (2, 1)


async def test_an_abandoned_thread_is_counted_its_outcome_refused_and_its_runner_takes_nothing(store):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    stuck = threading.Event()
    refused = []

    def handler(task: tenure.Task):
        if task.payload == "stuck":
            stuck.wait(30)
            try:
                task.check()
            except LeaseLost as lost:
                refused.append(lost.reason)
            task.set_result("too late")
        return task.payload

    worker = Worker(queue, handler, concurrency=1, timeout=0.4)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        first = await queue.put("stuck")
        with pytest.raises(TaskFailed, match="not done within"):
            await queue.result(first)
        second = await queue.put("next")
        await anyio.sleep(0.3)
        assert worker.statistics().abandoned == 1
        # it is neither held nor does it lose attempts by waiting for a thread
        statistics = await queue.statistics()
        assert (statistics.waiting, statistics.leased) == (1, 0)
        stuck.set()
        assert await queue.result(second) == "next"
        assert worker.statistics().abandoned == 0
        await worker.drain()
    assert refused == ["released"]
    assert (worker.statistics().dead, worker.statistics().done) == (1, 1)


async def test_draining_does_not_wait_for_abandoned_threads(store):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    stuck = threading.Event()
    worker = Worker(queue, lambda _: stuck.wait(30), concurrency=2, timeout=0.4)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        task_id = await queue.put("stuck")
        with pytest.raises(TaskFailed):
            await queue.result(task_id)
        with anyio.fail_after(5):
            await worker.drain()
    assert worker.statistics().abandoned == 1
    stuck.set()


async def test_cancelling_run_abandons_threads_and_gives_their_tasks_back(store):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    stuck, started = threading.Event(), threading.Event()

    def handler(task: tenure.Task):
        started.set()
        stuck.wait(30)

    worker = Worker(queue, handler)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        while not started.is_set():
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    (record,) = (await queue.tasks("waiting").page()).records
    assert (record.attempts, record.deliveries) == (0, 0)
    stuck.set()


# cancelling, losing, closing


async def test_a_task_that_is_cancelled_and_its_runner_goes_on(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put("cancel me")
    ended = []

    async def handler(task: tenure.Task):
        try:
            await anyio.sleep(10)
        finally:
            ended.append(task.payload)

    worker = Worker(queue, handler, concurrency=1)
    async with working(queue, worker):
        await anyio.sleep(1)
        await queue.put("next")
        assert await queue.cancel(task_id)
    assert ended == ["cancel me", "next"]
    assert (worker.statistics().cancelled, worker.statistics().done) == (1, 1)


async def test_a_cancellation_that_comes_after_the_handler_does_not_hit_the_next_task(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    ids = await queue.put_many(range(20))

    async def handler(task: tenure.Task):
        with anyio.CancelScope(shield=True):
            await queue.cancel(ids[(task.payload + 19) % 20])  # the one before, perhaps not settled yet
            if task.payload % 3 == 0:
                await queue.cancel(task.id)
        if task.payload % 3:
            await anyio.sleep(0.01)
        return task.payload

    worker = Worker(queue, handler, concurrency=1)
    await work_off(queue, worker)
    statistics = worker.statistics()
    # the last is cancelled before it runs; whoever ended before noticing is done
    assert statistics.done == 19
    assert (await queue.statistics()).cancelled == 1


async def test_cancelling_run_gives_everything_back_before_it_ends(engine, virtual_clock):
    """pgqueuer#630: a stopped worker leaves rows picked."""
    async with tenure.open_store(FaultyEngine(engine), ttl=3) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put_many(range(20))

        async def handler(task: tenure.Task):
            await anyio.sleep(100)

        worker = Worker(queue, handler, concurrency=7)
        with anyio.move_on_after(5):
            await worker.run()
        assert worker.statistics().given_back == 7
        statistics = await queue.statistics()
        assert (statistics.leased, statistics.waiting) == (0, 20)
        assert {
            record.attempts + record.deliveries for record in (await queue.tasks("waiting").page()).records
        } == {0}


async def test_a_body_that_cleans_up_under_a_shield_still_holds_its_task(store, virtual_clock):
    """Row 10: procrastinate 3.9: the heartbeat ends before the handlers do."""
    queue = WorkQueue(store, "jobs")
    await queue.put(1)

    async def handler(task: tenure.Task):
        try:
            await anyio.sleep(100)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(20)
                task.check()
                assert (await queue.statistics()).leased == 1

    with anyio.move_on_after(5):
        await Worker(queue, handler).run()
    assert (await queue.statistics()).waiting == 1


async def test_draining_finishes_and_takes_no_more(store, virtual_clock):
    """Row 26: taskiq#380: SIGTERM keeps fetching."""
    queue = WorkQueue(store, "jobs")
    await queue.put_many(range(20))
    started = []

    async def handler(task: tenure.Task):
        started.append(task.payload)
        await anyio.sleep(10)

    worker = Worker(queue, handler, concurrency=4)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await anyio.sleep(5)
        start = virtual_clock.now()
        await worker.drain()
        assert virtual_clock.now() - start == pytest.approx(5, abs=0.01)
        statistics = await queue.statistics()
        assert (statistics.leased, statistics.done, statistics.waiting) == (0, 4, 16)
    assert sorted(started) == [0, 1, 2, 3]
    await worker.drain()
    await worker.run()  # it was drained: it does not run again


async def test_draining_an_idle_worker(store, virtual_clock):
    queue = WorkQueue(store, "jobs")

    async def handler(task: tenure.Task):
        pass

    worker = Worker(queue, handler)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await anyio.sleep(5)
        start = virtual_clock.now()
        await worker.drain()
        assert virtual_clock.now() == start
    # nobody is hinted for it any more
    await queue.put(1)
    await virtual_clock.settle()
    await nothing_leased(queue)


async def test_it_runs_once_at_a_time_and_again_after_a_cancellation(store, virtual_clock):
    queue = WorkQueue(store, "jobs")

    async def handler(task: tenure.Task):
        pass

    worker = Worker(queue, handler)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await virtual_clock.settle()
        with pytest.raises(RuntimeError, match="runs already"):
            await worker.run()
        assert "running" in repr(worker)
        group.cancel_scope.cancel()
    assert "idle" in repr(worker)
    await queue.put(1)
    await work_off(queue, worker)
    assert worker.statistics().done == 1
    assert "draining" in repr(worker)


@pytest.mark.parametrize("concurrency", [1, 10])
async def test_the_store_closes_while_it_runs(engine, virtual_clock, concurrency):
    async with tenure.open_store(engine, ttl=3) as other:
        lost = []

        async def handler(task: tenure.Task):
            try:
                await anyio.sleep(100)
            finally:
                lost.append(task.lost)

        async def work(worker):
            # not a group of as many as there are runners
            with pytest.raises(StoreClosed):
                await worker.run()

        async with anyio.create_task_group() as group:
            async with tenure.open_store(engine, ttl=3) as store:
                queue = WorkQueue(store, "jobs")
                await queue.put_many(range(3))
                group.start_soon(work, Worker(queue, handler, concurrency=concurrency))
                await anyio.sleep(1)
        assert set(lost) <= {"closed", None}
        assert len(lost) == min(3, concurrency)
        statistics = await WorkQueue(other, "jobs").statistics()
        assert (statistics.leased, statistics.waiting) == (0, 3)
    with pytest.raises(StoreClosed):
        await Worker(queue, handler).run()


class Grumpy(FaultyEngine):
    grumpy = False

    async def execute(self, operations):
        answers = list(await super().execute(operations))
        if self.grumpy:
            answers = [
                EngineError("the disk is full") if isinstance(operation, Exchange) else answer
                for operation, answer in zip(operations, answers, strict=True)
            ]
        return answers


async def test_an_engine_error_ends_it_with_that_error(virtual_clock):
    engine = Grumpy(MemoryEngine())
    async with tenure.open_store(engine, ttl=3) as store:
        queue = WorkQueue(store, "jobs")

        async def handler(task: tenure.Task):
            pass

        async with anyio.create_task_group() as group:

            async def work():
                with pytest.raises(EngineError, match="the disk is full"):
                    await Worker(queue, handler).run()

            group.start_soon(work)
            await virtual_clock.settle()
            engine.grumpy = True
            await queue.put(1)


# readiness: a worker that is green and takes nothing is a fault


@pytest.mark.parametrize("fault", ["an answer never comes", "nobody asks again", "takers are not registered"])
async def test_a_worker_whose_exchanges_do_not_come_back_is_not_ready(
    store, virtual_clock, monkeypatch, fault
):
    queue = WorkQueue(store, "jobs")

    async def handler(task: tenure.Task):
        pass

    worker = Worker(queue, handler, concurrency=2)
    assert worker.unready is None
    async with working(queue, worker):
        await anyio.sleep(1)
        for _ in range(3 * int(store.ttl)):
            await anyio.sleep(1)
            assert worker.unready is None
        with monkeypatch.context() as patch:
            if fault == "an answer never comes":
                # a dispatcher that loses what is sent
                batcher = queue._takers._batcher
                loses = SimpleNamespace(send=lambda *_: None, call_soon=batcher._dispatcher.call_soon)
                patch.setattr(batcher, "_dispatcher", loses)
            else:
                patch.setattr(queue._takers._batcher, "schedule", lambda: None)
            if fault == "takers are not registered":
                queue._takers.reask()
            began = anyio.current_time()
            while worker.unready is None:
                await anyio.sleep(0.5)
            waited = anyio.current_time() - began
            assert store.ttl < waited < 3 * store.ttl
            assert "no exchange with the engine has come back for" in worker.unready
            assert "2 takers wait" in worker.unready
        if fault == "an answer never comes":
            queue._takers._batcher.busy = False
        queue._takers.reask()
        await anyio.sleep(0.5)
        assert worker.unready is None
        await queue.put(1)


async def test_a_worker_whose_threads_all_hang_is_not_ready(store):
    queue = WorkQueue(store, "jobs")
    go_on = threading.Event()

    def hangs(payload):
        if not go_on.wait(50):
            raise TimeoutError

    worker = Worker(queue, hangs, concurrency=2, timeout=0.02, retry=Retry(attempts=1))
    async with working(queue, worker):
        try:
            await queue.put_many(range(3))
            with anyio.fail_after(20):
                while worker.unready is None:
                    await anyio.sleep(0.01)
            assert (
                worker.unready == "each of its 2 threads is in a handler that was abandoned and has not ended"
            )
        finally:
            go_on.set()
    # the thread of the last task may have been abandoned, too
    with anyio.fail_after(20):
        while worker.unready is not None:
            await anyio.sleep(0.01)


# what it costs


async def test_round_trips_a_task_at_concurrency_32(recording, virtual_clock):
    """Row 0.3: every peer pays at least one; here an exchange settles and takes for all."""
    async with tenure.open_store(recording, ttl=300) as store:
        queue = WorkQueue(store, "jobs")
        tasks = depth.share(3200)
        await queue.put_many(range(tasks))

        async def handler(task: tenure.Task):
            await anyio.lowlevel.checkpoint()

        worker = Worker(queue, handler, concurrency=32)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            recording.take()
            await queue.join()
            exchanges = len(recording.take(Exchange))
            await worker.drain()
        assert exchanges / tasks <= 0.05


async def test_an_idle_worker_costs_next_to_nothing(recording, virtual_clock):
    seconds = depth.share(3000)
    async with tenure.open_store(recording, ttl=30) as store:
        queue = WorkQueue(store, "jobs")

        async def handler(task: tenure.Task):
            pass

        async with anyio.create_task_group() as group:
            group.start_soon(Worker(queue, handler, concurrency=100).run)
            await anyio.sleep(60)
            recording.take()
            await anyio.sleep(seconds)
            kinds = [type(operation) for operation in recording.take()]
            group.cancel_scope.cancel()
        assert set(kinds) <= {RenewSession, Exchange}
        assert len(kinds) / seconds <= (0.002 if "redis" in recording.url else 0.15)


async def test_a_busy_worker_costs_as_little(recording, virtual_clock):
    seconds = depth.share(3000)
    async with tenure.open_store(recording, ttl=30) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put(1)

        async def handler(task: tenure.Task):
            await anyio.sleep(seconds)

        recording.take()
        await work_off(queue, Worker(queue, handler, concurrency=1))
        assert len(recording.take()) / seconds <= 0.25


async def test_the_observer_learns_of_it(engine, virtual_clock):
    events = []

    class Observer:
        def notice(self, event, /, **fields):
            events.append((event, fields))

    async with tenure.open_store(engine, observer=Observer()) as store:
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=0))
        task_id = await queue.put(1)

        async def handler(task: tenure.Task):
            await anyio.sleep(2)
            if task.attempt == 1:
                raise ZeroDivisionError

        await work_off(queue, Worker(queue, handler))
    events = [(event, fields) for event, fields in events if event.startswith("task.")]
    assert [event for event, _ in events] == ["task.retry", "task.done"]
    error = events[0][1].pop("error")
    assert isinstance(error, ZeroDivisionError)
    assert events[0][1] == {
        "queue": queue.name,
        "id": task_id,
        "attempt": 1,
        "seconds": pytest.approx(2, abs=0.01),
    }


async def test_wrong_arguments(store):
    queue = WorkQueue(store, "jobs")

    async def handler(task: tenure.Task):
        pass

    with pytest.raises(TypeError, match="handler"):
        Worker(queue, "handler")
    with pytest.raises(ValueError, match="concurrency"):
        Worker(queue, handler, concurrency=0)
    with pytest.raises(TypeError, match="concurrency"):
        Worker(queue, handler, concurrency=1.5)
    with pytest.raises(ValueError, match="timeout"):
        Worker(queue, handler, timeout=0)
    with pytest.raises(TypeError, match="timeout"):
        Worker(queue, handler, timeout="5")
    with pytest.raises(TypeError, match="retry"):
        Worker(queue, handler, retry=3)


# a result that is none


class Thing:
    pass


def returns_a_thing(payload):
    return Thing()


async def returns_too_much(payload):
    return "x" * 100


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (
            returns_a_thing,
            "returns_a_thing returned Thing, which cannot be the result: Object of type Thing is not JSON",
        ),
        (
            returns_too_much,
            "returns_too_much returned str, which cannot be the result: .* has 102 bytes, max_payload is 50",
        ),
    ],
)
async def test_a_result_that_cannot_be_stored_makes_the_task_dead_at_once(
    store, virtual_clock, caplog, handler, error
):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=3), max_payload=50)
    task_id = await queue.put(1)
    async with anyio.create_task_group() as group:
        group.start_soon(Worker(queue, handler).run)
        with pytest.raises(TaskFailed, match=error):
            await queue.result(task_id)
        group.cancel_scope.cancel()
    (letter,) = (await queue.tasks("dead").page()).records
    assert letter.attempts == 1
    (record,) = [record for record in caplog.records if "task.dead" in record.message]
    assert record.exc_info is None
