"""Waiting for the end of a task, or of all of them."""

from __future__ import annotations

import anyio
import depth
import pytest

import tenure
from tenure import ResultUnavailable, TaskCancelled, TaskFailed, WorkQueue
from tenure.engine import Count, GetResult


async def complete(queue, result=None):
    async with queue.take() as task:
        task.set_result(result)


async def test_a_result_that_is_there(store):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    await complete(queue, [1, 2])
    assert await queue.result(task_id) == [1, 2]
    assert await queue.result(task_id) == [1, 2]


async def test_a_result_that_is_waited_for(open_store_on, virtual_clock):
    async with open_store_on(ttl=300) as a, open_store_on(ttl=300) as b:
        queue, other = WorkQueue(a, "jobs"), WorkQueue(b, "jobs")
        task_id = await queue.put(1)
        results = []

        async def wait(queue):
            results.append(await queue.result(task_id))

        async with anyio.create_task_group() as group:
            for waiting in (queue, queue, other):
                group.start_soon(wait, waiting)
            await anyio.sleep(10)
            start = virtual_clock.now()
            await complete(other, "there")
        assert results == ["there"] * 3
        assert virtual_clock.now() - start < 0.1


async def test_tasks_that_failed_were_cancelled_or_expired(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    ids = await queue.put_many([tenure.Item(1), tenure.Item(2), tenure.Item(3, expires=1)])
    async with queue.take():
        raise tenure.Discard("no")
    await queue.cancel(ids[1])
    await anyio.sleep(2)
    with pytest.raises(TaskFailed, match="discarded: no"):
        await queue.result(ids[0])
    with pytest.raises(TaskCancelled):
        await queue.result(ids[1])
    with pytest.raises(TaskFailed, match="is expired"):
        await queue.result(ids[2])


async def test_no_such_task(store):
    queue = WorkQueue(store, "jobs")
    with pytest.raises(ResultUnavailable, match="no result of task 99"):
        await queue.result(99)
    await queue.put(1)
    with pytest.raises(ResultUnavailable):
        await queue.result(99)


async def test_a_session_that_has_gone_unnoticed(engine, virtual_clock):
    async with tenure.open_store(engine, ttl=3) as store:
        queue = WorkQueue(store, "jobs")
        task_id = await queue.put(1)
        for _ in range(2):
            session = await store._handle.session(3.0)
            await store._handle.call(tenure.engine.CloseSession(session.id))
            async with anyio.create_task_group() as group:
                group.start_soon(queue.join)
                group.start_soon(queue.result, task_id)
                await virtual_clock.settle()
                assert session.lost == "gone"
                await virtual_clock.settle()
                if (await queue.statistics()).waiting:
                    await complete(queue)


async def test_join(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    await queue.join()
    await queue.put(1)
    await queue.put(2, delay=3)
    joined = []

    async def join():
        await queue.join()
        joined.append(virtual_clock.now())

    async with anyio.create_task_group() as group:
        group.start_soon(join)
        group.start_soon(join)
        await complete(queue)
        await anyio.sleep(1)
        assert joined == []
        async with queue.take():
            await anyio.sleep(1)
            assert joined == []
        last = virtual_clock.now()
    assert joined == pytest.approx([last] * 2, abs=0.1)


async def test_join_is_not_fooled_by_a_hint_from_before(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    with anyio.move_on_after(0.1):
        await queue.join()
    await complete(queue)
    await queue.put(2)
    with anyio.move_on_after(10) as scope:
        await queue.join()
    assert scope.cancelled_caught


async def test_waiting_costs_next_to_nothing(recording, virtual_clock):
    seconds = depth.share(3000)
    async with tenure.open_store(recording, ttl=30) as store:
        queue = WorkQueue(store, "jobs")
        task_id = await queue.put(1)
        async with anyio.create_task_group() as group:
            group.start_soon(queue.result, task_id)
            group.start_soon(queue.join)
            await anyio.sleep(60)
            recording.take()
            await anyio.sleep(seconds)
            assert len(recording.take(GetResult, Count)) <= 2 * seconds / 20
            group.cancel_scope.cancel()
