"""Workers that lease ahead: how much, in which order, what it saves, and that nothing stays leased afterwards."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

import tenure
from tenure import EngineError, LeaseLost, TaskCancelled, Worker, WorkQueue
from tenure.engine import Exchange, Hint, Notice, Verdict
from tenure.engines.memory import MemoryEngine
from tenure.testing import Fault, FaultyEngine

in_process = pytest.mark.parametrize("engine", ["memory", "wire"], indirect=True)
"""For what is not the engine's concern."""


class Handler:
    """Takes `seconds` for each task, and notes which were begun, when, and as which delivery."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.begun = []
        self.times = []
        self.deliveries = set()
        self.too_late = 0

    async def __call__(self, task: tenure.Task):
        try:
            task.check()
        except LeaseLost:
            self.too_late += 1
        self.begun.append(task.payload)
        self.times.append(anyio.current_time())
        self.deliveries.add((task.attempt, task.deliveries))
        await anyio.sleep(self.seconds)


@asynccontextmanager
async def running(*workers):
    """Workers that run for as long as the block lasts; at its end they are cancelled."""
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(worker.run)
        yield group
        group.cancel_scope.cancel()


@asynccontextmanager
async def with_spare_tasks(queue, *, concurrency=1, prefetch=5, tasks=60):
    """A worker that takes 1 s for each task, in the midst of one, with as many spare ones as there may be."""
    handler = Handler(1)
    worker = Worker(queue, handler, concurrency=concurrency, prefetch=prefetch)
    ids = await queue.put_many(range(tasks))
    async with running(worker):
        await anyio.sleep(9.5)
        assert await leased(queue) == concurrency + prefetch
        yield worker, handler, ids


async def leased(queue):
    return (await queue.statistics()).leased


async def nothing_of_them_is_left(queue, handler, *, tasks=60):
    """All that did not run waits as if it had never been handed out, in its old place."""
    assert await queue.verify()
    statistics = await queue.statistics()
    assert (statistics.leased, statistics.waiting) == (0, tasks - statistics.done)
    records = (await queue.tasks("waiting").page()).records
    assert {(record.attempts, record.deliveries) for record in records} <= {(0, 0)}
    for n in range(statistics.done, tasks):
        async with queue.take(timeout=0) as task:
            assert task.payload == n


def far(engine):
    """The engine, 0.1 s away."""
    return FaultyEngine(engine, rates={Fault.DELAY: 1.0}, delay=0.1)


# how many


@pytest.mark.parametrize("prefetch", [1, 5])
async def test_so_many_are_leased_as_run_and_are_fetched_ahead(store, virtual_clock, prefetch):
    queue = WorkQueue(store, "jobs")
    async with with_spare_tasks(queue, concurrency=2, prefetch=prefetch) as (_, handler, _):
        for n in range(3):
            assert len(handler.begun) == 20 + 2 * n
            assert await leased(queue) == 2 + prefetch
            await anyio.sleep(1)
    await nothing_of_them_is_left(queue, handler)


@in_process
async def test_by_default_no_more_are_leased_than_run(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    async with with_spare_tasks(queue, concurrency=3, prefetch=0):
        pass
    async with running(Worker(queue, Handler(1), concurrency=3)):
        for _ in range(5):
            await anyio.sleep(0.7)
            assert await leased(queue) == 3


# what it saves


def noting(engine, seen):
    """Note in `seen` when an exchange leaves, and when its answer comes."""
    submit = engine.submit

    def noted(operation, on_answer):
        def answered(answer):
            seen.append("answer")
            on_answer(answer)

        exchange = isinstance(operation, Exchange)
        if exchange:
            seen.append("exchange")
        submit(operation, answered if exchange else on_answer)

    engine.submit = noted
    return engine


async def test_the_next_exchange_leaves_before_its_tasks_begin_if_it_can_ask_for_many(virtual_clock):
    seen = []
    engine = noting(far(MemoryEngine()).link(), seen)

    async def handler(task: tenure.Task):
        seen.append("begin")
        await anyio.sleep(0.01)

    async with tenure.open_store(engine) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put_many(range(1000))
        async with running(Worker(queue, handler, concurrency=2, prefetch=40)):
            await anyio.sleep(1.5)
        at = seen.index("exchange", len(seen) // 2)
        assert seen[at - 1] == "answer"


async def test_work_on_a_far_engine_is_the_faster_the_more_is_fetched_ahead(virtual_clock):
    tasks, seconds, exchanges = 200, {}, {}
    for prefetch in (0, 4, 20):
        link = far(MemoryEngine())
        async with tenure.open_store(link, ttl=300) as store:
            queue = WorkQueue(store, "jobs")
            await queue.put_many(range(tasks))
            worker, before = Worker(queue, Handler(0.01), concurrency=1, prefetch=prefetch), link.batches
            start = virtual_clock.now()
            async with running(worker):
                while worker.statistics().done < tasks:
                    await anyio.sleep(0.01)
                seconds[prefetch] = virtual_clock.now() - start
                exchanges[prefetch] = link.batches - before
    # a round trip for each task; two for each five; and then the handler sets the pace
    assert seconds[0] == pytest.approx(tasks * 0.11, rel=0.05)
    assert seconds[4] == pytest.approx(tasks / 5 * 0.2, rel=0.1)
    assert seconds[20] <= tasks * 0.01 * 1.4
    assert exchanges[0] >= tasks
    assert exchanges[4] <= 0.45 * tasks
    assert exchanges[20] <= 0.15 * tasks


async def begun_by_default(virtual_clock, seconds, **options):
    """The seconds that 400 tasks take on an engine 0.1 s away, and the most that were leased."""
    async with tenure.open_store(far(MemoryEngine()), ttl=300) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put_many(range(400))
        worker, most, start = Worker(queue, Handler(seconds), **options), 0, virtual_clock.now()
        async with running(worker):
            while worker.statistics().done < 400:
                await anyio.sleep(0.01)
                most = max(most, len(queue._takers._holders))
            return virtual_clock.now() - start, most


@pytest.mark.parametrize("concurrency", [1, 10])
async def test_by_default_the_handler_sets_the_pace_on_a_far_engine(virtual_clock, concurrency):
    seconds, most = await begun_by_default(virtual_clock, 0.01, concurrency=concurrency)
    assert seconds <= 400 * 0.01 / concurrency * 1.4 + 1  # the window has to open first
    assert most <= concurrency + 2 * 0.1 / 0.01 * concurrency


async def test_tasks_longer_than_two_round_trips_are_not_fetched_ahead(virtual_clock):
    assert (await begun_by_default(virtual_clock, 0.25, concurrency=1))[1] == 1


@in_process
@pytest.mark.parametrize("seconds", [0.02, 0.13])
async def test_what_waits_behind_a_task_that_takes_longer_than_those_before_goes_back(
    engine, virtual_clock, seconds
):
    async with tenure.open_store(far(engine), ttl=300) as a, tenure.open_store(engine, ttl=300) as b:
        queue, other = WorkQueue(a, "jobs"), WorkQueue(b, "jobs")
        handler, begun = Handler(seconds), 0

        async def each(task: tenure.Task):
            nonlocal begun
            begun += 1
            await handler(task)

        await queue.put_many(range(200))
        worker, idle = Worker(queue, each, concurrency=1), Handler(0)
        async with running(worker):
            while begun < 100:
                await anyio.sleep(0.01)
            handler.seconds = 100
            await anyio.sleep(1)
            assert await leased(queue) == 1
            async with running(Worker(other, idle, concurrency=1)):
                await anyio.sleep(1)
            assert (await queue.statistics()).done + 1 == 200
            assert queue._takers._demand.prefetch == 0


@in_process
async def test_the_next_task_is_begun_when_the_last_one_ends(engine, virtual_clock):
    async with tenure.open_store(far(engine), ttl=300) as store:
        queue = WorkQueue(store, "jobs")
        async with with_spare_tasks(queue, prefetch=2) as (_, handler, _):
            await anyio.sleep(3)
    last = handler.times[-5:]
    assert last == [pytest.approx(last[0] + n) for n in range(5)]


# who gets what


async def test_two_idle_workers_share_what_comes(open_store_on, virtual_clock):
    async with open_store_on(ttl=300) as a, open_store_on(ttl=300) as b:
        queue, other, handlers = WorkQueue(a, "jobs"), WorkQueue(b, "jobs"), (Handler(1), Handler(1))
        async with running(
            Worker(queue, handlers[0], concurrency=1, prefetch=10),
            Worker(other, handlers[1], concurrency=1, prefetch=10),
        ):
            for _ in range(3):
                await anyio.sleep(5)
                await queue.put_many(range(2))
                with anyio.fail_after(1.2):
                    await queue.join()
            await queue.put(0)
            await queue.put(1)
            with anyio.fail_after(1.2):
                await queue.join()
            assert [len(handler.begun) for handler in handlers] == [4, 4]
            await queue.put_many(range(8))
            with anyio.fail_after(5.3):  # 4 if they knew how many there are
                await queue.join()


@in_process
async def test_one_that_took_without_a_worker_has_given_no_reason_to_fetch_ahead(
    open_store_on, virtual_clock
):
    async with open_store_on(ttl=300) as a, open_store_on(ttl=300) as b:
        queue, other = WorkQueue(a, "jobs"), WorkQueue(b, "jobs")
        await queue.put_many(range(7))
        for _ in range(5):
            async with queue.take():
                pass
        worker, idle = (Worker(q, Handler(1), concurrency=1, prefetch=10) for q in (queue, other))
        async with running(worker):
            await virtual_clock.settle()
            async with running(idle):
                with anyio.fail_after(1.2):
                    await queue.join()


@in_process
async def test_one_try_need_not_wait_for_the_engine(engine, virtual_clock):
    async with tenure.open_store(far(engine), ttl=300) as store:
        queue = WorkQueue(store, "jobs")
        async with with_spare_tasks(queue) as (_, handler, _):
            start = virtual_clock.now()
            async with queue.take(timeout=0) as task:
                assert task.payload == len(handler.begun)
                assert virtual_clock.now() == start


# giving back


async def test_draining_gives_them_back_at_once(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    async with (
        with_spare_tasks(queue, concurrency=2) as (worker, handler, _),
        anyio.create_task_group() as group,
    ):
        group.start_soon(worker.drain)
        await virtual_clock.settle()
        assert await leased(queue) == 2
    assert len(handler.begun) == worker.statistics().done == 20
    await nothing_of_them_is_left(queue, handler)


async def test_an_engine_error_gives_them_back(faulty, faulty_store, virtual_clock):
    queue, handler = WorkQueue(faulty_store, "jobs"), Handler(1)
    await queue.put_many(range(60))

    async def until_refused():
        with pytest.raises(EngineError, match="refused"):
            await Worker(queue, handler, concurrency=1, prefetch=5).run()

    async with anyio.create_task_group() as group:
        group.start_soon(until_refused)
        await anyio.sleep(9.5)
        assert await leased(queue) == 6
        faulty.refused = Exchange
    # the one that ran has ended, and one more was begun before the engine had answered
    assert len(handler.begun) == 11
    faulty.refused = ()
    await anyio.sleep(2)
    await nothing_of_them_is_left(queue, handler)


@in_process
async def test_the_end_of_one_worker_leaves_the_other_its_share(recording, virtual_clock):
    def given_back():
        verdicts = [settle.verdict for op in recording.take(Exchange) for settle in op.settle]
        return verdicts.count(Verdict.GIVE_BACK)

    async with tenure.open_store(recording, ttl=300) as store:
        queue = WorkQueue(store, "jobs")
        others = Handler(1)
        other = Worker(queue, others, concurrency=2, prefetch=3)
        async with with_spare_tasks(queue, tasks=200) as (worker, handler, _):
            async with running(other):
                await anyio.sleep(9.3)
                assert await leased(queue) == 6 + 5
                assert given_back() == 0
            assert given_back() == 5
            last = max(handler.begun + others.begun)
            await anyio.sleep(3)
            assert handler.begun[-3:] == [last + 1, last + 2, last + 3]
            assert given_back() == 0
            assert await leased(queue) == 6
            async with running(other):
                await anyio.sleep(9.3)
                await worker.drain()
                assert given_back() == 5
                assert await leased(queue) == 5
        assert await leased(queue) == 0


async def test_a_paused_queue_gets_them_back(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    async with with_spare_tasks(queue) as (worker, handler, _):
        await queue.pause()
        await anyio.sleep(1)
        # that exchange left when the next task had been begun
        assert await leased(queue) == 1
        await anyio.sleep(5)
        assert worker.statistics().done == len(handler.begun) == 11
        assert await leased(queue) == 0
        await queue.resume()
        await queue.join()
    assert handler.begun == list(range(60))
    assert handler.deliveries == {(1, 1)}


# what happens to spare ones


async def test_a_spare_task_that_is_cancelled_is_never_begun(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    async with with_spare_tasks(queue) as (_, handler, ids):
        assert await queue.cancel(ids[12])
        # at once, and not when its turn comes
        with anyio.fail_after(0.2), pytest.raises(TaskCancelled):
            await queue.result(ids[12])
        await queue.join()
    assert handler.begun == [n for n in range(60) if n != 12]
    statistics = await queue.statistics()
    assert (statistics.cancelled, statistics.done) == (1, 59)
    assert await queue.verify()


async def test_the_session_is_lost_while_tasks_are_spare(engine, virtual_clock):
    link = FaultyEngine(engine)
    async with tenure.open_store(link, ttl=3) as a, tenure.open_store(engine, ttl=3) as b:
        queue, other, elsewhere = WorkQueue(a, "jobs"), WorkQueue(b, "jobs"), Handler(0.1)
        async with with_spare_tasks(queue) as (worker, here, _):
            link.pause(before_effect=True)
            async with running(Worker(other, elsewhere)):
                await other.join()
            link.resume()
            await anyio.sleep(5)
            # it went on for as long as it might
            assert here.begun in (list(range(12)), list(range(13)))
            assert worker.statistics().done == 9
            assert sorted(elsewhere.begun) == list(range(9, 60))
            # and goes on with others
            await queue.put_many(range(100, 110))
            await queue.join()
            assert here.begun[-10:] == list(range(100, 110))
        statistics = await other.statistics()
        assert (statistics.done, statistics.leased) == (70, 0)
        assert await other.verify()


async def test_spare_tasks_are_kept_when_the_engine_is_asked_what_it_knows_of(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    async with with_spare_tasks(queue) as (_, handler, _):
        store._handle.on_hint(Hint(store.process, "", "", Notice.MISSED))
        await anyio.sleep(0.3)
        assert await leased(queue) == 6
        await queue.join()
    assert handler.begun == list(range(60))
    assert handler.deliveries == {(1, 1)}


@in_process
async def test_they_come_back_to_the_worker_that_lost_them(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    async with with_spare_tasks(queue, tasks=26, concurrency=2) as (_, handler, _):
        del handler.begun[18:]
        queue._takers._prefetched[0][0].lose("expired")
        with anyio.fail_after(6):
            await queue.join()
    assert sorted(handler.begun) == list(range(26))
    assert not queue._takers._holders


@in_process
async def test_after_a_sleep_of_the_machine_no_spare_task_is_begun(
    store, virtual_clock, sleep_of_the_machine
):
    queue = WorkQueue(store, "jobs")
    async with with_spare_tasks(queue) as (_, handler, _):
        handler.seconds = 0.3
        await anyio.sleep(0.9)
        sleep_of_the_machine(
            100
        )  # the handler ends before the next heartbeat, which is not the sooner for it
        await anyio.sleep(5)
    assert len(handler.begun) > 15
    assert handler.too_late == 0


# arguments


@pytest.mark.parametrize("prefetch", [-1, 1.5, "1"])
async def test_wrong_arguments(store, prefetch):
    with pytest.raises((ValueError, TypeError), match="^prefetch must be"):
        Worker(WorkQueue(store, "jobs"), Handler(1), prefetch=prefetch)
