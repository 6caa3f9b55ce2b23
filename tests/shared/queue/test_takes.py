"""Takers: who gets which task and when, whatever becomes of hints, answers, sessions and the takers themselves."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing

import anyio
import depth
import pytest

import tenure
from tenure import AcquireTimeout, EngineError, LeaseLost, StoreClosed, WorkQueue
from tenure.engine import Exchange, OpenSession, RenewSession
from tenure.engines.memory import MemoryEngine
from tenure.testing import FaultyEngine, assert_checkpoints


async def nothing_leased(queue, *, left=None):
    statistics = await queue.statistics()
    assert statistics.leased == 0
    if left is not None:
        assert statistics.waiting == left
    assert await queue.verify()


async def take_all(queue):
    payloads = []
    with pytest.raises(AcquireTimeout):
        while True:
            async with queue.take(timeout=0) as task:
                payloads.append(task.payload)
    return payloads


@asynccontextmanager
async def a_taker(queue):
    """Somebody who waits for a task, for as long as the block lasts."""
    async with anyio.create_task_group() as group:
        group.start_soon(queue._takers.take)
        await anyio.lowlevel.checkpoint()
        yield
        group.cancel_scope.cancel()


# who gets what


async def test_it_is_a_checkpoint(store):
    queue = WorkQueue(store, "jobs")
    await queue.put_many(range(2))
    for timeout in (None, 0):
        with assert_checkpoints():
            await _take_and_settle(queue, timeout)


async def _take_and_settle(queue, timeout):
    async with queue.take(timeout):
        pass


# trying once


async def test_one_try_on_an_empty_queue(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    start = virtual_clock.now()
    with pytest.raises(AcquireTimeout):
        async with queue.take(timeout=0):
            pytest.fail("taken")
    assert virtual_clock.now() == start
    await queue.put(1)
    async with queue.take(timeout=0) as task:
        assert task.payload == 1


async def test_one_try_behind_others(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    async with a_taker(queue):
        with pytest.raises(AcquireTimeout):
            async with queue.take(timeout=0):
                pytest.fail("taken")
    await queue.put(1)
    assert await take_all(queue) == [1]


async def test_one_try_while_an_exchange_is_on_its_way(faulty, faulty_store, virtual_clock):
    queue = WorkQueue(faulty_store, "jobs")
    await queue.put(0)
    faulty.pause()
    async with a_taker(queue):
        await virtual_clock.settle()
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(_try_once, queue)
            await virtual_clock.settle()
            faulty.resume()


async def _try_once(queue):
    with pytest.raises(AcquireTimeout):
        async with queue.take(timeout=0):
            pytest.fail("taken")


async def test_one_try_when_the_engine_is_away(faulty, virtual_clock):
    async with tenure.open_store(faulty, ttl=300, settle_timeout=2) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put(1)
        faulty.pause()
        start = virtual_clock.now()
        await _try_once(queue)
        assert virtual_clock.now() - start == 2
        faulty.resume()
        await virtual_clock.settle()
        await nothing_leased(queue, left=1)


async def test_one_try_leaves_no_registration_behind(engine, virtual_clock):
    async with tenure.open_store(engine, ttl=300) as a, tenure.open_store(engine, ttl=300) as b:
        queue, other = (WorkQueue(store, "jobs") for store in (a, b))
        await _try_once(queue)
        start = virtual_clock.now()
        async with anyio.create_task_group() as group:
            group.start_soon(_take_and_settle, other, None)
            await virtual_clock.settle()
            await queue.put(1)
        assert virtual_clock.now() - start < 0.1


async def test_a_time_limit(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    start = virtual_clock.now()
    with pytest.raises(AcquireTimeout) as refused:
        async with queue.take(timeout=2.5):
            pytest.fail("taken")
    assert virtual_clock.now() - start == 2.5
    assert refused.value.seconds == 2.5


# delays, and hints


async def test_a_hint_for_takers_that_have_left_is_passed_on(engine, virtual_clock):
    """The engine counts on whom it has hinted, and tells nobody else."""
    async with tenure.open_store(engine, ttl=300) as a, tenure.open_store(engine, ttl=300) as b:
        queue, other = (WorkQueue(store, "jobs") for store in (a, b))
        async with a_taker(queue), a_taker(queue):
            await virtual_clock.settle()
        start = virtual_clock.now()
        async with anyio.create_task_group() as group:
            group.start_soon(_take_and_settle, other, None)
            group.start_soon(_take_and_settle, other, None)
            await virtual_clock.settle()
            await queue.put_many([1, 2])
        assert virtual_clock.now() - start < 0.1
        await nothing_leased(queue, left=0)
        # nobody waits: given back, and given back once
        recording = (await queue.tasks("ended").page()).records
        assert [record.deliveries for record in recording] == [1, 1]


async def test_a_hint_while_an_exchange_without_its_taker_is_on_its_way(engine, virtual_clock):
    link = FaultyEngine(engine)
    async with tenure.open_store(link, ttl=300) as a, tenure.open_store(engine, ttl=300) as b:
        queue, other = (WorkQueue(store, "jobs") for store in (a, b))
        async with anyio.create_task_group() as group:
            async with a_taker(queue):
                await virtual_clock.settle()
                link.pause()  # the next exchange registers the taker anew, its answer is on its way
                queue._takers.reask()
                await virtual_clock.settle()
            group.start_soon(_take_and_settle, other, None)
            await virtual_clock.settle()
            start = virtual_clock.now()
            await other.put(1)  # the hint goes to the first, and overtakes the answer
            await virtual_clock.settle()
            link.resume()
        assert virtual_clock.now() - start < 0.1


async def test_a_taker_that_comes_while_its_process_is_still_registered(store, virtual_clock):
    # the registration of the one before serves it: then it must be asked for in time as well
    queue = WorkQueue(store, "jobs")
    async with a_taker(queue):
        await virtual_clock.settle()
    await queue.put(1, delay=5)
    start = virtual_clock.now()
    async with queue.take():
        assert virtual_clock.now() - start <= 5.3


async def test_a_taker_that_comes_after_one_that_left_on_the_way(faulty, faulty_store, virtual_clock):
    queue = WorkQueue(faulty_store, "jobs")
    await queue.put(1, delay=5)
    start = virtual_clock.now()
    faulty.pause()
    async with a_taker(queue):
        await virtual_clock.settle()
    faulty.resume()
    await virtual_clock.settle()
    async with queue.take():
        assert virtual_clock.now() - start <= 5.3


async def test_idle_takers_cost_next_to_nothing(recording, virtual_clock):
    """Row 19: dramatiq#691, 500 k operations in two idle days."""
    seconds = depth.share(3000)
    async with tenure.open_store(recording, ttl=30) as store:
        queue = WorkQueue(store, "jobs")
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(queue._takers.take)
            await anyio.sleep(60)
            recording.take()
            await anyio.sleep(seconds)
            kinds = [type(operation) for operation in recording.take()]
            group.cancel_scope.cancel()
        assert set(kinds) == {RenewSession, Exchange}
        assert kinds.count(RenewSession) <= seconds / 10 + 1
        # a look around once a session could have died
        assert kinds.count(Exchange) <= seconds / 20 + 1


