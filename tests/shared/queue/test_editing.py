"""Changes of a task that waits: what is given changes, the rest stays; a task that does not wait is refused."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

import tenure
from tenure import Job, Retry, Worker, WorkQueue
from tenure.errors import PayloadTooLarge, TaskNotWaiting


@pytest.fixture
def queue(store):
    return WorkQueue(store, "jobs", max_payload=100)


@asynccontextmanager
async def working(*workers):
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(worker.run)
        yield
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"task_id": 1}, "edit takes at least one of payload, priority, delay and group"),
        ({"priority": 1}, "edit takes a task_id or a key"),
        ({"task_id": 1, "key": "k", "priority": 1}, "edit takes a task_id or a key"),
        ({"task_id": 0.5, "priority": 1}, "task_id must be"),
        ({"key": 3, "priority": 1}, "key must be"),
        ({"task_id": 1, "priority": "high"}, "priority must be"),
        ({"task_id": 1, "delay": -1}, "delay must be"),
        ({"task_id": 1, "group": 3}, "group must be"),
        ({"task_id": 1, "group": "\0a"}, "group must not begin"),
        ({"task_id": 1, "payload": {1, 2}}, "the payload cannot be encoded"),
        ({"task_id": 1, "payload": "x" * 100}, "the payload has 102 bytes"),
    ],
)
async def test_a_wrong_argument_is_named_and_changes_nothing(queue, options, error):
    task_id = await queue.put("old", key="k")
    with pytest.raises((TypeError, ValueError, PayloadTooLarge), match=error):
        await queue.edit(**options)
    record = await queue.get(task_id)
    assert (record.payload, record.priority, record.group) == ("old", 0, None)


async def test_what_is_given_changes_and_the_rest_stays(queue, virtual_clock):
    options = {
        "key": "k",
        "meta": {"tenant": "ann"},
        "deadline": 600,
        "timeout": 5,
        "retry": Retry(attempts=7),
    }
    task_id = await queue.put("old", group="a", **options)
    with pytest.raises(LookupError):
        async with queue.take(timeout=0):
            raise LookupError
    assert await queue.edit(task_id, priority=3) == task_id
    assert await queue.edit(key="k", payload=None) == task_id
    assert await queue.edit(key="k", group=None, delay=60) == task_id
    record = await queue.get(task_id)
    assert (record.state, record.payload, record.priority, record.group) == ("delayed", None, 3, None)
    assert (record.key, record.attempts, record.meta, record.timeout) == ("k", 1, {"tenant": "ann"}, 5.0)
    assert record.retry == options["retry"]
    assert record.deadline == pytest.approx(600, abs=2)
    await virtual_clock.advance(61)
    async with queue.take(timeout=0) as task:
        assert (task.payload, task.attempt, task.group) == (None, 2, None)
    assert await queue.verify()


async def test_a_task_that_does_not_wait_is_refused_with_what_it_is(queue):
    task_id = await queue.put("old", key="k")
    async with queue.take(timeout=0) as task:
        with pytest.raises(
            TaskNotWaiting, match=f"task {task_id} is leased; only a task that is waiting"
        ) as refused:
            await queue.edit(task_id, payload="new")
        assert (refused.value.task_id, refused.value.state) == (task_id, "leased")
        assert task.payload == "old"
    for named, task_of in (({"task_id": task_id}, task_id), ({"task_id": 99}, None), ({"key": "k"}, None)):
        with pytest.raises(TaskNotWaiting) as refused:
            await queue.edit(**named, priority=1)
        assert refused.value.state == ("done" if task_of else "unknown")
        assert refused.value.task_id == task_of


async def test_a_child_stays_among_children(store):
    sites, pages, groups = WorkQueue(store, "sites"), WorkQueue(store, "pages"), []

    async def site(task: tenure.Task):
        async with task.children(pages) as children:
            child = await children.put("page", delay=600)
            if not child.ended:
                await pages.edit(child.id, group="a", delay=0)
                groups.extend((await pages.groups().page()).records)

    async def page(payload: str):
        return payload

    async with working(Worker(sites, site), Worker(pages, page)):
        await sites.put("site")
        await sites.join()
    assert [(group.group, group.children) for group in groups] == [("a", True)]


async def test_a_job_takes_the_arguments_that_were_edited(store):
    def add(a: int, b: int = 1) -> int:
        return a + b

    job = Job(WorkQueue(store, "sums"), add)
    task_id = await job.put(1)
    await job.queue.edit(task_id, payload={"a": 5})
    async with working(Worker(job)):
        assert await job.result(task_id) == 6
