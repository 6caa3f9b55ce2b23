"""Takers: who gets which task and when, whatever becomes of hints, answers, sessions and the takers themselves."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

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
        group.start_soon(queue.takers.take)
        await anyio.lowlevel.checkpoint()
        yield
        group.cancel_scope.cancel()


# who gets what


async def test_takers_are_served_in_the_order_in_which_they_came(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    got = []

    async def take(n):
        async with queue.take() as task:
            got.append((n, task.payload))

    async with anyio.create_task_group() as group:
        for n in range(5):
            group.start_soon(take, n)
            await virtual_clock.settle()
        await queue.put_many(range(5))
    assert sorted(got) == [(n, n) for n in range(5)]


async def test_each_task_is_taken_by_one(open_store_on, virtual_clock):
    # the sketch looks and then removes, so that two workers see one task
    async with open_store_on(ttl=3) as a, open_store_on(ttl=3) as b:
        queues = [WorkQueue(store, "jobs") for store in (a, b)]
        taken = []

        async def work(queue):
            while True:
                async with queue.take() as task:
                    taken.append(task.payload)
                    await anyio.sleep(0.01)

        tasks = range(depth.share(500))
        async with anyio.create_task_group() as group:
            for n in range(20):
                group.start_soon(work, queues[n % 2])
            await queues[0].put_many(tasks)
            await queues[1].join()
            group.cancel_scope.cancel()
        assert sorted(taken) == list(tasks)
        await nothing_leased(queues[0], left=0)


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


async def test_a_delayed_task_comes_when_it_is_due(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    start = virtual_clock.now()
    await queue.put("later", delay=2)
    await queue.put("sooner", delay=1)
    for payload, due in (("sooner", 1), ("later", 2)):
        async with queue.take() as task:
            assert task.payload == payload
            assert due <= virtual_clock.now() - start <= due + 0.3


async def test_a_task_delayed_for_many_ttls_starts_once(store, virtual_clock):
    """Row 15: kombu#337, celery#2481: a delay above the visibility timeout makes copies."""
    queue = WorkQueue(store, "jobs")
    start = virtual_clock.now()
    starts = []

    async def work():
        while True:
            async with queue.take():
                starts.append(virtual_clock.now() - start)

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        group.start_soon(work)
        await queue.put(1, delay=30)
        await anyio.sleep(60)
        group.cancel_scope.cancel()
    assert starts == [pytest.approx(30.1, abs=0.2)]


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
        recording = (await queue.browse("ended")).tasks
        assert [record.deliveries for record in recording] == [1, 1]


async def test_a_hint_while_an_exchange_without_its_taker_is_on_its_way(engine, virtual_clock):
    link = FaultyEngine(engine)
    async with tenure.open_store(link, ttl=300) as a, tenure.open_store(engine, ttl=300) as b:
        queue, other = (WorkQueue(store, "jobs") for store in (a, b))
        async with anyio.create_task_group() as group:
            async with a_taker(queue):
                await virtual_clock.settle()
                link.pause()  # the next exchange registers the taker anew, its answer is on its way
                queue.takers.reask()
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
                group.start_soon(queue.takers.take)
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


@pytest.mark.parametrize("newcomer", [False, True], ids=["W2", "W2N"])
@pytest.mark.parametrize("turns", range(6))
async def test_cancelled_around_the_turn_in_which_a_task_is_handed_over(
    faulty, faulty_store, virtual_clock, newcomer, turns
):
    """W1 to W3: cancelled so many turns of the loop after the answer was let go, the last time long after it."""
    queue = WorkQueue(faulty_store, "jobs")
    got = []

    async def take(name):
        async with queue.take() as task:
            got.append((name, task.payload))

    await queue.put("the task")
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as inner:
                faulty.pause()
                inner.start_soon(take, "cancelled")
                await virtual_clock.settle()
                faulty.resume()
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
                if newcomer:
                    group.start_soon(take, "newcomer")
        await virtual_clock.settle()
        await queue.takers.until_idle()
        got += [("later", payload) for payload in await take_all(queue)]
        # whoever was cancelled after it had the task may have completed it or given it back
        done = (await queue.statistics()).done
        assert done == 1
        assert 1 <= len(got) <= 2
        await nothing_leased(queue, left=0)
        group.cancel_scope.cancel()


@pytest.mark.backends("asyncio")
async def test_handed_a_task_and_then_cancelled_in_the_same_turn(store, virtual_clock):
    """W3, natively: the only cancellation that still reaches one that was handed something."""
    queue = WorkQueue(store, "jobs")
    taking = asyncio.get_running_loop().create_task(queue.takers.take())
    await virtual_clock.settle()
    granted = queue.takers._line.grant

    def grant_and_cancel(waiter, value):
        granted(waiter, value)
        taking.cancel()
        return True

    queue.takers._line = _Substitute(queue.takers._line, grant=grant_and_cancel)
    await queue.put(1)
    with pytest.raises(asyncio.CancelledError):
        await taking
    await virtual_clock.settle()
    await nothing_leased(queue, left=1)


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


async def test_takers_that_leave_while_the_exchange_is_on_its_way(faulty, faulty_store, virtual_clock):
    queue = WorkQueue(faulty_store, "jobs")
    await queue.put_many(range(3))
    faulty.pause()
    async with a_taker(queue), a_taker(queue), a_taker(queue):
        await virtual_clock.settle()
    faulty.resume()
    await queue.takers.until_idle()
    await nothing_leased(queue, left=3)
    assert await take_all(queue) == [0, 1, 2]


# sessions


async def test_stranded_tasks_are_taken_up_without_any_traffic(engine, virtual_clock):
    """Rows 1 to 4, 9 and 24: nobody puts, nobody finishes, no user code: time alone brings them back."""
    link = FaultyEngine(engine)
    async with tenure.open_store(link, ttl=3) as dead, tenure.open_store(engine, ttl=3) as alive:
        queue, other = (WorkQueue(store, "jobs") for store in (dead, alive))
        await queue.put_many(range(3))
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(_take_and_hold, queue)
            await virtual_clock.settle()
            assert (await other.statistics()).leased == 3
            link.pause(before_effect=True)
            died = virtual_clock.now()
            for n in range(3):
                async with other.take() as task:
                    assert virtual_clock.now() - died <= 3 + 1
                    assert task.payload == n
                    assert (task.attempt, task.deliveries) == (1, 2)
            link.resume()
            group.cancel_scope.cancel()
        await nothing_leased(other, left=0)


async def _take_and_hold(queue):
    with pytest.raises(LeaseLost):
        async with queue.take():
            await anyio.sleep(1000)


async def test_the_session_is_lost_between_the_grant_and_the_first_step(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    granted = queue.takers._line.grant
    losses = []

    def grant_and_lose(waiter, value):
        granted(waiter, value)
        if not losses:
            losses.append(value)
            value[0].lose("expired")
        return True

    queue.takers._line = _Substitute(queue.takers._line, grant=grant_and_lose)
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
        session = store.sessions.current(3.0)
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
