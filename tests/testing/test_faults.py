import math
import random
from contextlib import AsyncExitStack, suppress

import anyio
import depth
import pytest

import tenure
from benchmarks.soak.referees import History, conservation, mutual_exclusion, nothing_lost
from tenure.engine import (
    HOLDERS,
    Acquire,
    Claim,
    Count,
    Engine,
    Exchange,
    Granted,
    Hint,
    Leave,
    Notice,
    OpenSession,
    Ping,
    Queued,
    Release,
    RenewSession,
    Reply,
    Scan,
)
from tenure.engines.memory import MemoryEngine
from tenure.engines.sqlite import SqliteEngine
from tenure.errors import LeaseLost, StoreUnavailable
from tenure.testing import Fault, FaultyEngine
from tenure.testing._faults import LeapingClock


class RecordingEngine(Engine):
    """An engine that only notes what arrives."""

    url = "recording:"

    def __init__(self):
        self.applied = []
        self.listeners = {}

    async def execute(self, operations, /):
        self.applied.extend(operations)
        await anyio.lowlevel.checkpoint()
        return [f"{type(operation).__name__} {len(self.applied)}" for operation in operations]

    async def serve(self, process, deliver, *, task_status=anyio.TASK_STATUS_IGNORED):
        self.listeners[process] = deliver
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            del self.listeners[process]


@pytest.fixture
def recording():
    return RecordingEngine()


@pytest.fixture
def faulty(recording):
    return FaultyEngine(recording)


BATCH = [Ping(), OpenSession("s", "p", 1.0), Ping()]


async def test_without_faults_it_is_the_engine_inside(faulty, recording):
    assert await faulty.execute(BATCH) == ["Ping 3", "OpenSession 3", "Ping 3"]
    assert recording.applied == BATCH
    assert (faulty.batches, dict(faulty.suffered)) == (1, {})
    assert faulty.url == "recording:"


async def test_a_lost_request_has_no_effect(faulty, recording):
    faulty.plan(Fault.LOST_REQUEST)
    with pytest.raises(StoreUnavailable, match="recording:: lost request"):
        await faulty.execute(BATCH)
    assert recording.applied == []
    await faulty.execute(BATCH)
    assert recording.applied == BATCH
    assert faulty.suffered == {Fault.LOST_REQUEST: 1}


async def test_a_lost_reply_has_its_effect(faulty, recording):
    faulty.plan(Fault.LOST_REPLY)
    with pytest.raises(StoreUnavailable, match="lost reply"):
        await faulty.execute(BATCH)
    assert recording.applied == BATCH


async def test_a_cut_applies_a_beginning(recording):
    lengths = set()
    for seed in range(30):
        recording.applied.clear()
        faulty = FaultyEngine(recording, seed=seed)
        faulty.plan(Fault.CUT)
        with pytest.raises(StoreUnavailable, match="cut"):
            await faulty.execute(BATCH)
        assert recording.applied == BATCH[: len(recording.applied)]
        lengths.add(len(recording.applied))
    assert lengths == {0, 1, 2}


async def test_a_duplicate_returns_the_second_answers(faulty, recording):
    faulty.plan(Fault.DUPLICATE)
    assert await faulty.execute(BATCH) == ["Ping 6", "OpenSession 6", "Ping 6"]
    assert recording.applied == BATCH * 2


async def test_a_delay_takes_its_time(recording, virtual_clock):
    faulty = FaultyEngine(recording, delay=2.5)
    faulty.plan(Fault.DELAY)
    await faulty.execute(BATCH)
    assert virtual_clock.now() == 2.5


async def test_a_plan_waits_for_its_operation(faulty, recording):
    faulty.plan(Fault.LOST_REPLY, on=OpenSession, times=2)
    faulty.plan(Fault.LOST_REQUEST, on=Ping)
    with pytest.raises(StoreUnavailable, match="lost request"):
        await faulty.execute([Ping()])
    await faulty.execute([Ping()])
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="lost reply"):
            await faulty.execute(BATCH)
    await faulty.execute(BATCH)


async def outcomes(engine, rounds=200):
    seen = []
    for _ in range(rounds):
        try:
            seen.append((await engine.execute(BATCH))[0])
        except StoreUnavailable as error:
            seen.append(str(error))
    return seen


async def test_the_same_seed_repeats_the_same_faults():
    rates = {Fault.LOST_REQUEST: 0.1, Fault.LOST_REPLY: 0.1, Fault.DUPLICATE: 0.1, Fault.CUT: 0.1}
    first, second, other = [
        await outcomes(FaultyEngine(RecordingEngine(), seed=seed, rates=rates)) for seed in (7, 7, 8)
    ]
    assert first == second != other
    assert 20 <= sum("recording" in outcome for outcome in first) <= 100


