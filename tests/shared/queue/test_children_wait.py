"""What a waiting parent survives: a lost store, a drained worker, a purged child, a changed program, a failover."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
import workers

import tenure
from tenure import Retry, TaskFailed, Worker, WorkQueue
from tenure.engines.memory import MemoryEngine
from tenure.testing import Fault, FaultyEngine

ONCE = Retry(attempts=1)


async def gather(task: tenure.Task):
    """A parent has two children, and returns their results."""
    if not task.payload.startswith("parent"):
        return task.payload
    async with task.children() as children:
        await children.put("a", "a")
        await children.put("b", "b")
    return [child.result for child in children]


async def suspended_parent(queue):
    """A parent that waits for its children, of which none was taken: the queue is paused."""

    async def put_and_pause(task: tenure.Task):
        async with task.children() as children:
            await children.put("a", "a")
            await children.put("b", "b")
            await queue.pause()

    task_id = await queue.put("parent")
    async with anyio.create_task_group() as group:
        group.start_soon(Worker(queue, put_and_pause, concurrency=1).run)
        async with queue.follow(task_id) as changes:
            async for record in changes:
                if record.state == "suspended":
                    break
        group.cancel_scope.cancel()
    return task_id


async def test_the_worker_is_drained_and_another_goes_on(store, open_store_on):
    queue = WorkQueue(store, "jobs")
    task_id = await suspended_parent(queue)
    await queue.resume()
    async with open_store_on() as other:
        await workers.work_off(WorkQueue(other, "jobs"), Worker(WorkQueue(other, "jobs"), gather))
    assert await queue.result(task_id) == ["a", "b"]


async def test_the_store_of_a_child_is_lost(faulty_store, faulty, virtual_clock):
    queue = WorkQueue(faulty_store, "jobs")
    runs = Counter()

    async def handler(task: tenure.Task):
        runs[task.payload] += 1
        if task.payload == "a" and runs["a"] == 1:
            await anyio.sleep_forever()
        return await gather(task)

    task_id = await queue.put("parent")
    async with workers.working(queue, Worker(queue, handler)):
        await anyio.sleep(0.5)
        faulty.down = True
        await anyio.sleep(3 * faulty_store.ttl)
        faulty.down = False
    assert await queue.result(task_id) == ["a", "b"]
    assert runs["a"] == 2 and runs["b"] == 1


async def test_a_waiting_child_is_purged(store):
    queue = WorkQueue(store, "jobs", retry=ONCE)
    task_id = await suspended_parent(queue)
    assert await queue.purge("waiting") == 2
    await queue.resume()
    await workers.work_off(queue, Worker(queue, gather))
    with pytest.raises(TaskFailed, match=r"purged"):
        await queue.result(task_id)


async def test_a_changed_program_waits_for_the_children_of_both(store):
    queue, done = WorkQueue(store, "jobs"), []
    task_id = await suspended_parent(queue)

    async def changed(task: tenure.Task):
        if not task.payload.startswith("parent"):
            done.append(task.payload)
            return task.payload
        async with task.children() as children:
            new = await children.put("c", "c")
        assert [child.name for child in children] == ["c", "a", "b"]
        return new.result

    await queue.resume()
    await workers.work_off(queue, Worker(queue, changed))
    assert await queue.result(task_id) == "c"
    assert sorted(done) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(8))
async def test_a_failover_that_forgets_leaves_no_parent_waiting(virtual_clock, seed):
    engine = FaultyEngine(MemoryEngine(), lose=1, seed=seed)
    async with tenure.open_store(engine, ttl=3) as store:
        queue, runs = WorkQueue(store, "jobs"), Counter()

        async def handler(task: tenure.Task):
            runs[task.payload] += 1
            await anyio.sleep(0.1)
            return await gather(task)

        async with anyio.create_task_group() as group:
            group.start_soon(Worker(queue, handler, concurrency=2).run)
            await queue.put("parent 1")
            await anyio.sleep(1.5)  # the put is older than all that can be forgotten
            await queue.put("parent 2")
            await anyio.sleep(0.05 * seed)
            engine.plan(Fault.FAILOVER)
            await queue.put("after")
            with anyio.fail_after(60):
                await queue.join()
            group.cancel_scope.cancel()
        statistics = await queue.statistics()
        assert statistics.unfinished == 0 and statistics.dead == 0
        assert await queue.verify()
