from __future__ import annotations

from collections import deque

import anyio
import pytest
from wires import Wire, at_home

from tenure.engine import CAP, Count, Engine, NotSent, Ping, Release, Reply
from tenure.errors import EngineError, StoreClosed, StoreUnavailable
from tenure.store import _dispatch
from tenure.store._dispatch import WINDOW, Dispatcher


class Recorder(Wire):
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
    """One that answers before `submit` returns."""

    url = "immediate:"

    def __init__(self, *answers):
        self.answers = list(answers)

    def submit(self, operation, on_answer):
        on_answer(self.answers.pop(0))


def op(key):
    return Release(key, "")


class Source:
    """Gathers things, and sends how many it has when it is called."""

    def __init__(self, dispatcher):
        self._dispatcher = dispatcher
        self._gathered = 0

    def gather(self, number):
        for _ in range(number):
            self._gathered += 1
            self._dispatcher.call_soon(self._flush)

    def _flush(self):
        self._dispatcher.send(op(f"gathered {self._gathered}"), lambda _: None)


@pytest.fixture
def engine():
    return Recorder()


@pytest.fixture
async def dispatcher(engine, virtual_clock):
    """One over a link on which batches travel."""
    link = engine.link()
    dispatcher = Dispatcher(link, at_home())
    async with anyio.create_task_group() as group:
        await group.start(link.serve, "p", lambda _: None)
        group.start_soon(dispatcher.run)
        await virtual_clock.settle()
        yield dispatcher
        group.cancel_scope.cancel()


async def test_a_call_returns_the_answer(dispatcher, virtual_clock):
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


async def test_what_is_urgent_waits_for_a_window_only(dispatcher, engine):
    for _ in range(3 * WINDOW):
        dispatcher.send(op("a"), lambda _: None)
    dispatcher.send(op("b"), lambda _: None, urgent=True)
    await dispatcher.settled()
    assert [key for batch in engine.batches for key in batch].index("b") == WINDOW


async def test_it_is_sent_again_until_it_gets_through(dispatcher, engine, virtual_clock):
    engine.failures = [StoreUnavailable("away")] * 8
    answers = []
    call = dispatcher.send(op("a"), answers.append)
    await virtual_clock.advance(1.01)
    assert dispatcher._availability.trouble is not None
    await dispatcher.settled()
    assert answers == ["a!"]
    assert call.tries == 9
    assert dispatcher._availability.trouble is None
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
    # before the rest of what has not left the dispatcher
    assert engine.batches == [["a", "b", "c"], ["d", "b", "c"], ["b"]]
    assert answers == ["a!", "d!", "c!", "b!"]


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
    for _ in range(WINDOW):
        dispatcher.send(op("a"), lambda _: None)
    with anyio.move_on_after(0.5):
        await dispatcher.call(op("b"))
    await dispatcher.settled()
    assert engine.batches == [["a"] * CAP] * 2


async def test_cancelled_under_way_it_is_not_sent_again(dispatcher, engine, virtual_clock):
    engine.failures = [StoreUnavailable("away")]
    with anyio.move_on_after(0.5):
        await dispatcher.call(op("a"))
    await dispatcher.call(op("b"))
    assert engine.batches == [["a"], ["b"]]


async def test_a_function_is_called_once_at_the_end_of_the_turn(dispatcher, engine, virtual_clock):
    source = Source(dispatcher)
    source.gather(5)
    await virtual_clock.settle()
    source.gather(3)
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


async def test_closed_it_wakes_those_that_still_wait(engine, virtual_clock):
    dispatcher = Dispatcher(engine, at_home())
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


async def test_an_engine_that_raises_what_it_may_not_is_a_fault(virtual_clock):
    class Faulty(Engine):
        url = "faulty:"

        def submit(self, operation, on_answer):
            raise ZeroDivisionError

    dispatcher = Dispatcher(Faulty(), at_home())
    answers = []
    dispatcher.send(op("a"), answers.append)
    dispatcher.send(op("b"), answers.append)
    with pytest.raises(ZeroDivisionError):
        await dispatcher.run()
    assert answers == []
    dispatcher.close("it has ended")
    assert [type(answer) for answer in answers] == [StoreClosed] * 2


