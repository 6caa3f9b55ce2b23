from __future__ import annotations

import anyio
import pytest

from tenure import EngineError, Limit, OutcomeUnknown, RateLimiter, StoreClosed, open_store
from tenure.engine import CloseSession, Engine, OpenSession, RateLimit, Spend, SpendRequest, SpendResults
from tenure.engines.memory import MemoryEngine
from tenure.store import Batcher, Timer
from tenure.testing import Fault, FaultyEngine


class BatchOwner:
    """Spends what was gathered, and writes down what it is told."""

    def __init__(self, store, ttl=3.0):
        self.batcher = Batcher(store._handle, "key", ttl, self)
        self.gathered = 0
        self.sent = []
        self.told = []

    def say(self, count=1):
        self.gathered += count
        self.batcher.schedule()

    def next_operation(self, session, n):
        if not self.gathered:
            return None
        requests = (SpendRequest((1.0,)),) * self.gathered
        self.gathered = 0
        self.sent.append(n)
        return Spend(session.id, n, "key", requests, (RateLimit("", 1.0, 100.0),))

    def on_answer(self, session, answer):
        self.told.append(len(answer.answers))
        if self.gathered:
            self.batcher.schedule()

    def on_session_lost(self, *, resent):
        self.told.append("gone, resent" if resent else "gone")

    def on_error(self, error, session):
        self.told.append((type(error), session is None))


@pytest.fixture
def link():
    return FaultyEngine(MemoryEngine())


class Refusing(Engine):
    """An engine that refuses operations of some kinds."""

    url = ""

    def __init__(self, engine, *kinds):
        self.url = engine.url
        self.serve = engine.serve
        self.kinds = kinds
        self.seen = 0
        self._engine = engine

    def link(self):
        self._engine = self._engine.link()
        self.serve = self._engine.serve
        return self

    def submit(self, operation, on_answer):
        if isinstance(operation, self.kinds):
            self.seen += 1
            on_answer(EngineError("the disk is full"))
        else:
            self._engine.submit(operation, on_answer)


async def test_what_gathers_in_a_turn_of_the_loop_leaves_together(link, virtual_clock):
    async with open_store(link, ttl=3) as store:
        owner = BatchOwner(store)
        for _ in range(5):
            owner.say()
        await virtual_clock.settle()
        assert owner.told == [5]


async def test_one_at_a_time_and_what_gathers_meanwhile_forms_the_next(link, virtual_clock):
    async with open_store(link, ttl=3) as store:
        owner = BatchOwner(store)
        owner.say()
        await virtual_clock.settle()
        link.pause()
        owner.say()
        await virtual_clock.settle()
        for _ in range(4):
            owner.say()
            await virtual_clock.settle()
        assert owner.batcher.busy
        assert len(owner.sent) == 2
        link.resume()
        await virtual_clock.settle()
        assert owner.told == [1, 1, 4]
        assert not owner.batcher.busy


async def test_numbers_rise_also_when_the_batcher_of_an_object_is_made_anew(link, virtual_clock):
    # else the engine would repeat an old answer to a new operation
    async with open_store(link, ttl=3) as store:
        numbers = []
        for _ in range(3):
            owner = BatchOwner(store)
            owner.say()
            await virtual_clock.settle()
            owner.say(2)
            await virtual_clock.settle()
            assert owner.told == [1, 2]
            numbers += owner.sent
        assert numbers == sorted(set(numbers))


async def test_an_answer_that_was_lost_is_repeated_and_not_made_anew(link, virtual_clock):
    async with open_store(link, ttl=3) as store:
        limiter = RateLimiter(store, "key", Limit(1, burst=2))
        await limiter.acquire()
        link.plan(Fault.LOST_REPLY, on=Spend)
        await limiter.acquire()
        assert link.suffered[Fault.LOST_REPLY] == 1
        assert not await limiter.try_acquire()
        await anyio.sleep(1)
        assert await limiter.try_acquire()


async def test_a_session_that_had_gone_before_it_was_sent(link, virtual_clock):
    async with open_store(link, ttl=3) as store:
        owner = BatchOwner(store)
        owner.say()
        await virtual_clock.settle()
        session = store._handle.sessions.current(3.0)
        await store._handle.call(CloseSession(session.id))
        owner.say()
        await virtual_clock.settle()
        assert owner.told == [1, "gone"]
        assert session.lost == "gone"
        owner.say()
        await virtual_clock.settle()
        assert owner.told == [1, "gone", 1]


