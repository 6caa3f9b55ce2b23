"""A value that cannot be kept: what has run is on record as run, and no further try repeats it."""

from __future__ import annotations

import datetime as dt

import anyio
import pytest
from workers import work_off

import tenure
from tenure import BatchWorker, Retry, TaskFailed, Worker, WorkQueue
from tenure.errors import PayloadTooLarge

VALUES = [
    (dt.datetime(2026, 1, 1), "datetime", TypeError),  # noqa: DTZ001
    ({1}, "set", TypeError),
    (float("nan"), "float", ValueError),
    ("x" * 100, "str", PayloadTooLarge),
]


def queue_of(store, name="jobs", **options):
    return WorkQueue(store, name, max_payload=50, retry=Retry(attempts=3, backoff=0), **options)


@pytest.mark.parametrize(("value", "kind", "error"), VALUES)
async def test_a_step_whose_value_cannot_be_kept_is_never_run_again(store, value, kind, error):
    queue, calls, raised = queue_of(store), [], []

    async def handler(task: tenure.Task):
        try:
            await task.step("charge", lambda: calls.append(1) or value)
        except Exception as problem:
            raised.append(problem)
            raise

    task_id = await queue.put(1)
    worker = Worker(queue, handler)
    await work_off(queue, worker)
    record = await queue.get(task_id)
    why = f"not tried again: the value of the step 'charge', of type {kind}, cannot be kept"
    assert (record.state, record.error.split("\n")[-1], len(calls)) == ("dead", why, 1)
    await queue.requeue([task_id])
    await work_off(queue, Worker(queue, handler))
    record = await queue.get(task_id)
    assert (record.state, len(calls)) == ("dead", 1)
    assert "the step 'charge' has run before and is not run again: the value of the step" in record.error
    assert record.error.endswith(why)
    assert [type(problem) for problem in raised] == [error, RuntimeError]


async def test_a_step_in_a_group_of_tasks_and_one_that_is_tried_again_at_once_run_once(store):
    queue, calls = queue_of(store), []

    async def charge():
        calls.append(1)
        return {1}

    async def handler(task: tenure.Task):
        with pytest.raises(TypeError):
            await task.step("at once", charge)
        with pytest.raises(RuntimeError, match="not run again"):
            await task.step("at once", charge)
        async with anyio.create_task_group() as group:
            group.start_soon(task.step, "in a group", charge)

    task_id = await queue.put(1)
    await work_off(queue, Worker(queue, handler))
    assert len(calls) == 2
    assert (await queue.get(task_id)).error.endswith("step 'in a group', of type set, cannot be kept")


async def test_a_handler_may_go_on_without_a_value_that_cannot_be_kept(store):
    queue = queue_of(store)

    async def handler(task: tenure.Task):
        with pytest.raises(TypeError if task.attempt == 1 else RuntimeError):
            await task.step("charge", set)
        if task.attempt == 1:
            with pytest.raises(TypeError):
                task.set_result({1})
            raise OSError("for another reason")
        return await task.step("other", lambda: 7)

    task_id = await queue.put(1)
    await work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == 7


@pytest.mark.parametrize("what", ["result", "progress"])
@pytest.mark.parametrize(("value", "kind", "error"), VALUES)
async def test_a_result_and_a_report_that_cannot_be_kept_end_the_task(store, what, value, kind, error):
    queue, tries = queue_of(store), []

    async def handler(task: tenure.Task):
        tries.append(1)
        if what == "result":
            task.set_result(value)
        else:
            await task.progress(value)

    task_id = await queue.put(1)
    await work_off(queue, Worker(queue, handler))
    record = await queue.get(task_id)
    assert (record.state, len(tries)) == ("dead", 1)
    assert record.error.startswith(error.__name__)
    assert record.error.endswith(f"\nnot tried again: the {what}, of type {kind}, cannot be kept")


async def test_the_neighbours_in_a_batch_are_tried_again(store):
    queue, tries = queue_of(store), []

    async def handler(tasks: list[tenure.Task]):
        tries.append(len(tasks))
        for task in tasks:
            if task.payload == "bad":
                task.set_result({1})

    ids = await queue.put_many(["good", "bad", "good"])
    await work_off(queue, BatchWorker(queue, handler, size=3, concurrency=1))
    assert [(await queue.get(task_id)).state for task_id in ids] == ["done", "dead", "done"]
    assert tries == [3, 2]


@pytest.mark.parametrize("on_failure", ["cancel", "collect"])
async def test_a_child_whose_result_cannot_be_kept_runs_once(store, on_failure):
    queue, children_queue, runs = queue_of(store), queue_of(store, "children"), []

    async def parent(task: tenure.Task):
        async with task.children(children_queue, on_failure=on_failure) as children:
            child = await children.put(1)
        assert child.result

    async def child(_):
        runs.append(1)
        return {1}

    task_id = await queue.put(1)
    async with anyio.create_task_group() as group:
        workers = [Worker(queue, parent), Worker(children_queue, child)]
        for worker in workers:
            group.start_soon(worker.run)
        with pytest.raises(TaskFailed, match="the result of a child cannot be kept"):
            await queue.result(task_id)
        for worker in workers:
            await worker.drain()
    assert len(runs) == 1


async def test_the_value_of_a_signal_that_cannot_be_kept_is_refused(store):
    queue = queue_of(store)
    with pytest.raises(TypeError, match="queue:jobs: the signal cannot be encoded"):
        await queue.signal(await queue.put(1), "paid", {1})
