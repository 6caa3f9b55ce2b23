import anyio
import pytest

from tenure.engine import Acquire, Granted, Hint, OpenSession, Ping, Queued, Release, Reply
from tenure.engines.memory import MemoryEngine
from tenure.errors import StoreUnavailable
from tenure.testing import Fault, FaultyEngine


class RecordingEngine:
    """An engine that only notes what arrives."""

    url = "recording:"
    immediate = True

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


async def test_a_duplicate_gives_the_second_answers(faulty, recording):
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
    assert not faulty.immediate
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


def test_it_never_applies_at_once(faulty):
    with pytest.raises(RuntimeError, match="not immediate"):
        faulty.apply(Ping())


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
