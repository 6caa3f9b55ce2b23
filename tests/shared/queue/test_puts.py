"""Producers: putting, and waiting in line while the queue is full."""

from __future__ import annotations

import datetime as dt

import anyio
import pytest

import tenure
from tenure import DuplicateTask, EngineError, Item, OutcomeUnknown, QueueFull, WorkQueue
from tenure.engine import Put
from tenure.engines.memory import MemoryEngine
from tenure.errors import PayloadTooLarge
from tenure.testing import Fault, FaultyEngine


async def do_one(queue):
    # each hint that gets lost costs up to a ttl, and several may in a row
    async with queue.take(timeout=600) as task:
        return task.payload


async def drain(queue):
    payloads = []
    while (await queue.statistics()).unfinished:
        payloads.append(await do_one(queue))
    return payloads


async def nobody_in_line(queue):
    statistics = await queue.statistics()
    assert (statistics.producers, statistics.reserved) == (0, 0)
    assert await queue.verify()


async def test_try_put_is_refused_when_full(store):
    queue = WorkQueue(store, "jobs", max_size=1)
    await queue.try_put(1)
    with pytest.raises(QueueFull) as refused:
        await queue.try_put(2)
    assert refused.value.max_size == 1
    await do_one(queue)
    await queue.try_put(3)
    await nobody_in_line(queue)


async def test_the_outcome_is_unknown_when_the_session_ended_meanwhile(faulty, faulty_store, virtual_clock):
    queue = WorkQueue(faulty_store, "jobs")
    await queue.put(0)
    faulty.plan(Fault.LOST_REPLY, on=Put)
    faulty.plan(Fault.LOST_REQUEST, times=30)
    with pytest.raises(OutcomeUnknown, match="putting may or may not"):
        await queue.put(1)
    await queue.put(2)
    assert await drain(queue) == [0, 1, 2]


async def test_many_callers_share_an_operation(recording, virtual_clock):
    async with tenure.open_store(recording, ttl=300) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put(0)
        recording.take()
        async with anyio.create_task_group() as group:
            for n in range(100):
                group.start_soon(queue.put, n)
        assert len(recording.take(Put)) == 1


class Grumpy(FaultyEngine):
    """Refuses to put."""

    grumpy = False

    async def execute(self, operations):
        answers = list(await super().execute(operations))
        if self.grumpy:
            for n, operation in enumerate(operations):
                if isinstance(operation, Put):
                    answers[n] = EngineError("the disk is full")
        return answers


async def test_an_error_in_line_leaves_no_place_behind(virtual_clock):
    engine = Grumpy(MemoryEngine())
    async with tenure.open_store(engine, ttl=3) as store:
        queue = WorkQueue(store, "jobs", max_size=1)
        await queue.put(1)

        async def produce():
            with pytest.raises(EngineError, match="the disk is full"):
                await queue.put(2)

        async with anyio.create_task_group() as group:
            group.start_soon(produce)
            await virtual_clock.settle()
            engine.grumpy = True
        engine.grumpy = False
        await nobody_in_line(queue)


# batches


async def test_put_many_returns_an_outcome_for_each(store):
    queue = WorkQueue(store, "jobs")
    first = await queue.put(0, key="a")
    outcomes = await queue.put_many(
        [1, Item(2, key="a"), Item(3, key="b"), Item(4, key="b"), Item(5, priority=1)]
    )
    assert [type(outcome) for outcome in outcomes] == [int, DuplicateTask, int, DuplicateTask, int]
    assert outcomes[1].task_id == first
    assert (outcomes[1].key, outcomes[1].queue) == ("a", queue.key)
    assert outcomes[3].task_id == outcomes[2]
    assert await drain(queue) == [5, 0, 1, 3]


async def test_a_put_that_is_cancelled_in_line_leaves_no_place_behind(store, virtual_clock):
    queue = WorkQueue(store, "jobs", max_size=1)
    await queue.put(1)
    with anyio.move_on_after(1):
        await queue.put(2)
    await store.ping()
    await nobody_in_line(queue)
    assert await drain(queue) == [1]


async def test_put_many_in_few_operations(recording):
    async with tenure.open_store(recording) as store:
        await WorkQueue(store, "jobs").put_many(range(1000))
        assert len(recording.take(Put)) == 4


async def test_descriptions_that_disagree_on_the_size(store):
    wide = WorkQueue(store, "jobs", max_size=100)
    WorkQueue(store, "jobs", max_size=3)  # made last: it counts
    taken = []
    async with anyio.create_task_group() as group:
        group.start_soon(wide.put_many, range(10))
        for _ in range(10):
            taken.append(await do_one(wide))
    assert taken == list(range(10))


