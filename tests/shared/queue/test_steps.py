"""Steps: what a delivery has stored, a later delivery gets instead of doing it again."""

from __future__ import annotations

import anyio
import pytest
import workers

import tenure
from tenure import BatchWorker, LeaseLost, Retry, TaskCancelled, Worker, WorkQueue
from tenure.engine import ENTRIES, Scan, SetEntry
from tenure.errors import EngineError, PayloadTooLarge
from tenure.testing import Fault, FaultyEngine


@pytest.fixture(autouse=True)
def families(engine):
    """Leave an engine out that has no entries of tasks yet."""
    if not engine.families:
        pytest.skip(f"{engine.url} has no families of tasks")


AT_ONCE = Retry(attempts=3, backoff=0, jitter=0)


async def test_a_later_delivery_gets_what_is_stored(store):
    queue, calls = WorkQueue(store, "jobs", retry=AT_ONCE), []

    async def list_pages():
        calls.append("list")
        return ("a", 1)

    async def crawl(task: tenure.Task):
        pages = await task.step("list", list_pages)
        count = await task.step("count", lambda: calls.append("count") or len(pages))
        if task.attempt == 1:
            raise RuntimeError("first")
        return pages, count

    task_id = await queue.put(1)
    await workers.work_off(queue, Worker(queue, crawl))
    assert await queue.result(task_id) == [["a", 1], 2]
    assert calls == ["list", "count"]


async def test_what_is_on_record_is_a_checkpoint_as_what_is_not(store):
    """A scope that has been cancelled stops the same calls in each delivery."""
    queue, stopped = WorkQueue(store, "jobs"), []

    async def handler(task: tenure.Task):
        if task.payload != "parent":
            return
        async with task.children(queue, name="x") as children:
            for call in (
                lambda: task.step("first", lambda: 1),
                lambda: task.step("second", lambda: 2),
                lambda: children.put("a", name="a"),
                lambda: children.put_many(["b", "c"]),
                lambda: children.put_many([]),
                lambda: task.wait_for("go"),
            ):
                with anyio.move_on_after(0) as scope:
                    await call()
                stopped.append(scope.cancelled_caught)
                await call()
            if len(stopped) == 6:
                raise tenure.RetryLater(0, counts=False)

    task_id = await queue.put("parent")
    assert await queue.signal(task_id, "go")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) is None
    assert len(stopped) >= 12
    assert all(stopped)


async def test_the_value_is_as_decoded_at_once(store):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    async with queue.take() as task:
        assert await task.step("tuple", lambda: (1, (2,))) == [1, [2]]
        assert await task.step("none", lambda: None) is None


async def test_an_exception_is_not_stored(store):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    async with queue.take() as task:
        with pytest.raises(ZeroDivisionError):
            await task.step("divide", lambda: 1 // 0)
        with anyio.move_on_after(0):
            await task.step("wait", anyio.sleep_forever)
        assert (await store._handle.call(Scan(ENTRIES, queue.key, only=str(task.id)))).rows == ()


async def test_a_step_that_failed_may_be_tried_again(store):
    queue, numbers = WorkQueue(store, "jobs"), iter([0, 2])
    await queue.put(1)
    async with queue.take() as task:
        with pytest.raises(ZeroDivisionError):
            await task.step("divide", lambda: 4 // next(numbers))
        assert await task.step("divide", lambda: 4 // next(numbers)) == 2


async def test_a_name_is_used_once_in_a_delivery(store):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    async with queue.take() as task:
        await task.step("a", lambda: 1)
        with pytest.raises(RuntimeError, match="the step 'a' was used before"):
            await task.step("a", lambda: 2)
        with pytest.raises(ValueError, match="name"):
            await task.step("", lambda: 2)


async def test_a_value_that_is_too_large_or_cannot_be_encoded_is_refused(store):
    queue = WorkQueue(store, "jobs", max_payload=10)
    await queue.put(1)
    async with queue.take() as task:
        with pytest.raises(PayloadTooLarge, match="the step has 22 bytes"):
            await task.step("large", lambda: "x" * 20)
        with pytest.raises(TypeError):
            await task.step("set", set)


async def test_one_who_lost_the_task_stores_nothing(store):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    async with queue.take() as task:
        task_id = task.id
    with pytest.raises(LeaseLost, match="released"):
        await task.step("late", lambda: 1)
    assert (await store._handle.call(Scan(ENTRIES, queue.key, only=str(task_id)))).rows == ()


async def test_the_step_of_a_task_that_is_to_stop_is_not_stored(store):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    with pytest.raises(TaskCancelled):
        async with queue.take() as task:

            async def cancelled():
                await queue.cancel(task_id)
                return 1

            with anyio.CancelScope(shield=True):
                await task.step("late", cancelled)
    assert (await queue.get(task_id)).state == "cancelled"


async def test_in_a_batch(store):
    queue, seen = WorkQueue(store, "jobs"), []

    async def handle(tasks: list[tenure.Task]):
        for task in tasks:
            seen.append(await task.step("double", lambda task=task: 2 * task.payload))

    await queue.put_many([1, 2])
    await workers.work_off(queue, BatchWorker(queue, handle, size=10))
    assert sorted(seen) == [2, 4]


async def test_a_step_whose_answer_was_lost_is_stored_once(engine):
    faulty = FaultyEngine(engine)
    async with tenure.open_store(faulty) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put(1)
        async with queue.take() as task:
            faulty.plan(Fault.LOST_REPLY, on=SetEntry)
            assert await task.step("a", lambda: 1) == 1


async def test_an_engine_without_families_says_so(store, engine, monkeypatch):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    async with queue.take() as task:
        monkeypatch.setattr(engine, "families", False)
        with pytest.raises(EngineError, match="has no steps and children of tasks yet"):
            await task.step("a", lambda: 1)


async def test_failures_before_a_stored_step_do_not_count(store):
    queue, tries = WorkQueue(store, "jobs", retry=AT_ONCE), []

    async def crawl(task: tenure.Task):
        for page in range(3):
            if tries.count(page) < 2:
                tries.append(page)
                raise OSError("503")
            await task.step(f"{page}", lambda page=page: page)
        tries.append(task.attempt)
        raise OSError("the end")  # no step is stored any more

    task_id = await queue.put(1)
    await workers.work_off(queue, Worker(queue, crawl))
    assert tries == [0, 0, 1, 1, 2, 2, 1, 2, 3]
    record = await queue.get(task_id)
    assert (record.state, record.attempts) == ("dead", 3)
