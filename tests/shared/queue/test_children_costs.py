"""What children cost: round trips of the puts, deliveries of the parent, and what a suspended parent holds."""

from __future__ import annotations

import anyio
import pytest

import tenure
from tenure import Worker, WorkQueue
from tenure.engine import PutChildren
from tenure.engines.memory import MemoryEngine
from tenure.testing import FaultyEngine


class Counting(FaultyEngine):
    """Memory behind a wire, which keeps the puts of children."""

    def __init__(self):
        super().__init__(MemoryEngine())
        self.puts = []

    async def execute(self, operations):
        self.puts += [operation for operation in operations if isinstance(operation, PutChildren)]
        return await super().execute(operations)


async def test_a_thousand_children_are_four_puts_and_two_deliveries_of_their_parent():
    engine, deliveries = Counting(), []
    async with tenure.open_store(engine) as store:
        parents, parts = WorkQueue(store, "parents"), WorkQueue(store, "parts")

        async def gather(task: tenure.Task):
            deliveries.append(task.id)
            async with task.children(parts) as children:
                await children.put_many(range(1000))
            return sum(child.result for child in children)

        async def part(number):
            return number

        task_id = await parents.put(None)
        async with anyio.create_task_group() as group:
            group.start_soon(Worker(parents, gather).run)
            group.start_soon(Worker(parts, part, concurrency=50).run)
            assert await parents.result(task_id) == 499_500
            group.cancel_scope.cancel()
    assert [len(put.tasks) for put in engine.puts] == [256, 256, 256, 232]
    assert len(deliveries) == 2


@pytest.mark.parametrize("most", [200, pytest.param(10_000, marks=pytest.mark.full)])
async def test_suspended_parents_hold_nothing_of_the_store(store, most):
    parents, parts = WorkQueue(store, "parents"), WorkQueue(store, "parts")

    async def wait(task: tenure.Task):
        async with task.children(parts) as children:
            await children.put(task.payload)

    async with anyio.create_task_group() as group:
        worker = Worker(parents, wait, concurrency=10)
        group.start_soon(worker.run)

        async def suspend(parents_in_all):
            while worker.statistics().suspended < parents_in_all:
                await anyio.sleep(0.01)
            await anyio.sleep(1)
            return await store.statistics()

        await parents.put(0)
        before = await suspend(1)
        await parents.put_many(range(1, most))
        after = await suspend(most)
        group.cancel_scope.cancel()
    assert (after.jobs, after.held, after.sessions) == (before.jobs, before.held, before.sessions)
