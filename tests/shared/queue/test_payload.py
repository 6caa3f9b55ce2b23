"""Payloads of one queue: its own codec, and what happens to those that it refuses."""

from __future__ import annotations

import anyio
import pytest

import tenure
from tenure import Item, Keep, Retry, Worker, WorkQueue
from tenure.engines.memory import MemoryEngine


class Words:
    """Takes lists of words only."""

    def encode(self, value, /):
        if not isinstance(value, list):
            raise ValueError(f"{value!r} is no list")
        return " ".join(value).encode()

    def decode(self, data, /):
        if b"{" in data:
            raise ValueError("these are no words")
        return data.decode().split()


async def test_a_queue_may_have_a_codec_of_its_own_for_payloads(store):
    queue = WorkQueue(store, "words", codec=Words(), keep=Keep(payloads=True))
    other = WorkQueue(store, "others")
    task_id = await queue.put(["a", "b"])
    await other.put({"a": 1})
    assert (await queue.get(task_id)).payload == ["a", "b"]
    async with queue.take() as task:
        assert task.payload == ["a", "b"]
        await task.progress({"done": 1})
        task.set_result({"words": 2})
    assert await queue.result(task_id) == {"words": 2}
    record = await queue.get(task_id)
    assert (record.payload, record.progress, record.result) == (["a", "b"], {"done": 1}, {"words": 2})
    await queue.put_many([["c"]], cursor=("read", {"lines": 1}))
    assert await queue.cursors() == {"read": {"lines": 1}}
    async with other.take() as task:
        assert task.payload == {"a": 1}


async def test_what_the_codec_refuses_is_not_put(store):
    queue = WorkQueue(store, "words", codec=Words())
    with pytest.raises(ValueError, match=r"queue:words: the payload cannot be encoded: 7 is no list$"):
        await queue.put(7)
    with pytest.raises(ValueError, match="is no list"):
        await queue.try_put(7)
    with pytest.raises(ValueError, match="is no list"):
        await queue.put_many([["a"], Item(7)])
    assert (await queue.statistics()).put == 0


async def test_a_task_whose_payload_the_codec_refuses_fails_and_hides_no_other(store):
    queue = WorkQueue(store, "words", codec=Words(), retry=Retry(attempts=1))
    wrong = await WorkQueue(store, "words").put({"a": 1})
    right = await queue.put(["a"])

    async def handle(task: tenure.Task):
        return len(task.payload)

    worker = Worker(queue, handle)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        assert await queue.result(right) == 1
        with pytest.raises(tenure.TaskFailed, match="the payload cannot be decoded: these are no words"):
            await queue.result(wrong)
        await worker.drain()
    (letter,) = (await queue.tasks("dead").page()).records
    assert letter.id == wrong
    assert (
        letter.error
        == f"ValueError: {queue.key} task {wrong}: the payload cannot be decoded: these are no words"
    )
    assert letter.payload is None
    assert letter.undecoded == {"payload": b'{"a":1}'}
    queue = WorkQueue(store, "words")
    assert await queue.requeue() == 1
    async with queue.take() as task:
        assert task.payload == {"a": 1}


@pytest.mark.parametrize("codec", [Words, object(), "json"])
async def test_a_codec_is_an_object_with_two_methods(codec):
    async with tenure.open_store(MemoryEngine()) as store:
        with pytest.raises(TypeError, match="codec must be an object with the methods encode and decode"):
            WorkQueue(store, "words", codec=codec)
    with pytest.raises(TypeError, match="codec must be an object with the methods encode and decode"):
        async with tenure.open_store(MemoryEngine(), codec=codec):
            pass


def test_generic_names_may_be_used_at_run_time():
    assert tenure.Item[int](5) == Item(5)
    assert tenure.WorkQueue[int].__origin__ is WorkQueue