async def test_paused_answers_wait_and_the_effect_does_not(faulty, recording, virtual_clock):
    faulty.pause()
    async with anyio.create_task_group() as group:
        group.start_soon(faulty.execute, BATCH)
        await virtual_clock.advance(100)
        assert recording.applied == BATCH
        assert "paused" in repr(faulty)
        faulty.resume()
    await faulty.execute(BATCH)


async def test_paused_before_the_effect(faulty, recording, virtual_clock):
    faulty.pause(before_effect=True)
    async with anyio.create_task_group() as group:
        group.start_soon(faulty.execute, BATCH)
        await virtual_clock.advance(100)
        assert recording.applied == []
        faulty.resume()
    assert recording.applied == BATCH


async def test_paused_and_cancelled(faulty, recording, virtual_clock):
    faulty.pause(before_effect=True)
    with anyio.move_on_after(1) as scope:
        await faulty.execute(BATCH)
    assert scope.cancelled_caught
    faulty.resume()
    await virtual_clock.advance(1)
    assert recording.applied == []


async def test_hints_get_lost_and_doubled_and_held_back(faulty, recording):
    hint = Hint("p", "key", "holder", Granted(1))
    seen = []
    async with anyio.create_task_group() as group:
        await group.start(faulty.serve, "p", seen.append)
        deliver = recording.listeners["p"]
        deliver(hint)
        assert seen == [hint]
        faulty.plan(Fault.LOST_HINT)
        await faulty.execute(BATCH)
        deliver(hint)
        assert seen == [hint]
        faulty.plan(Fault.DUPLICATE_HINT)
        deliver(hint)
        assert seen == [hint] * 3
        faulty.pause()
        deliver(hint)
        assert seen == [hint] * 3
        faulty.resume()
        assert seen == [hint] * 4
        group.cancel_scope.cancel()
    assert recording.listeners == {}


async def test_over_the_memory_engine_a_lost_reply_is_healed_by_sending_again(virtual_clock):
    faulty = FaultyEngine(MemoryEngine())
    await faulty.execute([OpenSession("s", "p", 10.0), OpenSession("t", "q", 10.0)])
    first, second = Acquire("s", "lock", "h1", 1), Acquire("t", "lock", "h2", 1)
    faulty.plan(Fault.LOST_REPLY, on=Acquire)
    with pytest.raises(StoreUnavailable):
        await faulty.execute([first])
    (granted,) = await faulty.execute([first])
    assert isinstance(granted, Granted)
    hints = []
    async with anyio.create_task_group() as group:
        await group.start(faulty.serve, "q", hints.append)
        (queued,) = await faulty.execute([second])
        assert isinstance(queued, Queued)
        faulty.plan(Fault.DUPLICATE)
        assert list(await faulty.execute([Release("lock", "h1")])) == [Reply.UNKNOWN]
        assert [hint.name for hint in hints] == ["h2"]
        group.cancel_scope.cancel()


def test_a_store_submits_to_a_link_of_its_own(faulty):
    with pytest.raises(RuntimeError, match=r"recording:: submit Ping\(.*\) to a link of this engine"):
        faulty.submit(Ping(), pytest.fail)
    assert faulty.link() is not faulty.link()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"rates": {Fault.CUT: 1.5}}, "rates"),
        ({"rates": {Fault.CUT: 0.6, Fault.LOST_REPLY: 0.6}}, "rates"),
        ({"rates": {Fault.CUT: -0.1}}, "rates"),
        ({"rates": {Fault.LOST_HINT: 0.6, Fault.DUPLICATE_HINT: 0.6}}, "rates"),
        ({"delay": -1}, "delay"),
    ],
)
def test_arguments_are_checked(recording, arguments, named):
    with pytest.raises(ValueError, match=f"^{named}:"):
        FaultyEngine(recording, **arguments)
    with pytest.raises(ValueError, match="^times:"):
        FaultyEngine(recording).plan(Fault.CUT, times=0)


def test_faults_of_hints_and_of_batches_are_counted_apart(recording):
    FaultyEngine(recording, rates={Fault.CUT: 0.9, Fault.LOST_HINT: 0.9})


# ---------------------------------------------------------------------------------------------------------- reordering


async def test_a_batch_is_overtaken_by_the_next(faulty, recording, virtual_clock):
    faulty.plan(Fault.REORDER)
    async with anyio.create_task_group() as group:
        group.start_soon(faulty.execute, [Ping(), Ping()])
        await virtual_clock.settle()
        assert recording.applied == []
        await faulty.execute([RenewSession("s")])
    assert recording.applied == [RenewSession("s"), Ping(), Ping()]
    assert virtual_clock.now() == 0
    assert faulty.suffered == {Fault.REORDER: 1}


