from __future__ import annotations

from collections import deque

import anyio
import pytest

from tenure.engine import CAP, Count, Engine, Ping, Release, Reply
from tenure.errors import EngineError, StoreClosed, StoreUnavailable
from tenure.store import _dispatch
from tenure.store._dispatch import Dispatcher


class Recorder(Engine):
    """An engine that answers an operation with its key, takes a second for each batch, and keeps the batches."""

    url = "recorder:"

    def __init__(self):
        self.batches = []
        self.failures = []
        self.answers = {}

    async def execute(self, operations):
        self.batches.append([operation.key for operation in operations])
        failure = self.failures.pop(0) if self.failures else None
        await anyio.sleep(1)
        if failure is not None:
            raise failure
        return [self._answer(operation.key) for operation in operations]

    def _answer(self, key):
        answers = self.answers.get(key)
        return answers.pop(0) if answers else f"{key}!"


class Immediate(Engine):
    immediate = True
    url = "immediate:"

    def __init__(self, *answers):
        self.answers = list(answers)

    def apply(self, operation):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def op(key):
    return Release(key, "")


@pytest.fixture
def engine():
    return Recorder()


@pytest.fixture
async def dispatcher(engine, virtual_clock):
    dispatcher = Dispatcher(engine)
    async with anyio.create_task_group() as group:
        group.start_soon(dispatcher.run)
        await virtual_clock.settle()
        yield dispatcher
        group.cancel_scope.cancel()


async def test_a_call_gives_the_answer(dispatcher, virtual_clock):
    assert await dispatcher.call(op("a")) == "a!"
    assert virtual_clock.now() == 1
    assert dispatcher.pending == 0


async def test_what_comes_in_one_turn_travels_together_and_the_rest_in_the_next_batch(
    dispatcher, engine, virtual_clock
):
    async with anyio.create_task_group() as group:
        for key in "abc":
            dispatcher.send(op(key), lambda _: None)
        await virtual_clock.settle()
        for key in "de":
            group.start_soon(dispatcher.call, op(key))
        dispatcher.send(op("f"), lambda _: None)
        assert dispatcher.pending == 4
    assert virtual_clock.now() == 2
    first, second = engine.batches
    assert first == ["a", "b", "c"]
    assert sorted(second) == ["d", "e", "f"]


async def test_a_batch_has_its_bounds(dispatcher, engine, virtual_clock):
    for number in range(2 * CAP + 1):
        dispatcher.send(op(str(number)), lambda _: None)
    await dispatcher.settled()
    assert [len(batch) for batch in engine.batches] == [CAP, CAP, 1]
    assert [key for batch in engine.batches for key in batch] == [
        str(number) for number in range(2 * CAP + 1)
    ]


async def test_what_is_urgent_goes_first(dispatcher, engine):
    dispatcher.send(op("a"), lambda _: None)
    dispatcher.send(op("b"), lambda _: None, urgent=True)
    await dispatcher.settled()
    assert engine.batches == [["b", "a"]]


async def test_it_is_sent_again_until_it_gets_through(dispatcher, engine, virtual_clock):
    engine.failures = [StoreUnavailable("away")] * 8
    answers = []
    call = dispatcher.send(op("a"), answers.append)
    await virtual_clock.advance(1.01)
    assert str(dispatcher.down) == "away"
    await dispatcher.settled()
    assert answers == ["a!"]
    assert call.tries == 9
    assert dispatcher.down is None
    # the pauses double from 50 ms to a second, each shortened by half at the most
    longest = 0.05 + 0.1 + 0.2 + 0.4 + 0.8 + 1 + 1 + 1
    assert 9 + longest / 2 <= virtual_clock.now() <= 9 + longest


async def test_after_a_success_the_pauses_are_short_again(dispatcher, engine, virtual_clock):
    engine.failures = [StoreUnavailable("away")] * 6
    await dispatcher.call(op("a"))
    began = virtual_clock.now()
    engine.failures = [StoreUnavailable("away")]
    await dispatcher.call(op("b"))
    assert 2.025 <= virtual_clock.now() - began <= 2.05


async def test_order_is_kept_when_it_is_sent_again(dispatcher, engine, virtual_clock):
    engine.failures = [StoreUnavailable("away")]
    dispatcher.send(op("a"), lambda _: None)
    dispatcher.send(op("b"), lambda _: None)
    await virtual_clock.settle()
    dispatcher.send(op("c"), lambda _: None)
    await dispatcher.settled()
    assert engine.batches == [["a", "b"], ["a", "b", "c"]]


async def test_an_operation_that_fails_alone_fails_alone(dispatcher, engine):
    engine.answers["b"] = [EngineError("b is bad")]
    answers = []
    for key in "abc":
        dispatcher.send(op(key), answers.append)
    with pytest.raises(EngineError, match="d is bad"):
        engine.answers["d"] = [EngineError("d is bad")]
        await dispatcher.call(op("d"))
    assert [str(answer) for answer in answers] == ["a!", "b is bad", "c!"]


