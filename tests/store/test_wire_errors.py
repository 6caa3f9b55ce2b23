"""An engine that raises what it may not: an `EngineError` for a whole batch fails the batch, a fault ends the store."""

from __future__ import annotations

import anyio
import pytest

import tenure
from tenure import EngineError, LeaseLost, Lock, ResourcePool, StoreClosed, Worker, WorkQueue
from tenure.engine import (
    Acquire,
    CloseSession,
    Exchange,
    OpenSession,
    Ping,
    Put,
    Release,
    RenewSession,
    Spend,
)
from tenure.engines.memory import MemoryEngine
from tenure.testing._batch_link import BatchLink


class Rude(MemoryEngine):
    """Raises `error` for a batch with an operation of a type in `refused`."""

    refused = ()

    def __init__(self):
        super().__init__()
        self.error = KeyError("bug")

    def link(self):
        return BatchLink(self)

    async def execute(self, operations):
        if any(isinstance(operation, self.refused) for operation in operations):
            await anyio.lowlevel.checkpoint()
            raise self.error
        return await super().execute(operations)


class RudeAtOnce(Rude):
    """Raises it while the operation is submitted."""

    def link(self):
        return self

    def submit(self, operation, on_answer):
        if isinstance(operation, self.refused):
            raise self.error
        super().submit(operation, on_answer)


class Silent(RudeAtOnce):
    """Once something is refused, the rest is never answered."""

    def submit(self, operation, on_answer):
        if not self.refused or isinstance(operation, self.refused):
            super().submit(operation, on_answer)


class Linked(Rude):
    """Its link ends by the error."""

    def __init__(self):
        super().__init__()
        self.end = anyio.Event()

    async def serve(self, process, deliver, *, task_status):
        async with anyio.create_task_group() as group:
            await group.start(super().serve, process, deliver)
            task_status.started()
            await self.end.wait()
            group.cancel_scope.cancel()
        raise self.error


ENGINES = (Rude, RudeAtOnce, Silent, Linked)


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param()


def strike(store):
    """The fault comes to light."""
    engine = store._handle._engine
    if isinstance(engine, Linked):
        engine.end.set()
    else:
        engine.refused = (Ping,)
        store._handle.send(Ping(), lambda _: None)


# what waits for ever in a store in which nothing happens


async def held(store):
    async with Lock(store, "lock"):
        await anyio.sleep_forever()


async def two_in_line(store):
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(held, store)


async def taking(store):
    async with WorkQueue(store, "empty").take():
        pytest.fail("taken")


async def taken(store):
    queue = WorkQueue(store, "jobs")
    await queue.put("job")
    async with queue.take():
        await anyio.sleep_forever()


async def putting(store):
    queue = WorkQueue(store, "full", max_size=1)
    await queue.put("first")
    await queue.put("second")


async def joining(store):
    queue = WorkQueue(store, "unfinished")
    await queue.put("job")
    await queue.join()


async def waiting_for_a_result(store):
    queue = WorkQueue(store, "resulting")
    await queue.result(await queue.put("job"))


async def at_a_barrier(store):
    await tenure.Barrier(store, "barrier", 2).wait()


async def limited(store):
    limiter = tenure.RateLimiter(store, "slow", tenure.Limit(0.001))
    await limiter.acquire()
    await limiter.acquire()


async def claiming(store):
    async with ResourcePool(store, "pool").claim():
        pytest.fail("claimed")


async def watching(store):
    async with tenure.Election(store, "election").watch() as changes:
        async for _ in changes:
            pass


async def working(store):
    async def handle(task: tenure.Task):
        await anyio.sleep_forever()

    queue = WorkQueue(store, "work")
    await queue.put("job")
    await Worker(queue, handle, concurrency=3).run()


WAITS = (
    held,
    two_in_line,
    taking,
    taken,
    putting,
    joining,
    waiting_for_a_result,
    at_a_barrier,
    limited,
    claiming,
    watching,
    working,
)


async def test_a_batch_that_fails_as_a_whole_does_not_end_the_store():
    engine = Rude()
    engine.refused, engine.error = (Ping,), EngineError("no pings")
    async with tenure.open_store(engine) as store:
        with pytest.raises(EngineError, match="no pings"):
            await store.ping()
        async with Lock(store, "report") as lease:
            lease.check()