async def test_a_batch_that_nobody_overtakes_is_late(recording, virtual_clock):
    faulty = FaultyEngine(recording, delay=2)
    faulty.plan(Fault.REORDER, times=2)
    await faulty.execute(BATCH)
    await faulty.execute(BATCH)
    assert virtual_clock.now() == 4
    assert recording.applied == BATCH * 2


# ------------------------------------------------------------------------------------------------ one session is paused


@pytest.mark.parametrize(
    "operation",
    [
        RenewSession("p/1"),
        Acquire("p/1", "key", "p/1.1", 1),
        Release("key", "p/1.1"),
        Claim("p/1", "pool", "p/1.2"),
        Leave("queue", "p/1.4"),
        Exchange("p/1", 1, "queue"),
        Scan(HOLDERS, "key", watch="p/1"),
    ],
    ids=lambda operation: type(operation).__name__,
)
async def test_what_comes_from_a_paused_session_waits_and_takes_effect_late(
    operation, faulty, recording, virtual_clock
):
    faulty.pause_session("p/1")
    others = [
        Ping(),
        RenewSession("p/10"),
        Release("key", "p/2.1"),
        Release("key", "p/11.1"),
        Count("queue", watch="q/1"),
    ]
    async with anyio.create_task_group() as group:
        group.start_soon(faulty.execute, [Ping(), operation])
        await virtual_clock.advance(100)
        await faulty.execute(others)
        assert recording.applied == others
        assert "paused" in repr(faulty)
        faulty.resume_session("p/1")
    assert recording.applied == [*others, Ping(), operation]
    assert "paused" not in repr(faulty)


async def test_a_paused_process_is_all_of_its_sessions(faulty, recording, virtual_clock):
    faulty.pause_session("p")
    async with anyio.create_task_group() as group:
        for session in ("p/1", "p/2", "pp/1"):
            group.start_soon(faulty.execute, [RenewSession(session)])
        await virtual_clock.settle()
        assert recording.applied == [RenewSession("pp/1")]
        faulty.resume()
    assert len(recording.applied) == 3


@pytest.mark.parametrize("paused", ["p/1", "p"])
async def test_hints_for_the_process_of_a_paused_session_wait(faulty, recording, paused):
    seen = []
    async with anyio.create_task_group() as group:
        for process in ("p", "q"):
            await group.start(faulty.serve, process, seen.append)
        faulty.pause_session(paused)
        for process in ("p", "q"):
            recording.listeners[process](Hint(process, "queue", "", Notice.READY))
        assert [hint.process for hint in seen] == ["q"]
        faulty.pause()
        faulty.resume_session(paused)
        assert len(seen) == 1
        faulty.resume()
        assert [hint.process for hint in seen] == ["q", "p"]
        group.cancel_scope.cancel()


async def test_to_resume_what_is_not_paused_does_nothing(faulty):
    faulty.resume_session("p/1")
    faulty.resume()


# --------------------------------------------------------------------------------------------------- a clock that leaps


async def test_a_clock_leaps_forwards_and_backwards(virtual_clock):
    clock = LeapingClock()
    faulty = FaultyEngine(MemoryEngine(clock=clock), clock=clock)
    await faulty.execute([OpenSession("s", "p", 30.0)])
    faulty.jump(-60)
    assert clock() == -60
    await virtual_clock.advance(31)
    assert list(await faulty.execute([RenewSession("s")])) == [Reply.OK]
    faulty.jump(91)
    assert clock() == 62
    assert list(await faulty.execute([RenewSession("s")])) == [Reply.GONE]
    assert repr(clock) == "<LeapingClock +31 s>"


def test_a_clock_on_top_of_another():
    clock = LeapingClock(lambda: 5.0)
    clock.jump(1.5)
    assert clock() == 6.5
    for seconds in (math.nan, math.inf):
        with pytest.raises(ValueError, match="^seconds:"):
            clock.jump(seconds)


def test_a_clock_that_nobody_can_move(faulty):
    with pytest.raises(RuntimeError, match="^jump: the clock of recording: cannot be moved; .*LeapingClock"):
        faulty.jump(60)


# --------------------------------------------------------------------------------------------------------- with stores


@pytest.fixture(params=["memory", "sqlite"])
def leaping(request, tmp_path, virtual_clock):
    """An engine that several stores share, whose clock can leap."""
    clock = LeapingClock()
    if request.param == "memory":
        engine = MemoryEngine(clock=clock)
    else:
        engine = SqliteEngine(tmp_path / "store.db", clock=clock, inline=True)
    return FaultyEngine(engine, clock=clock)