async def test_more_means_once_more_before_the_rest(dispatcher, engine, virtual_clock):
    engine.answers = {"b": [Reply.MORE, Reply.MORE], "c": [Reply.MORE]}
    answers = []
    for key in "abc":
        dispatcher.send(op(key), answers.append)
    await virtual_clock.settle()
    dispatcher.send(op("d"), answers.append)
    await dispatcher.settled()
    assert engine.batches == [["a", "b", "c"], ["b", "c", "d"], ["b"]]
    assert answers == ["a!", "c!", "d!", "b!"]


async def test_an_engine_that_answers_more_for_ever_is_given_up(
    dispatcher, engine, virtual_clock, monkeypatch
):
    monkeypatch.setattr(_dispatch, "MOST_REPEATS", 50)
    engine.answers["b"] = [Reply.MORE] * 50
    answers = []
    for key in "abc":
        dispatcher.send(op(key), answers.append)
    await dispatcher.settled()
    assert [str(answer) for answer in answers[:2]] == ["a!", "c!"]
    assert isinstance(answers[2], EngineError)
    assert "recorder:: the engine has answered Release 50 times with MORE" in str(answers[2])
    engine.answers["b"] = [Reply.MORE] * 49
    assert await dispatcher.call(op("b")) == "b!"


async def test_cancelled_before_it_left_it_does_not_leave(dispatcher, engine, virtual_clock):
    dispatcher.send(op("a"), lambda _: None)
    await virtual_clock.settle()
    with anyio.move_on_after(0.5):
        await dispatcher.call(op("b"))
    await dispatcher.settled()
    assert engine.batches == [["a"]]


async def test_cancelled_under_way_it_is_not_sent_again(dispatcher, engine, virtual_clock):
    engine.failures = [StoreUnavailable("away")]
    with anyio.move_on_after(0.5):
        await dispatcher.call(op("a"))
    await dispatcher.call(op("b"))
    assert engine.batches == [["a"], ["b"]]


async def test_a_function_is_called_once_at_the_end_of_the_turn(dispatcher, engine, virtual_clock):
    class Source:
        gathered = 0

        def flush(self):
            dispatcher.send(op(f"gathered {self.gathered}"), lambda _: None)

    source = Source()
    for _ in range(5):
        source.gathered += 1
        dispatcher.call_soon(source.flush)
    await virtual_clock.settle()
    for _ in range(3):
        source.gathered += 1
        dispatcher.call_soon(source.flush)
    await dispatcher.settled()
    assert engine.batches == [["gathered 5"], ["gathered 8"]]


async def test_a_function_may_send_nothing(dispatcher, engine):
    dispatcher.call_soon(lambda: None)
    await dispatcher.settled()
    assert engine.batches == []


async def test_settled_means_answered(dispatcher, engine, virtual_clock):
    await dispatcher.settled()
    assert virtual_clock.now() == 0
    dispatcher.send(op("a"), lambda _: dispatcher.send(op("b"), lambda _: None))
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(dispatcher.settled)
    assert virtual_clock.now() == 2
    assert engine.batches == [["a"], ["b"]]


async def test_closed_it_tells_those_who_still_wait(engine, virtual_clock):
    dispatcher = Dispatcher(engine)
    caught = []

    async def call():
        with pytest.raises(StoreClosed):
            await dispatcher.call(op("a"))
        caught.append(virtual_clock.now())

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(call)
        await virtual_clock.settle()
        dispatcher.close("the store was closed")
    assert caught == [0, 0, 0]


async def test_an_engine_that_answers_too_little_is_a_fault(engine, virtual_clock):
    dispatcher = Dispatcher(engine)
    engine._answer = None

    async def execute(_):
        return []

    engine.execute = execute
    dispatcher.send(op("a"), lambda _: None)
    with pytest.raises(ValueError):
        await dispatcher.run()


async def test_an_immediate_engine_is_called_at_once():
    dispatcher = Dispatcher(
        Immediate(Reply.MORE, Reply.MORE, "sent", EngineError("bad"), "called", EngineError("worse"))
    )
    answers = []
    dispatcher.send(Ping(), answers.append)
    dispatcher.send(Ping(), answers.append)
    assert [str(answer) for answer in answers] == ["sent", "bad"]
    assert await dispatcher.call(Count("q")) == "called"
    with pytest.raises(EngineError, match="worse"):
        await dispatcher.call(Count("q"))
    assert dispatcher.pending == 0


async def test_an_immediate_engine_that_answers_more_for_ever_is_given_up(monkeypatch):
    monkeypatch.setattr(_dispatch, "MOST_REPEATS", 50)
    dispatcher = Dispatcher(Immediate(*[Reply.MORE] * 100, "called"))
    answers = []
    dispatcher.send(Ping(), answers.append)
    assert isinstance(answers[0], EngineError)
    with pytest.raises(EngineError, match="Count 50 times with MORE"):
        await dispatcher.call(Count("q"))
    assert await dispatcher.call(Count("q")) == "called"


# ---------------------------------------------------------------------------------- an engine that can be posted to


