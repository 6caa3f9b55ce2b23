"""A value that cannot be decoded hides neither its task nor a page, and a value that cannot be encoded is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tenure import Item, Keep, ResourcePool, Retry, WorkQueue
from tenure.engine import TASK, Scan
from tenure.shared import record_of
from tenure.store import JsonCodec

DEEP = b"[" * 100_000 + b"]" * 100_000
NO_TEXT = b"\xff"


class Raw:
    """Other programs may write anything."""

    def encode(self, value):
        return value if isinstance(value, bytes) else json.dumps(value).encode()

    def decode(self, data):
        return data


@pytest.fixture(params=[DEEP, NO_TEXT], ids=["deep", "no text"])
def bad(request):
    return request.param


async def test_a_value_that_cannot_be_decoded_hides_no_other(store, bad):
    store.codec = store._handle.codec = Raw()
    queue = WorkQueue(store, "jobs", codec=Raw(), keep=Keep(payloads=True), retry=Retry(attempts=1))
    first, second, dead, waiting = await queue.put_many(
        [bad, b"2", Item(bad, priority=-1), Item(bad, priority=-2)], cursor=("read", bad)
    )
    for value in (bad, b"2"):
        async with queue.take() as task:
            await task.progress(value)
            task.set_result(value)
    with pytest.raises(KeyError):
        async with queue.take():
            raise KeyError
    store.codec = store._handle.codec = JsonCodec()
    queue = WorkQueue(store, "jobs", keep=Keep(payloads=True))
    ended = {record.id: record for record in (await queue.tasks("ended").page()).records}
    assert ended[first].undecoded == {"payload": bad, "result": bad, "progress": bad}
    assert (ended[first].payload, ended[first].result, ended[first].progress) == (None, None, None)
    assert (ended[second].payload, ended[second].result, ended[second].progress) == (2, 2, 2)
    assert ended[second].undecoded == {}
    assert [record.undecoded for record in (await queue.tasks("dead").page()).records] == [{"payload": bad}]
    assert [record.id for record in (await queue.tasks("waiting").page()).records] == [waiting]
    for task_id in (first, dead, waiting):
        assert (await queue.get(task_id)).undecoded["payload"] == bad
        if task_id != waiting:
            async with queue.follow(task_id) as changes:
                assert [record.undecoded["payload"] async for record in changes] == [bad]
    with pytest.raises(ValueError, match=f"queue:jobs: the result of task {first} cannot be decoded"):
        await queue.result(first)
    with pytest.raises(ValueError, match="queue:jobs: the cursor 'read' cannot be decoded"):
        await queue.cursors()
    async with queue.take() as task:
        with pytest.raises(ValueError, match=f"queue:jobs task {waiting}: the payload cannot be decoded"):
            _ = task.payload


async def test_a_meta_that_cannot_be_decoded_is_left_out(store, bad):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    (record,) = (await store._handle.call(Scan(TASK, queue.key, only=str(task_id)))).rows
    read = record_of(replace(record, meta=bad), JsonCodec(), JsonCodec(), store._handle)
    assert (read.payload, read.meta, read.undecoded) == (1, {}, {"meta": bad})


async def test_metadata_that_cannot_be_decoded_is_named(store, bad):
    store.codec = store._handle.codec = Raw()
    pool = ResourcePool(store, "keys")
    await pool.add("a", {"quota": bad})
    store.codec = store._handle.codec = JsonCodec()
    async with pool.claim() as claim:
        with pytest.raises(ValueError, match="the metadata 'quota' cannot be decoded"):
            _ = claim.metadata


async def test_a_value_that_is_nested_too_deeply_is_refused(store):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    queue = WorkQueue(store, "jobs")
    for put in (queue.put(deep), queue.try_put(deep), queue.put_many([Item(deep)])):
        with pytest.raises(
            ValueError, match="queue:jobs: the payload cannot be encoded: it is nested too deeply"
        ):
            await put
    with pytest.raises(ValueError, match="the cursor cannot be encoded"):
        await queue.put_many([], cursor=("read", deep))
    with pytest.raises(ValueError, match="metadata: 'quota' cannot be encoded"):
        await ResourcePool(store, "keys").add("a", {"quota": deep})
    await queue.put(1)
    async with queue.take() as task:
        with pytest.raises(ValueError, match="the result cannot be encoded"):
            task.set_result(deep)
        with pytest.raises(ValueError, match="the progress cannot be encoded"):
            await task.progress(deep)
    assert (await queue.statistics()).put == 1