async def test_a_holder_that_is_paused_past_its_ttl_has_lost_its_lease_and_its_fence_is_stale(
    leaping, virtual_clock
):
    async with tenure.open_store(leaping, ttl=3) as one, tenure.open_store(leaping, ttl=3) as other:
        with pytest.raises(LeaseLost, match="expired"):
            async with tenure.Lock(one, "report") as stale:
                leaping.pause_session((await one._handle.session(3.0)).id)
                await anyio.sleep_forever()
        assert 2 < virtual_clock.now() < 3  # at the deadline: nothing is waited for beyond it
        async with tenure.Lock(other, "report").hold(timeout=3) as lease:
            leaping.resume()  # what was sent meanwhile takes effect now: the renewal, the release
            await anyio.sleep(6)
            lease.check()
            (holder,) = (await tenure.Lock(one, "report").holders().page()).records
            assert holder.token == lease.token
        assert lease.token > stale.token
        with pytest.raises(LeaseLost):
            stale.check()


async def test_a_task_completed_after_a_pause_past_the_ttl_is_not_completed(leaping, virtual_clock):
    async with tenure.open_store(leaping, ttl=3) as one, tenure.open_store(leaping, ttl=3) as other:
        queue = tenure.WorkQueue(other, "jobs")
        task_id = await queue.put("x")
        with pytest.raises(LeaseLost):
            async with tenure.WorkQueue(one, "jobs").take() as task:
                leaping.pause_session(one.process)
                task.set_result("stale")
        async with queue.take(timeout=6) as task:
            assert task.deliveries == 2
            leaping.resume_session(one.process)
            await one.ping()
            task.set_result("fresh")
        assert await queue.result(task_id) == "fresh"
        assert await queue.verify()


@pytest.mark.parametrize("seed", range(5 if depth.full else 1))
async def test_a_clock_that_jumps_back_makes_no_two_holders(leaping, virtual_clock, seed):
    chance = random.Random(seed)
    history = History()

    async def user(store):
        while True:
            with suppress(LeaseLost):
                async with tenure.Lock(store, "report") as lease:
                    with history.held("report", token=lease.token):
                        await anyio.sleep(chance.uniform(0, 2))

    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(tenure.open_store(leaping, ttl=3)) for _ in range(3)]
        group = await stack.enter_async_context(anyio.create_task_group())
        for store in stores * 2:
            group.start_soon(user, store)
        for _ in range(30):
            await anyio.sleep(chance.uniform(0, 5))
            leaping.jump(-chance.uniform(0, 10))
            paused = chance.choice(stores).process
            leaping.pause_session(paused)
            await anyio.sleep(chance.uniform(0, 5))
            leaping.resume_session(paused)
        group.cancel_scope.cancel()
    assert mutual_exclusion(history).held > 30


async def test_after_a_clock_has_jumped_forwards_the_fence_is_what_holds(leaping, virtual_clock):
    async with tenure.open_store(leaping, ttl=3) as one, tenure.open_store(leaping, ttl=3) as other:
        with pytest.raises(LeaseLost, match="gone"):
            async with tenure.Lock(one, "report") as stale:
                leaping.jump(60)
                async with tenure.Lock(other, "report").hold(timeout=0) as lease:
                    assert lease.token > stale.token
                    await anyio.sleep_forever()
        assert virtual_clock.now() <= 1.1  # it is told by its next heartbeat


@pytest.mark.parametrize("seed", range(5))
async def test_batches_that_overtake_one_another_lose_nothing(tmp_path, virtual_clock, seed):
    inside = (
        MemoryEngine() if seed % 2 else SqliteEngine(tmp_path / "q.db", clock=virtual_clock.now, inline=True)
    )
    faulty = FaultyEngine(
        inside, seed=seed, delay=0.05, rates={Fault.REORDER: 0.5, Fault.LOST_REPLY: 0.1, Fault.DUPLICATE: 0.1}
    )
    history = History()

    async def producer(store, name):
        queue = tenure.WorkQueue(store, "jobs", max_size=5)
        for number in range(10):
            with history.putting("jobs", f"{name} {number}"):
                await queue.put(f"{name} {number}")

    async def worker(store):
        while True:
            async with tenure.WorkQueue(store, "jobs", max_size=5).take() as task:
                history.taken("jobs", task.payload)
                await anyio.sleep(0.01)
            history.completed("jobs", task.payload)

    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(tenure.open_store(faulty)) for _ in range(3)]
        async with anyio.create_task_group() as workers:
            async with anyio.create_task_group() as producers:
                for store in stores:
                    workers.start_soon(worker, store)
                    producers.start_soon(producer, store, store.process)
            await tenure.WorkQueue(stores[0], "jobs", max_size=5).join()
            await anyio.sleep(5)  # the last completion is noted
            workers.cancel_scope.cancel()
        audit = await tenure.WorkQueue(stores[0], "jobs", max_size=5).verify()
        assert audit, audit.problems
        conservation(audit.statistics, history)
    assert nothing_lost(history).completed == 30
    assert faulty.suffered[Fault.REORDER] > 10
