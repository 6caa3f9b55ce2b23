"""The timeout and the retry of one task: put with it, they take the place of its worker's."""

from __future__ import annotations

import sys
import types
from contextlib import asynccontextmanager

import anyio
import pytest

import tenure
from tenure import BatchWorker, Item, Key, Processor, Retry, TaskFailed, Worker, WorkQueue

AT_ONCE = Retry(attempts=3, backoff=0)


class Refusal(Exception):
    pass


@pytest.fixture
def queue(store):
    return WorkQueue(store, "jobs")


@asynccontextmanager
async def working(queue, *services):
    async with anyio.create_task_group() as group:
        for service in services:
            group.start_soon(service.run)
        yield
        await queue.join()
        group.cancel_scope.cancel()


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), True, "60"])
async def test_a_wrong_timeout_is_refused(queue, wrong):
    with pytest.raises((TypeError, ValueError), match="timeout must be"):
        await queue.put(1, timeout=wrong)
    with pytest.raises((TypeError, ValueError), match="timeout must be"):
        await queue.put_many([2, Item(1, timeout=wrong)])
    assert (await queue.statistics()).put == 0


async def test_a_wrong_retry_is_refused(queue):
    class Local(Exception):
        pass

    with pytest.raises(TypeError, match="retry must be a Retry, not 3"):
        await queue.put(1, retry=3)
    with pytest.raises(ValueError, match=r"a worker can find: there is no .*Local in the module"):
        await queue.put(1, retry=Retry(never=(Local,)))
    with pytest.raises(
        ValueError, match="retry must have at most 1024 bytes as JSON, not .*: name fewer exceptions"
    ):
        await queue.put(1, retry=Retry(on=(LookupError,) * 80))
    assert (await queue.statistics()).put == 0


async def test_they_are_on_record_beside_the_meta_and_survive_a_requeue(queue):
    rule = Retry(attempts=1, on=(LookupError, Refusal))
    task_id = await queue.put(1, timeout=5, retry=rule, meta={"tenant": "ann"}, key="one")
    with pytest.raises(Refusal):
        async with queue.take(timeout=0) as task:
            assert (task.timeout, task.meta) == (5.0, {"tenant": "ann"})
            raise Refusal
    record = await queue.get(task_id)
    assert (record.state, record.timeout, record.retry, record.meta) == ("dead", 5.0, rule, {"tenant": "ann"})
    assert await queue.requeue([task_id]) == 1
    assert (await queue.get(key="one")).retry == rule
    # a replacement brings its own, or none
    await queue.put(2, key=Key("one", "replace"))
    record = await queue.get(task_id)
    assert (record.timeout, record.retry, record.meta) == (None, None, {})


async def test_a_type_that_is_not_imported_here_never_matches(queue, monkeypatch):
    module = types.ModuleType("elsewhere")
    module.Gone = type("Gone", (Exception,), {"__module__": "elsewhere"})
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    task_id = await queue.put(1, retry=Retry(never=(module.Gone, Refusal)))
    monkeypatch.delitem(sys.modules, "elsewhere")
    assert "never=(Gone, Refusal)" in repr((await queue.get(task_id)).retry)
    with pytest.raises(Refusal):
        async with queue.take(timeout=0):
            raise Refusal
    assert (
        "Refusal is in never=(elsewhere.Gone, tests.shared.queue.test_own_options.Refusal)"
        in (await queue.get(task_id)).error
    )


async def test_they_rule_over_the_worker_and_the_queue(queue, virtual_clock):
    begun = []

    async def handler(payload):
        begun.append(payload)
        if payload == "fails":
            raise Refusal
        await anyio.sleep(10)

    fails = await queue.put("fails", retry=Retry(attempts=2, backoff=0))
    long = await queue.put("long", timeout=20)
    short = await queue.put("short", timeout=2, retry=Retry(attempts=1))
    usual = await queue.put("usual")
    async with working(queue, Worker(queue, handler, timeout=5, retry=AT_ONCE)):
        pass
    assert {payload: begun.count(payload) for payload in begun} == {
        "fails": 2,
        "long": 1,
        "short": 1,
        "usual": 3,
    }
    records = [await queue.get(task_id) for task_id in (fails, long, short, usual)]
    assert [(record.state, record.error) for record in records] == [
        ("dead", "Refusal"),
        ("done", None),
        ("dead", "TimeoutError: not done within 2 s"),
        ("dead", "TimeoutError: not done within 5 s"),
    ]


async def test_a_batch_goes_on_for_tasks_that_have_time_left(queue, virtual_clock):
    seen = []

    async def handler(tasks: list[tenure.Task]):
        seen.append([task.payload for task in tasks])
        await anyio.sleep(10)
        seen.append("end")

    await queue.put_many([Item(1, timeout=2, retry=Retry(attempts=1)), Item(2, timeout=30), 3])
    worker = BatchWorker(queue, handler, size=10, concurrency=1, timeout=20, retry=AT_ONCE)
    async with working(queue, worker):
        pass
    assert seen == [[1, 2, 3], "end"]
    statistics = worker.statistics()
    assert (statistics.done, statistics.dead) == (2, 1)
    assert [letter.error for letter in (await queue.tasks("dead").page()).records] == [
        "TimeoutError: not done within 2 s"
    ]


async def test_a_processor_and_children_take_them(store, virtual_clock):
    async def slow(payload):
        await anyio.sleep(10)

    pages = WorkQueue(store, "pages")

    async def parent(task: tenure.Task, context: tenure.Context):
        async with task.children(pages, on_failure="collect") as children:
            await children.put(1, timeout=3, retry=Retry(attempts=1))
        return [(child.state, child.error) for child in children]

    async with Processor(store, "books", parent) as processor:
        task_id = await processor.submit("all", timeout=5, retry=Retry(attempts=1))
        async with working(pages, Worker(pages, slow, timeout=1)):
            result = await processor.queue().result(task_id)
        assert result == [["dead", "TimeoutError: not done within 3 s"]]

    async with Processor(store, "books", slow, timeout=60) as processor:
        late = await processor.submit("one", timeout=5, retry=Retry(attempts=1))
        with pytest.raises(TaskFailed, match="not done within 5 s"):
            await processor.queue().result(late)