class Posting(Recorder):
    """One that takes each operation at once; `answer` answers the one that was posted first, `fail` all of them."""

    def __init__(self):
        super().__init__()
        self.up = True
        self.posted = deque()

    def post(self, operation, on_answer):
        if self.up:
            self.posted.append((operation.key, on_answer))
        return self.up

    @property
    def keys(self):
        return [key for key, _ in self.posted]

    def answer(self):
        key, on_answer = self.posted.popleft()
        on_answer(self._answer(key))

    def fail(self):
        posted, self.posted = self.posted, deque()
        for _, on_answer in posted:
            on_answer(StoreUnavailable("away"))


@pytest.fixture
def posting():
    return Posting()


@pytest.fixture
async def direct(posting, virtual_clock):
    """A wire over it."""
    dispatcher = Dispatcher(posting)
    async with anyio.create_task_group() as group:
        group.start_soon(dispatcher.run)
        await virtual_clock.settle()
        yield dispatcher
        group.cancel_scope.cancel()


async def test_what_can_be_posted_leaves_at_once_and_waits_for_nobody(direct, posting, virtual_clock):
    answers = []
    for key in "abc":
        call = direct.send(op(key), answers.append, urgent=key == "c")
        assert (posting.keys[-1], call.tries) == (key, 1)
    assert direct.pending == 3
    for left in (2, 1, 0):
        posting.answer()
        assert direct.pending == left
    assert answers == ["a!", "b!", "c!"]
    await virtual_clock.settle()
    assert posting.batches == []


async def later(function):
    await anyio.sleep(1)
    function()


async def test_a_call_is_posted_too(direct, posting, virtual_clock):
    posting.answers["b"] = [EngineError("b is bad")]
    async with anyio.create_task_group() as group:
        group.start_soon(direct.call, op("a"))
        await virtual_clock.settle()
        group.start_soon(later, posting.answer)
        group.start_soon(later, posting.answer)
        with pytest.raises(EngineError, match="b is bad"):
            await direct.call(op("b"))


async def test_all_that_was_posted_without_an_answer_is_sent_again_in_order(direct, posting, virtual_clock):
    answers = []
    calls = [direct.send(op(key), answers.append) for key in "abcd"]
    posting.answer()
    posting.up = False
    calls[2].wanted = False
    posting.fail()
    assert str(direct.down) == "away"
    direct.send(op("e"), answers.append)
    assert direct.pending == 3
    await virtual_clock.settle()
    posting.up = True
    # not before what has to go before it
    direct.send(op("f"), answers.append)
    assert posting.keys == []
    await direct.settled()
    assert posting.batches == [["b", "d", "e"], ["f"]]
    assert answers == [f"{key}!" for key in "abdef"]
    assert [call.tries for call in calls] == [1, 2, 1, 2]
    assert direct.down is None
    direct.send(op("g"), answers.append)
    assert posting.keys == ["g"]


async def test_what_cannot_be_posted_goes_in_batches_and_what_is_urgent_first(direct, posting, virtual_clock):
    posting.up = False
    for key in "abc":
        direct.send(op(key), lambda _: None, urgent=key == "c")
    await direct.settled()
    assert posting.batches == [["c", "a", "b"]]


async def test_more_is_asked_for_by_the_wire(direct, posting, virtual_clock):
    posting.answers = {"a": [Reply.MORE, Reply.MORE], "b": [Reply.MORE]}
    answers = []
    for key in "abc":
        direct.send(op(key), answers.append)
    for _ in "abc":
        posting.answer()
    await direct.settled()
    assert posting.batches == [["a", "b"], ["a"]]
    assert answers == ["c!", "b!", "a!"]


async def test_what_was_posted_and_answered_more_for_ever_is_given_up(
    direct, posting, virtual_clock, monkeypatch
):
    monkeypatch.setattr(_dispatch, "MOST_REPEATS", 50)
    posting.answers["a"] = [Reply.MORE] * 50
    answers = []
    direct.send(op("a"), answers.append)
    posting.answer()
    await direct.settled()
    assert isinstance(answers[0], EngineError)
    assert posting.batches == [["a"]] * 49
    direct.send(op("a"), answers.append)
    posting.answer()
    assert answers[1] == "a!"


async def test_cancelled_after_it_was_posted_it_is_not_sent_again(direct, posting, virtual_clock):
    with anyio.move_on_after(0.5):
        await direct.call(op("a"))
    posting.fail()
    await direct.settled()
    assert posting.batches == []


async def test_settled_means_that_what_was_posted_is_answered(direct, posting, virtual_clock):
    direct.send(op("a"), lambda _: direct.send(op("b"), lambda _: None))
    settled = []

    async def settle():
        await direct.settled()
        settled.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(settle)
        for _ in range(2):
            await virtual_clock.settle()
            assert settled == []
            posting.answer()


async def test_what_a_function_sends_is_posted_at_the_end_of_the_turn(direct, posting, virtual_clock):
    class Source:
        gathered = 0

        def flush(self):
            direct.send(op(f"gathered {self.gathered}"), lambda _: None)

    source = Source()
    for _ in range(3):
        source.gathered += 1
        direct.call_soon(source.flush)
    assert posting.keys == []
    await virtual_clock.settle()
    assert posting.keys == ["gathered 3"]
    posting.answer()
