from __future__ import annotations

from dataclasses import dataclass

import anyio
import pytest

from tenure import CapacityMismatch, Lock, StoreClosed, open_store
from tenure.engine import (
    CAP,
    HOLDERS,
    RESOURCES,
    Acquire,
    AddResource,
    Ask,
    Claim,
    Claimed,
    Engine,
    GiveBack,
    Granted,
    Hint,
    Leave,
    Notice,
    Ping,
    Release,
    Resize,
    Scan,
)
from tenure.engines.memory import MemoryEngine
from tenure.store._dispatch import WINDOW
from tenure.testing import FaultyEngine
from tenure.testing._batch_link import BatchLink


@dataclass(frozen=True)
class Hold:
    key: str
    capacity: int = 1
    weight: int = 1
    wait: bool = True

    def ask(self, session, name):
        return Acquire(session, self.key, name, self.capacity, self.weight, wait=self.wait)

    def undo(self, name):
        return Release(self.key, name)


@dataclass(frozen=True)
class ResourceWish:
    key: str

    def ask(self, session, name):
        return Claim(session, self.key, name)

    def undo(self, name):
        return GiveBack(self.key, name)


class Recorder(Engine):
    """Memory that is not immediate, with its operations on record; its answers and hints can be held back."""

    url = "recorder:"

    def __init__(self):
        self.engine = MemoryEngine()
        self.log = []
        self.batches = []
        self.lose_hints = False
        self.open = anyio.Event()
        self.open.set()

    def link(self):
        return BatchLink(self)

    async def execute(self, operations):
        self.log += operations
        self.batches.append(operations)
        answers = await self.engine.execute(operations)
        await self.open.wait()
        return answers

    async def serve(self, process, deliver, *, task_status):
        def if_not_lost(hint):
            if not self.lose_hints:
                deliver(hint)

        await self.engine.serve(process, if_not_lost, task_status=task_status)

    def count(self, kind):
        return sum(isinstance(operation, kind) for operation in self.log)


@pytest.fixture
def engine():
    return Recorder()


@pytest.fixture
async def store(engine):
    async with open_store(engine, ttl=30.0) as store:
        yield store


@pytest.fixture
async def other(engine):
    async with open_store(engine, ttl=30.0) as store:
        yield store


async def test_one_that_no_longer_fits_is_hinted_to_ask_and_learns_why(store, virtual_clock):
    kept = await store._handle.acquisitions.acquire(Hold("k", 3, 3), 30.0)
    caught = []

    async def wait():
        with pytest.raises(CapacityMismatch) as error:
            await store._handle.acquisitions.acquire(Hold("k", 3, 3), 30.0)
        caught.append(error.value.stored)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await virtual_clock.settle()
        await store._handle.call(Resize("k", 2))
    assert caught == [2]
    assert virtual_clock.now() == 0
    await store._handle.acquisitions.release(Hold("k"), kept.name, kept.session).wait(1)


async def test_it_learns_how_many_are_ahead(store, other, virtual_clock):
    kept = await other._handle.acquisitions.acquire(Hold("k"), 30.0)
    seen = {name: [] for name in "abc"}
    got = []

    async def wait(name):
        got.append(await store._handle.acquisitions.acquire(Hold("k"), 30.0, seen[name].append))

    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(wait, name)
            await virtual_clock.settle()
        assert seen == {"a": [0], "b": [1], "c": [2]}
        await other._handle.acquisitions.release(Hold("k"), kept.name, kept.session).wait(1)
        await virtual_clock.settle()
        await virtual_clock.advance(40)  # asking again brings news
        assert (seen["b"][-1], seen["c"][-1]) == (0, 1)
        for count in (1, 2, 3):
            await store._handle.acquisitions.release(Hold("k"), got[-1].name, got[-1].session).wait(1)
            await virtual_clock.settle()
            assert len(got) == min(count + 1, 3)


