"""Nothing begins with a lease whose time has passed, whatever blocked the process since the lease was obtained."""

from __future__ import annotations

import anyio
import pytest
from workers import work_off

import tenure
from tenure import BatchWorker, LeaseLost, Retry, Worker, WorkQueue
from tenure.shared.queue._family import Family

ONCE = Retry(attempts=1)


@pytest.fixture
def begun(freeze):
    """The begins of a handler: for each, whether the lease was in force. The first begin blocks the process."""

    class Begun(list):
        def __call__(self, task):
            try:
                task.check()
            except LeaseLost:
                self.append((task.payload, False))
            else:
                self.append((task.payload, True))
            if len(self) == 1:
                freeze(100)

    return Begun()


def twice(payload):
    """The begins of four tasks, of which this one began twice, and all with a lease in force."""
    return sorted((number, True) for number in (*range(4), payload))


@pytest.mark.parametrize("prefetch", [0, 10])
async def test_tasks_that_came_together_are_not_begun_behind_one_that_blocks(
    store, virtual_clock, begun, prefetch
):
    queue = WorkQueue(store, "jobs", retry=ONCE)
    await queue.put_many(range(4))

    async def handler(task: tenure.Task):
        begun(task)
        await anyio.sleep(0)

    worker = Worker(queue, handler, concurrency=4 if not prefetch else 1, prefetch=prefetch)
    await work_off(queue, worker)
    # the task that blocked was lost, and is done by its second delivery; the others had no try
    assert sorted(begun) == twice(begun[0][0])
    statistics = worker.statistics()
    assert (statistics.done, statistics.dead) == (4, 0)
    assert statistics.lost == (1 if prefetch else 4)


async def test_a_batch_is_not_begun_behind_another(store, virtual_clock, begun):
    queue = WorkQueue(store, "jobs", retry=ONCE)
    await queue.put_many(range(4))

    async def handler(tasks: list[tenure.Task]):
        for task in tasks:
            begun(task)
        await anyio.sleep(0)

    worker = BatchWorker(queue, handler, concurrency=2, size=2)
    await work_off(queue, worker)
    stale = [payload for payload, in_force in begun if not in_force]
    assert stale == [begun[0][0] + 1]  # of the batch that blocked
    assert worker.statistics().done == 4


async def test_the_body_of_a_block_does_not_begin_behind_a_task_that_blocks(store, virtual_clock, begun):
    queue = WorkQueue(store, "jobs", retry=ONCE)

    async def take():
        try:
            async with queue.take() as task:
                begun(task)
        except LeaseLost:
            assert begun[0][0] == task.payload

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        await queue.put_many(range(4))
        await anyio.sleep(1)
        group.start_soon(take)  # the task that the blocking body has lost
    assert sorted(begun) == twice(begun[0][0])


async def test_a_step_does_not_begin_behind_a_slow_reading(store, engine, virtual_clock, freeze, monkeypatch):
    if not engine.families:
        pytest.skip(f"{engine.url} has no families of tasks")
    queue, calls = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=0)), []
    read, frozen = Family.read, []

    async def read_slowly(family, prefix):
        entries = await read(family, prefix)
        if not frozen:
            frozen.append(freeze(100))
        return entries

    monkeypatch.setattr(Family, "read", read_slowly)

    async def handler(task: tenure.Task):
        await task.step("charge", lambda: calls.append(task.deliveries))

    await queue.put(1)
    await work_off(queue, Worker(queue, handler, concurrency=1))
    assert (calls, len(frozen)) == ([2], 1)