async def test_a_session_that_ended_while_the_outcome_was_unknown(link, virtual_clock):
    async with open_store(link, ttl=3) as store:
        owner = BatchOwner(store)
        owner.say()
        await virtual_clock.settle()
        link.plan(Fault.LOST_REPLY, on=Spend)
        link.plan(Fault.LOST_REQUEST, times=40)
        owner.say()
        await anyio.sleep(60)
        assert owner.told == [1, "gone, resent"]


async def test_outcome_unknown_only_when_the_session_is_over(link, virtual_clock):
    async with open_store(link, ttl=3) as store:
        limiter = RateLimiter(store, "key", Limit(1, burst=100))
        await limiter.acquire()
        for fault in (Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.CUT, Fault.DUPLICATE):
            link.plan(fault, on=Spend)
            await limiter.acquire()
        link.plan(Fault.LOST_REPLY, on=Spend)
        link.plan(Fault.LOST_REQUEST, times=40)
        with pytest.raises(OutcomeUnknown):
            await limiter.acquire()


@pytest.mark.parametrize("wired", [False, True])
async def test_when_no_session_can_be_opened_it_is_reported_and_nobody_asks_over_and_over(
    wired, virtual_clock
):
    inner = FaultyEngine(MemoryEngine()) if wired else MemoryEngine()
    engine = Refusing(inner, OpenSession)
    async with open_store(engine, ttl=3) as store:
        owner = BatchOwner(store)
        owner.say()
        await anyio.sleep(60)
        assert owner.told == [(EngineError, True)]
        assert engine.seen == 1
        engine.kinds = ()
        owner.say()
        await virtual_clock.settle()
        assert owner.told[1:] == [2]


@pytest.mark.parametrize("wired", [False, True])
async def test_an_operation_that_fails_alone(wired, virtual_clock):
    inner = FaultyEngine(MemoryEngine()) if wired else MemoryEngine()
    engine = Refusing(inner, Spend)
    async with open_store(engine, ttl=3) as store:
        owner = BatchOwner(store)
        owner.say()
        await virtual_clock.settle()
        assert owner.told == [(EngineError, False)]
        assert not owner.batcher.busy


async def test_when_the_store_is_closed(link, virtual_clock):
    async with open_store(link, ttl=3) as store:
        owner = BatchOwner(store)
        owner.say()
        await virtual_clock.settle()
    owner.say()
    owner.batcher._flush()
    assert owner.told == [1, (StoreClosed, True)]


async def test_when_the_store_was_never_opened():
    owner = BatchOwner(open_store("memory:"))
    with pytest.raises(RuntimeError, match="not open"):
        owner.say()


async def test_an_answer_is_what_the_engine_says(link):
    # the tests above lean on it
    async with open_store(link, ttl=3) as store:
        session = await store._handle.session(3.0)
        answer = await store._handle.call(
            Spend(session.id, 1, "key", (SpendRequest((1.0,)),) * 3, (RateLimit("", 1.0, 100.0),))
        )
        assert isinstance(answer, SpendResults)
        assert len(answer.answers) == 3


async def test_an_timer_rings_at_the_time_that_was_set_last(virtual_clock):
    async with open_store(MemoryEngine(), ttl=3) as store:
        rung = []
        timer = Timer(store._handle.call_at, lambda: rung.append(virtual_clock.now()))
        start = virtual_clock.now()
        timer.set(10)
        await anyio.sleep(5)
        timer.set(20)  # later
        await anyio.sleep(10)
        assert rung == []
        timer.set(2)  # earlier
        await anyio.sleep(60)
        assert len(rung) == 1
        assert 17 <= rung[0] - start <= 17.2 + 1e-9
        timer.set(1)
        await anyio.sleep(60)
        assert len(rung) == 2


async def test_an_timer_that_is_set_all_the_time_keeps_one_timer(virtual_clock):
    async with open_store(MemoryEngine(), ttl=3) as store:
        armed = []
        store._handle.call_at = lambda when, function: armed.append(when)
        timer = Timer(store._handle.call_at, lambda: None)
        timer.set(1.0)
        for _ in range(1000):
            timer.set(1000)
        assert len(armed) == 1


async def test_an_timer_may_be_set_when_it_rings_and_for_never(virtual_clock):
    async with open_store(MemoryEngine(), ttl=3) as store:
        rung = []

        def ring():
            rung.append(virtual_clock.now())
            timer.set(1 if len(rung) < 3 else float("inf"))

        timer = Timer(store._handle.call_at, ring)
        timer.set(0)
        await anyio.sleep(100)
        assert len(rung) == 3
        assert rung[0] >= 0.02