async def test_a_fault_is_raised_by_the_block_and_in_all_others_at_once(engine, virtual_clock):
    told = []

    async def wait(waiting):
        try:
            await waiting(store)
        except* (StoreClosed, LeaseLost):
            told.append(waiting)

    async with anyio.create_task_group() as others:
        with pytest.raises(KeyError, match="bug") as caught:
            async with tenure.open_store(engine) as store:
                for waiting in WAITS:
                    others.start_soon(wait, waiting)
                await virtual_clock.advance(1)
                assert told == []
                strike(store)
                await anyio.sleep_forever()
        assert caught.value is engine.error
        with pytest.raises(StoreClosed) as closed:
            await store.ping()
        assert closed.value.__cause__ is engine.error
    assert set(told) == set(WAITS)
    assert virtual_clock.now() == 1
    assert (await store.statistics()).pending == 0
    assert (await store.statistics()).jobs == ()


@pytest.mark.parametrize("shield", [False, True], ids=["", "shielded"])
@pytest.mark.parametrize("waiting", WAITS)
async def test_whatever_the_block_waits_for_the_fault_leaves_alone(engine, waiting, shield, virtual_clock):
    async with anyio.create_task_group() as others:
        with pytest.raises(KeyError, match="bug"):
            async with tenure.open_store(engine) as store:
                others.start_soon(later, strike, store)
                with anyio.CancelScope(shield=shield):
                    await waiting(store)
    assert virtual_clock.now() == 1


async def later(function, *args):
    await anyio.sleep(1)
    function(*args)


async def pinging(store):
    await store.ping()


async def locking(store):
    async with Lock(store, "a"):
        pass


async def exchanging(store):
    queue = WorkQueue(store, "q")
    await queue.put(1)
    async with queue.take():
        pass


async def spending(store):
    await tenure.RateLimiter(store, "rate", tenure.Limit(1)).acquire()


async def lasting(store):
    async with Lock(store, "a", ttl=3):
        await anyio.sleep_forever()


@pytest.mark.parametrize("kind", [Rude, RudeAtOnce])
@pytest.mark.parametrize(
    ("refused", "use", "seconds"),
    [
        (Ping, pinging, 0),
        (OpenSession, locking, 0),
        (Acquire, locking, 0),
        (Release, locking, 0),
        (CloseSession, locking, 0),
        (Put, exchanging, 0),
        (Exchange, exchanging, 0),
        (Spend, spending, 0),
        (RenewSession, lasting, 1),
    ],
)
async def test_whatever_operation_it_is(kind, refused, use, seconds, virtual_clock):
    engine = kind()
    engine.refused = (refused,)
    with pytest.raises(KeyError) as caught:
        async with tenure.open_store(engine) as store:
            await use(store)
    assert caught.value is engine.error
    assert virtual_clock.now() == seconds


async def test_a_verdict_on_its_way_is_not_waited_for_when_the_engine_fails(virtual_clock):
    engine = Rude()

    async def work():
        with pytest.raises(LeaseLost, match="unacknowledged"):
            async with queue.take():
                engine.refused = (Exchange,)

    async with anyio.create_task_group() as others:
        with pytest.raises(KeyError):
            async with tenure.open_store(engine) as store:
                queue = WorkQueue(store, "jobs")
                await queue.put("job")
                others.start_soon(work)
                await anyio.sleep_forever()
    assert virtual_clock.now() == 0


async def test_an_error_of_the_blocks_own_is_not_hidden_by_the_fault(engine, virtual_clock):
    with pytest.raises(ExceptionGroup) as caught:
        async with tenure.open_store(engine) as store:
            strike(store)
            try:
                await anyio.sleep_forever()
            finally:
                raise ZeroDivisionError
    assert {type(error) for error in caught.value.exceptions} == {KeyError, ZeroDivisionError}


async def test_answers_that_come_after_the_end_are_dropped(virtual_clock):
    answers = []

    class Late(RudeAtOnce):
        def submit(self, operation, on_answer):
            if isinstance(operation, Ping) and not self.refused:
                answers.append(on_answer)
            else:
                super().submit(operation, on_answer)

    engine, heard = Late(), []
    with pytest.raises(KeyError):
        async with tenure.open_store(engine) as store:
            store._handle.send(Ping(), heard.append)
            strike(store)
            await anyio.sleep_forever()
    assert [str(answer) for answer in heard] == ["the store has ended by a fault: KeyError('bug')"]
    answers[0](None)
    assert len(heard) == 1
