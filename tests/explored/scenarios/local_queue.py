"""The queues of one process."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from explored.catalogue import scenario
from explored.world import pause

from tenure.local import PriorityQueue, Queue
from tenure.testing import cancellable, newcomer


def methods(cls):
    return [f"local.{cls}.{method}" for method in ("put", "get", "take", "join", "__anext__")]


async def what_was_put_is_taken_once(queue):
    """A call that was cancelled has put or taken nothing."""
    put, taken = [], []

    async def producer(names, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        for name in names:
            await queue.put(name)
            put.append(name)

    async def getter():
        taken.append(await queue.get())
        queue.task_done()

    async def taker():
        async with queue.take() as item:
            taken.append(item)
            await pause()

    async def consumer():
        async for item in queue:
            taken.append(item)
            await pause()
            queue.task_done()

    async def victim(call, *args):
        with cancellable():
            await call(*args)

    async with anyio.create_task_group() as group:
        group.start_soon(consumer)
        async with anyio.create_task_group() as producers:
            producers.start_soon(victim, getter)
            producers.start_soon(victim, taker)
            producers.start_soon(producer, ["a", "b"])
            producers.start_soon(victim, producer, ["v", "w", "x"])
            producers.start_soon(producer, ["c"], newcomer)
        async with anyio.create_task_group() as watchers:
            watchers.start_soon(victim, queue.join)
            watchers.start_soon(queue.join)
        assert queue.statistics().unfinished == 0
        queue.close()
    assert {"a", "b", "c"} <= set(put) and sorted(taken) == sorted(put)
    state = queue.statistics()
    assert (state.size, state.tasks_waiting_put, state.tasks_waiting_get) == (0, 0, 0)


@scenario(*methods("Queue"))
async def a_queue_loses_no_item():
    await what_was_put_is_taken_once(Queue(1))


@scenario(*methods("PriorityQueue"))
async def a_priority_queue_loses_no_item():
    await what_was_put_is_taken_once(PriorityQueue(1))


@scenario("local.Queue.put", "local.Queue.get")
async def a_queue_is_first_come_first_served():
    """Those who put, and what they put."""
    queue, came, taken = Queue(1), [], []

    async def producer(name, arrival=anyio.lowlevel.checkpoint):
        await arrival()
        await queue.put(name)

    async def victim():
        with cancellable():
            await queue.put("victim")

    async def consumer():
        while len(taken) < 4:
            item = await queue.get()
            if item != "victim":
                taken.append(item)
            await pause()

    async with anyio.create_task_group() as group:
        for name in "abcd":
            came.append(name)
            group.start_soon(producer, name)
            if name == "b":
                group.start_soon(victim)
            await anyio.sleep(1)
            if name == "a":
                group.start_soon(consumer)
    assert taken == came
