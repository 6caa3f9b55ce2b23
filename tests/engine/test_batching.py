from __future__ import annotations

import anyio
import pytest

from tenure.engine import CAP, Batches, Engine, NotSent, Release, Reply
from tenure.errors import EngineError, StoreUnavailable


class Batching(Engine):
    """Takes a second for each batch, keeps the batches, and answers with the keys."""

    url = "batching:"

    def __init__(self):
        self.batches = Batches(self.url)
        self.applied = []
        self.outcomes = []

    def submit(self, operation, on_answer):
        self.batches.submit(operation, on_answer)

    async def apply(self, operations):
        self.applied.append([operation.key for operation in operations])
        await anyio.sleep(1)
        outcome = self.outcomes.pop(0) if self.outcomes else self.applied[-1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def serve(self, process, deliver, *, task_status):
        await self.batches.run(self.apply, task_status=task_status)


def op(key):
    return Release(key, "")


@pytest.fixture
def engine():
    return Batching()


@pytest.fixture
async def served(engine, virtual_clock):
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "p", lambda _: None)
        yield engine
        group.cancel_scope.cancel()


def submit(engine, keys):
    answers = []
    for key in keys:
        engine.submit(op(key), answers.append)
    return answers


async def test_what_comes_in_a_turn_travels_together_and_what_comes_meanwhile_forms_the_next(
    served, virtual_clock
):
    answers = submit(served, "abc")
    assert answers == []
    await virtual_clock.settle()
    submit(served, "d")
    await virtual_clock.settle()
    submit(served, "e")
    await virtual_clock.advance(2)
    assert served.applied == [["a", "b", "c"], ["d", "e"]]
    assert answers == ["a", "b", "c"]
    assert not served.batches.busy


async def test_a_batch_has_at_most_cap_operations(served, virtual_clock):
    submit(served, map(str, range(2 * CAP + 1)))
    await virtual_clock.advance(3)
    assert [len(batch) for batch in served.applied] == [CAP, CAP, 1]


async def test_what_is_submitted_by_an_answer_goes_with_the_next_batch(served, virtual_clock):
    served.submit(op("a"), lambda _: submit(served, "b"))
    await virtual_clock.advance(2)
    assert served.applied == [["a"], ["b"]]


async def test_when_a_batch_is_lost_so_is_what_waits_behind_it(served, virtual_clock):
    served.outcomes = [StoreUnavailable("away")]
    answers = submit(served, "a")
    await virtual_clock.settle()
    behind = submit(served, "b")
    await virtual_clock.advance(1)
    assert [(type(answer), str(answer)) for answer in (*answers, *behind)] == [
        (StoreUnavailable, "away"),
        (NotSent, "away"),
    ]
    assert served.applied == [["a"]]
    assert await served.execute([op("a"), op("b")]) == ["a", "b"]


async def test_an_error_of_a_batch_is_the_answer_to_each(served, virtual_clock):
    served.outcomes = [EngineError("no")]
    answers = submit(served, "ab")
    await virtual_clock.settle()
    behind = submit(served, "c")
    await virtual_clock.advance(2)
    assert [str(answer) for answer in answers] == ["no", "no"]
    assert behind == ["c"]


@pytest.mark.parametrize(
    ("outcome", "error"), [(["one"], ValueError), (ZeroDivisionError(), ZeroDivisionError)]
)
async def test_a_fault_is_raised_and_all_are_answered(engine, outcome, error, virtual_clock):
    engine.outcomes = [outcome]
    with pytest.RaisesGroup(error):
        async with anyio.create_task_group() as group:
            await group.start(engine.serve, "p", lambda _: None)
            answers = submit(engine, "ab")
            await virtual_clock.settle()
            behind = submit(engine, "c")
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    assert [type(answer) for answer in behind] == [NotSent]


async def test_what_nobody_carries_is_answered_later(engine, virtual_clock):
    answers = submit(engine, "a")
    assert answers == []
    await virtual_clock.settle()
    assert [str(answer) for answer in answers] == ["batching:: the engine does not serve"]


async def test_once_it_is_no_longer_served_all_are_answered(engine, virtual_clock):
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "p", lambda _: None)
        answers = submit(engine, "a")
        await virtual_clock.settle()
        behind = submit(engine, "b")
        group.cancel_scope.cancel()
    assert [type(answer) for answer in (*answers, *behind)] == [StoreUnavailable, NotSent]
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "p", lambda _: None)
        assert await engine.execute([op("c")]) == ["c"]
        group.cancel_scope.cancel()


async def test_execute_returns_the_answers_as_they_are_and_raises_that_it_was_away(served):
    served.outcomes = [[Reply.MORE, EngineError("no")], StoreUnavailable("away")]
    more, error = await served.execute([op("a"), op("b")])
    assert more is Reply.MORE
    assert isinstance(error, EngineError)
    with pytest.raises(StoreUnavailable, match="away"):
        await served.execute([op("a"), op("b")])
    assert await served.execute([]) == []