async def test_one_question_for_all_waiters_for_a_key(store, other, engine, virtual_clock):
    kept = await other._handle.acquisitions.acquire(Hold("k"), 30.0)
    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(store._handle.acquisitions.acquire, Hold("k", 1), 30.0)
        await virtual_clock.settle()
        engine.log.clear()
        await virtual_clock.advance(300)
        questions = [operation for operation in engine.log if isinstance(operation, Ask)]
        assert 5 <= len(questions) <= 16
        assert {len(question.holders) for question in questions} == {100}
        assert engine.count(Acquire) == 0
        group.cancel_scope.cancel()
    await other._handle.acquisitions.release(Hold("k"), kept.name, kept.session).wait(1)
    assert (await store._handle.call(Scan(HOLDERS, "k"))).capacity == 0


async def test_many_waiters_are_asked_for_in_portions(store, other, engine, virtual_clock):
    """One behind the other, so that others get their turn between; those who leave meanwhile are asked for no more."""
    kept = await other._handle.acquisitions.acquire(Hold("k"), 30.0)
    async with anyio.create_task_group() as group:
        for _ in range(2 * CAP + 10):
            group.start_soon(store._handle.acquisitions.acquire, Hold("k"), 30.0)
        await virtual_clock.settle()
        engine.log.clear()
        engine.open = anyio.Event()
        store._handle.acquisitions.reasker.ask_everything()
        await virtual_clock.settle()
        assert engine.count(Ask) == 1
        engine.open.set()
        await virtual_clock.settle()
        questions = [operation for operation in engine.log if isinstance(operation, Ask)]
        assert [len(question.holders) for question in questions] == [CAP, CAP, 10]
        assert len({name for question in questions for name in question.holders}) == 2 * CAP + 10
        engine.open = anyio.Event()
        store._handle.acquisitions.reasker.ask_everything()
        await virtual_clock.settle()
        group.cancel_scope.cancel()
    engine.open.set()
    await virtual_clock.settle()
    assert engine.count(Ask) == 4
    await other._handle.acquisitions.release(Hold("k"), kept.name, kept.session).wait(1)


async def test_nobody_waits_nobody_asks(store, other, engine, virtual_clock):
    kept = await other._handle.acquisitions.acquire(Hold("k"), 30.0)
    with anyio.move_on_after(1):
        await store._handle.acquisitions.acquire(Hold("k"), 30.0)
    engine.log.clear()
    await virtual_clock.advance(100)
    assert engine.count(Ask) == 0
    assert store._handle._timers._heap == []
    await other._handle.acquisitions.release(Hold("k"), kept.name, kept.session).wait(1)


async def test_claims_are_waited_for_alike(store, other, engine, virtual_clock):
    await store._handle.call(AddResource("pool", "r", ()))
    kept = await other._handle.acquisitions.acquire(ResourceWish("pool"), 30.0)
    assert kept.answer.resource == "r"
    got = []

    async def wait():
        got.append(await store._handle.acquisitions.acquire(ResourceWish("pool"), 30.0))

    for lost in (False, True):
        engine.lose_hints = lost
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await virtual_clock.settle()
            await other._handle.acquisitions.release(ResourceWish("pool"), kept.name, kept.session).wait(1)
        assert got[-1].answer.resource == "r"
        await store._handle.acquisitions.release(ResourceWish("pool"), got[-1].name, got[-1].session).wait(1)
        kept = await other._handle.acquisitions.acquire(ResourceWish("pool"), 30.0)
    await other._handle.acquisitions.release(ResourceWish("pool"), kept.name, kept.session).wait(1)
    page = await store._handle.call(Scan(RESOURCES, "pool"))
    assert [resource.state for resource in page.rows] == ["free"]


@pytest.mark.parametrize(
    ("news", "undone"),
    [
        (Granted(5), Release("k", "nobody")),
        (Claimed("r", (), 5), GiveBack("k", "nobody")),
        (Notice.ROOM, Leave("k", "nobody")),
        (Notice.ASK, None),
        (Notice.READY, None),
    ],
)
async def test_what_nobody_waits_for_is_undone(store, engine, virtual_clock, news, undone):
    store._handle.on_hint(Hint(store.process, "k", "nobody", news))
    await virtual_clock.settle()
    assert engine.log == ([] if undone is None else [undone])