async def test_nobody_waits_nothing_is_sent(recording, virtual_clock):
    async with tenure.open_store(recording, ttl=30) as store:
        queue = WorkQueue(store, "jobs")
        await _try_once(queue)
        async with a_taker(queue):
            await virtual_clock.settle()
        recording.take()
        await anyio.sleep(300)
        assert {type(operation) for operation in recording.take()} == {RenewSession}


# cancellation


class _Substitute:
    def __init__(self, inner, **methods):
        self._inner = inner
        self.__dict__.update(methods)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def __len__(self):
        return len(self._inner)

    def __iter__(self):
        return iter(self._inner)


# sessions


async def test_the_session_is_lost_between_the_grant_and_the_first_step(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    granted = queue._takers._line.grant
    losses = []

    def grant_and_lose(waiter, value):
        granted(waiter, value)
        if not losses:
            losses.append(value)
            value[0].lose("expired")
        return True

    queue._takers._line = _Substitute(queue._takers._line, grant=grant_and_lose)
    await queue.put(1)
    async with queue.take() as task:
        task.check()
        assert task.token > losses[0][1].token
    await nothing_leased(queue, left=0)


# errors, and closing


class Grumpy(FaultyEngine):
    """Refuses operations of some kinds."""

    kinds = ()

    async def execute(self, operations):
        answers = iter(await super().execute([o for o in operations if not isinstance(o, self.kinds)]))
        return [
            EngineError("the disk is full") if isinstance(o, self.kinds) else next(answers)
            for o in operations
        ]


async def test_a_verdict_that_the_engine_refuses_for_a_while(virtual_clock):
    engine = Grumpy(MemoryEngine())

    async def recover():
        await anyio.sleep(1.5)
        engine.kinds = ()

    async with tenure.open_store(engine, ttl=3) as store, anyio.create_task_group() as group:
        queue = WorkQueue(store, "jobs")
        await queue.put(1)
        async with queue.take():
            engine.kinds = Exchange
            group.start_soon(recover)
        assert (await queue.statistics()).done == 1
        session = store._handle.sessions.current(3.0)
        await anyio.sleep(30)
        assert session.lost is None


async def test_a_verdict_that_the_engine_refuses_for_good(virtual_clock):
    engine = Grumpy(MemoryEngine())
    async with tenure.open_store(engine, ttl=3) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put(1)
        with pytest.raises(LeaseLost, match="unacknowledged"):
            async with queue.take():
                engine.kinds = Exchange
        await anyio.sleep(6)
        engine.kinds = ()
        # the session has been given up, so the task is not held for ever by one who does not work on it
        async with queue.take(timeout=0) as task:
            assert task.deliveries == 2


async def test_an_answer_outside_any_task_refuses_a_verdict_for_a_while(tmp_path):
    path = tmp_path / "x.db"
    async with tenure.open_store(f"sqlite:///{path}", ttl=1) as store, anyio.create_task_group() as group:
        queue = WorkQueue(store, "jobs")
        number = await queue.put(1)
        with closing(sqlite3.connect(path, isolation_level=None)) as file, anyio.fail_after(10):

            async def work(*, task_status):
                async with queue.take():
                    file.execute(
                        "CREATE TRIGGER no BEFORE INSERT ON ended BEGIN SELECT RAISE(ABORT, 'not now'); END"
                    )
                    task_status.started()

            await group.start(work)
            with pytest.raises(EngineError, match="not now"):
                async with queue.take():
                    pass
            file.execute("DROP TRIGGER no")
            assert await queue.result(number) is None


async def test_an_error_is_raised_to_those_that_wait(virtual_clock):
    engine = Grumpy(MemoryEngine())
    async with tenure.open_store(engine, ttl=3) as store:
        queue = WorkQueue(store, "jobs")
        engine.kinds = Exchange
        for timeout in (None, 0, 5):
            with pytest.raises(EngineError, match="the disk is full"):
                await _take_and_settle(queue, timeout)
        engine.kinds = ()
        await queue.put(1)
        await _take_and_settle(queue, None)


async def test_when_no_session_can_be_opened(virtual_clock):
    engine = Grumpy(MemoryEngine())
    engine.kinds = OpenSession
    async with tenure.open_store(engine, ttl=3) as store:
        queue = WorkQueue(store, "jobs")
        with pytest.raises(EngineError, match="the disk is full"):
            await _take_and_settle(queue, None)
        batches = engine.batches
        await anyio.sleep(100)
        assert engine.batches == batches


async def test_closing_while_an_exchange_is_on_its_way(faulty, virtual_clock):
    async def take(queue):
        with pytest.raises(StoreClosed):
            await _take_and_settle(queue, None)

    async with anyio.create_task_group() as group:
        async with tenure.open_store(faulty, ttl=3) as store:
            queue = WorkQueue(store, "jobs")
            await _try_once(queue)
            await queue.put(1)
            faulty.pause()
            group.start_soon(take, queue)
            await virtual_clock.settle()
        faulty.resume()
        # the busy link has ended: nobody waits for an answer that cannot come
        group.start_soon(take, queue)
    # the engine could not be told: it finds out by itself
    await anyio.sleep(4)
    async with tenure.open_store(faulty, ttl=3) as store:
        await nothing_leased(WorkQueue(store, "jobs"), left=1)


async def test_more_takers_than_an_exchange_can_serve_do_not_ask_all_the_time(recording, virtual_clock):
    async with tenure.open_store(recording, ttl=300) as store:
        queue = WorkQueue(store, "jobs")

        async def take():
            async with queue.take():
                pass

        async with anyio.create_task_group() as group:
            for _ in range(300):
                group.start_soon(take)
            await anyio.sleep(10)
            assert len(recording.take(Exchange)) < 10
            await queue.put_many(range(300))
        assert (await queue.statistics()).done == 300


async def test_a_store_that_closes_does_not_wait_for_a_taker_whose_answer_is_late(virtual_clock):
    engine = FaultyEngine(MemoryEngine())

    async def clean_up_slowly(store):
        with pytest.raises(LeaseLost):
            async with tenure.Lock(store, "slow"):
                try:
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(1)

    async def take(store):
        with pytest.raises(StoreClosed):
            async with WorkQueue(store, "jobs").take():
                pass

    async def answer():
        await anyio.sleep(0.3)
        engine.resume()

    async with anyio.create_task_group() as group:
        async with tenure.open_store(engine, ttl=30.0) as store:
            group.start_soon(clean_up_slowly, store)
            await anyio.sleep(0.5)
            engine.pause()
            group.start_soon(take, store)
            await anyio.sleep(0.5)
            group.start_soon(answer)
            start = virtual_clock.now()
        assert virtual_clock.now() - start <= 1.1
