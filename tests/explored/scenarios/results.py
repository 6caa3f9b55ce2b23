"""Waiting for what becomes of tasks."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from explored.catalogue import on_every_engine
from explored.scenarios.queues import all_is_done
from explored.world import pause

from tenure import Discard, ResultUnavailable, TaskCancelled, TaskFailed, WorkQueue
from tenure.testing import cancellable, newcomer


@on_every_engine("shared.WorkQueue.result")
async def all_who_wait_for_a_result_get_it(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, results = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), []
        done, failed, cancelled = await queue.put_many(["done", "failed", "cancelled"])

        async def watcher(queue, task_id, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            try:
                results.append(await queue.result(task_id))
            except (TaskCancelled, TaskFailed) as error:
                results.append((type(error), error.task_id))

        async def victim(task_id):
            with cancellable():
                await queue.result(task_id)

        async def worker():
            for _ in range(3):
                await pause()
                try:
                    async with other.take() as task:
                        task.set_result("result")
                        await pause()
                        if task.id == failed:
                            raise Discard("no")
                        if task.id == cancelled:
                            assert await queue.cancel(task.id)
                            await anyio.sleep_forever()
                except TaskCancelled:
                    pass

        async with world.group() as group:
            group.start_soon(watcher, queue, done)
            group.start_soon(victim, done)
            group.start_soon(watcher, other, done)
            group.start_soon(watcher, queue, done, newcomer)
            group.start_soon(watcher, queue, failed)
            group.start_soon(watcher, queue, cancelled)
            group.start_soon(worker)
        ends = [*["result"] * 3, (TaskFailed, failed), (TaskCancelled, cancelled)]
        assert sorted(map(str, results)) == sorted(map(str, ends))
        try:
            await queue.result(max(done, failed, cancelled) + 1)
        except ResultUnavailable:
            pass
        else:
            raise AssertionError("the result of no task")
        await all_is_done(queue, store, elsewhere, done=1, discarded=1, cancelled=1)


@on_every_engine("shared.WorkQueue.join")
async def all_who_wait_for_the_end_see_it(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, ended = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), []
        await queue.put_many(["a", "b"])

        async def watcher(queue, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            await queue.join()
            ended.append((await queue.statistics()).unfinished)

        async def victim():
            with cancellable():
                await queue.join()
                assert (await queue.statistics()).unfinished == 0

        async def worker():
            for _ in range(2):
                async with other.take():
                    await pause()

        async with world.group() as group:
            group.start_soon(victim)
            group.start_soon(watcher, queue)
            group.start_soon(watcher, other)
            group.start_soon(watcher, queue, newcomer)
            group.start_soon(worker)
        assert ended == [0, 0, 0]
        await all_is_done(queue, store, elsewhere, done=2)