async def test_an_immediate_engine_is_called_at_once():
    dispatcher = Dispatcher(
        Immediate(Reply.MORE, Reply.MORE, "sent", EngineError("bad"), "called", EngineError("worse")),
        at_home(),
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
    dispatcher = Dispatcher(Immediate(*[Reply.MORE] * 100, "called"), at_home())
    answers = []
    dispatcher.send(Ping(), answers.append)
    assert isinstance(answers[0], EngineError)
    with pytest.raises(EngineError, match="Count 50 times with MORE"):
        await dispatcher.call(Count("q"))
    assert await dispatcher.call(Count("q")) == "called"


# ------------------------------------------------------------------------------- an engine that sends each at once


class Sending(Engine):
    """`answer` answers what was submitted first, `fail` all of it."""

    url = "sending:"

    def __init__(self):
        self.answers = {}
        self.sent = []
        self.under_way = deque()

    def submit(self, operation, on_answer):
        self.sent.append(operation.key)
        self.under_way.append((operation.key, on_answer))

    @property
    def keys(self):
        return [key for key, _ in self.under_way]

    def answer(self):
        key, on_answer = self.under_way.popleft()
        answers = self.answers.get(key)
        on_answer(answers.pop(0) if answers else f"{key}!")

    def fail(self):
        under_way, self.under_way = self.under_way, deque()
        for _, on_answer in under_way:
            on_answer(StoreUnavailable("away"))


@pytest.fixture
def sending():
    return Sending()


@pytest.fixture
async def direct(sending, virtual_clock):
    """A dispatcher over it."""
    dispatcher = Dispatcher(sending, at_home())
    async with anyio.create_task_group() as group:
        group.start_soon(dispatcher.run)
        await virtual_clock.settle()
        yield dispatcher
        group.cancel_scope.cancel()


async def test_an_operation_is_submitted_at_once_and_waits_for_nothing(direct, sending):
    answers = []
    for key in "abc":
        call = direct.send(op(key), answers.append, urgent=key == "c")
        assert (sending.keys[-1], call.tries) == (key, 1)
    assert direct.pending == 3
    for left in (2, 1, 0):
        sending.answer()
        assert direct.pending == left
    assert answers == ["a!", "b!", "c!"]


async def later(function):
    await anyio.sleep(1)
    function()


async def test_a_call_is_submitted_too(direct, sending, virtual_clock):
    sending.answers["b"] = [EngineError("b is bad")]
    async with anyio.create_task_group() as group:
        group.start_soon(direct.call, op("a"))
        await virtual_clock.settle()
        group.start_soon(later, sending.answer)
        group.start_soon(later, sending.answer)
        with pytest.raises(EngineError, match="b is bad"):
            await direct.call(op("b"))


async def test_all_without_an_answer_is_sent_again_in_order(direct, sending, virtual_clock):
    answers = []
    calls = [direct.send(op(key), answers.append) for key in "abcd"]
    sending.answer()
    calls[2].wanted = False
    sending.fail()
    assert direct._availability.trouble is not None
    # not before what has to go before it
    direct.send(op("e"), answers.append)
    direct.send(op("f"), answers.append, urgent=True)
    assert direct.pending == 4
    assert sending.keys == []
    await virtual_clock.advance(1)
    assert sending.keys == ["b", "d", "f", "e"]
    while sending.keys:
        sending.answer()
    assert answers == [f"{key}!" for key in "abdfe"]
    assert [call.tries for call in calls] == [1, 2, 1, 2]
    assert direct._availability.trouble is None
    direct.send(op("g"), answers.append)
    assert sending.keys == ["g"]


async def test_what_was_not_sent_is_no_try(direct, sending, virtual_clock):
    sending.answers["a"] = [NotSent("away")]
    call = direct.send(op("a"), lambda _: None)
    sending.answer()
    assert call.tries == 0
    await virtual_clock.advance(1)
    sending.answer()
    assert (call.tries, sending.sent) == (1, ["a", "a"])


async def test_order_is_kept_when_more_than_a_window_is_sent_again_twice(direct, sending, virtual_clock):
    keys = [str(n) for n in range(2 * WINDOW)]
    for key in keys:
        direct.send(op(key), lambda _: None)
    for _ in range(2):
        assert sending.keys == keys[:WINDOW]
        sending.fail()
        await virtual_clock.advance(1)
    sending.sent = keys[:WINDOW]
    while sending.keys:
        sending.answer()
    assert sending.sent == keys


async def test_more_means_once_more_at_once(direct, sending):
    sending.answers = {"a": [Reply.MORE, Reply.MORE], "b": [Reply.MORE]}
    answers = []
    for key in "abc":
        direct.send(op(key), answers.append)
    sending.answer()
    assert sending.keys == ["b", "c", "a"]
    while sending.keys:
        sending.answer()
    assert answers == ["c!", "b!", "a!"]


async def test_what_is_answered_more_for_ever_is_given_up(direct, sending, monkeypatch):
    monkeypatch.setattr(_dispatch, "MOST_REPEATS", 50)
    sending.answers["a"] = [Reply.MORE] * 50
    answers = []
    direct.send(op("a"), answers.append)
    while sending.keys:
        sending.answer()
    assert isinstance(answers[0], EngineError)
    assert sending.sent == ["a"] * 50
    direct.send(op("a"), answers.append)
    sending.answer()
    assert answers[1] == "a!"


@pytest.mark.parametrize("outcome", [Reply.MORE, StoreUnavailable("away")])
async def test_what_nobody_waits_for_any_more_is_not_sent_again(outcome, direct, sending):
    sending.answers["a"] = [outcome]
    with anyio.move_on_after(0.5):
        await direct.call(op("a"))
    sending.answer()
    await direct.settled()
    assert sending.sent == ["a"]


async def test_settled_means_that_all_is_answered(direct, sending, virtual_clock):
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
            sending.answer()


async def test_what_a_function_sends_is_submitted_at_the_end_of_the_turn(direct, sending, virtual_clock):
    Source(direct).gather(3)
    assert sending.keys == []
    await virtual_clock.settle()
    assert sending.keys == ["gathered 3"]
    sending.answer()


async def test_an_answer_after_the_end_is_dropped(direct, sending):
    answers = []
    direct.send(op("a"), answers.append)
    direct.close("closed")
    sending.answer()
    assert [type(answer) for answer in answers] == [StoreClosed]