async def test_hints_for_holders_do_not_go_to_listeners_of_the_key(virtual_clock):
    heard = []

    class Listener:
        def on_hint(self, hint):
            heard.append(hint.news)

        def close(self):
            heard.append("closed")

    async with open_store("memory:") as store:
        listener = store._handle.listen("k", Listener)
        assert store._handle.listen("k", Listener) is listener
        kept = await store._handle.acquisitions.acquire(Hold("k"), 30.0)
        async with anyio.create_task_group() as group:
            group.start_soon(store._handle.acquisitions.acquire, Hold("k"), 30.0)
            await virtual_clock.settle()
            store._handle.acquisitions.release(Hold("k"), kept.name, kept.session)
        for news in (Notice.CHANGED, Notice.MISSED, Notice.ASK):
            store._handle.on_hint(Hint(store.process, "k", "", news))
    assert heard == [Notice.CHANGED, Notice.MISSED, "closed"]


async def test_cancelled_while_the_question_is_under_way(store, engine, virtual_clock):
    await store._handle.session(30.0)
    engine.open = anyio.Event()
    with anyio.move_on_after(1):
        await store._handle.acquisitions.acquire(Hold("k"), 30.0)
    engine.open.set()
    assert await store._handle.call(Scan(HOLDERS, "k")) == await store._handle.call(Scan(HOLDERS, "unknown"))
    assert store._handle.acquisitions.reasker._by_key == store._handle.acquisitions.by_name == {}
    assert len(store._handle.acquisitions) == 0


async def test_a_late_answer_registers_nobody(store, other, engine, virtual_clock):
    kept = await other._handle.acquisitions.acquire(Hold("k"), 30.0)
    await store._handle.session(30.0)
    engine.open = anyio.Event()
    with anyio.move_on_after(1):
        await store._handle.acquisitions.acquire(Hold("k"), 30.0)
    engine.open.set()
    await store.ping()
    assert store._handle.acquisitions.reasker._by_key == {}
    assert (await store._handle.call(Scan(HOLDERS, "k"))).waiting == ()
    await other._handle.acquisitions.release(Hold("k"), kept.name, kept.session).wait(1)


async def test_a_withdrawal_is_never_in_one_batch_with_its_question(store, engine, virtual_clock):
    """Sent again, that batch would ask anew for what it has just undone."""
    session = await store._handle.session(30.0)
    engine.open = anyio.Event()
    for _ in range(WINDOW):
        store._handle.send(Ping(), lambda _: None)
    attempt = store._handle.acquisitions.attempt(Hold("k"), session)
    with anyio.move_on_after(1):
        await attempt.answer()
    withdrawal = attempt.withdraw()
    engine.open.set()
    await withdrawal.wait(1)
    (question,) = (batch for batch in engine.batches if attempt.operation in batch)
    assert attempt.request.undo(attempt.name) not in question
    assert engine.count(Release) == 1


async def test_cancelled_before_the_question_left_it_does_not_leave(store, engine, virtual_clock):
    kept = await store._handle.acquisitions.acquire(Hold("other"), 30.0)
    engine.open = anyio.Event()
    for _ in range(WINDOW):
        store._handle.send(Ping(), lambda _: None)
    with anyio.move_on_after(1):
        await store._handle.acquisitions.acquire(Hold("k"), 30.0)
    engine.open.set()
    await store._handle.acquisitions.release(Hold("other"), kept.name, kept.session).wait(1)
    assert engine.count(Acquire) == 1
    assert store._handle.acquisitions.by_name == {}


@pytest.mark.parametrize("immediate", [True, False])
async def test_a_waiter_hinted_to_ask_as_the_store_closes_does_not_wait_for_ever(virtual_clock, immediate):
    memory, heard = MemoryEngine(), []

    async def wait(store):
        try:
            async with Lock(store, "held"):
                pass
        except StoreClosed:
            heard.append(virtual_clock.now())

    async with open_store(memory) as other, Lock(other, "held"), anyio.create_task_group() as group:
        async with open_store(memory if immediate else FaultyEngine(memory)) as store:
            group.start_soon(wait, store)
            await anyio.sleep(0.5)
            (name,) = store._handle.acquisitions.by_name
            store._handle.on_hint(Hint(store.process, "tenure:lock:held", name, Notice.ASK))
    assert heard == [0.5]