async def test_a_cursor_is_stored_with_the_last_portion(store, virtual_clock):
    queue = WorkQueue(store, "jobs", max_size=5)
    await queue.put_many([1], cursor=("input", {"line": 1}))
    assert await queue.cursors() == {"input": {"line": 1}}
    await do_one(queue)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: queue.put_many(range(8), cursor=("input", {"line": 9})))
        await virtual_clock.settle()
        assert await queue.cursors() == {"input": {"line": 1}}
        for _ in range(8):
            await do_one(queue)
    assert await queue.cursors() == {"input": {"line": 9}}
    # without tasks, it needs no room
    await queue.put_many(range(5))
    assert await queue.put_many([], cursor=("other", None)) == []
    assert await queue.cursors() == {"input": {"line": 9}, "other": None}


# what is wrong is refused before anything is put


async def test_max_payload(recording):
    async with tenure.open_store(recording) as store:
        queue = WorkQueue(store, "jobs", max_payload=10)
        await queue.put("x" * 8)
        recording.take()
        with pytest.raises(PayloadTooLarge, match="the payload has 11 bytes, max_payload is 10") as refused:
            await queue.put("x" * 9)
        assert (refused.value.size, refused.value.limit) == (11, 10)
        with pytest.raises(PayloadTooLarge):
            await queue.put_many(["x", "x" * 100])
        assert recording.take(Put) == []


async def test_the_default_bound_is_a_mebibyte(store):
    queue = WorkQueue(store, "jobs")
    await queue.put("x" * (2**20 - 2))
    with pytest.raises(PayloadTooLarge):
        await queue.put("x" * (2**20 - 1))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"priority": 1.5}, TypeError, "priority"),
        ({"priority": 2**40}, ValueError, "priority"),
        ({"delay": -1}, ValueError, "delay"),
        ({"delay": float("nan")}, ValueError, "delay"),
        ({"delay": float("inf")}, ValueError, "delay"),
        ({"key": ""}, ValueError, "key"),
        ({"key": 5}, TypeError, "key must be a str"),
        ({"key": "\ud800"}, ValueError, "surrogates"),
        ({"expires": 0}, ValueError, "expires"),
        ({"expires": float("inf")}, ValueError, "expires"),
        ({"payload": {1, 2}}, TypeError, "JSON"),
        ({"payload": float("nan")}, ValueError, "JSON"),
        ({"payload": "\ud800"}, ValueError, "surrogates"),
    ],
)
async def test_wrong_arguments(store, options, error, match):
    queue = WorkQueue(store, "jobs")
    arguments = {"payload": 1} | options
    with pytest.raises(error, match=match):
        await queue.put(**arguments)
    with pytest.raises(error, match=match):
        await queue.try_put(**arguments)
    with pytest.raises(error, match=match):
        await queue.put_many([0, Item(**arguments)])
    assert (await queue.statistics()).put == 0


@pytest.mark.parametrize("name", ["", 5, "\ud800"])
async def test_a_wrong_name_of_a_cursor(store, name):
    queue = WorkQueue(store, "jobs")
    with pytest.raises((ValueError, TypeError), match=r"^cursor: the name must"):
        await queue.put_many([1], cursor=(name, 1))
    assert (await queue.statistics()).put == 0


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize("cursor", [5, "ab", ["a", 1], (), ("a",), ("a", 1, 2)])
async def test_what_is_no_cursor(store, cursor):
    queue = WorkQueue(store, "jobs")
    with pytest.raises(TypeError, match=r"^cursor must be a tuple of a name and a value, not "):
        await queue.put_many([1], cursor=cursor)
    assert (await queue.statistics()).put == 0


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize(("items", "said"), [(None, "NoneType"), (5, "int")])
async def test_what_are_no_items(store, items, said):
    with pytest.raises(
        TypeError, match=f"^items must be an iterable of payloads, such as a list, not {said}$"
    ):
        await WorkQueue(store, "jobs").put_many(items)


async def test_what_cannot_be_encoded_names_the_queue_and_the_way_out(open_store_on):
    class Half:
        def encode(self, value):
            return str(value)

        def decode(self, data): ...

    words = "tenure:queue:jobs: the payload cannot be encoded: "
    async with open_store_on() as store:
        with pytest.raises(TypeError) as caught:
            await WorkQueue(store, "jobs").put(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
        assert str(caught.value).startswith(
            f"{words}Object of type datetime is not JSON serializable; open_store(codec="
        )
        assert isinstance(caught.value.__cause__, TypeError)
    async with open_store_on(codec=Half()) as store:
        with pytest.raises(TypeError, match=f"^{words}the codec returned str, not bytes"):
            await WorkQueue(store, "jobs").put(1)
