"""Workers with batches: what happens to one task of a batch, or to the worker, costs no other task anything."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import anyio
import anyio.lowlevel
from explored.catalogue import on_a_wire, on_every_engine
from explored.scenarios.losses import AWAY
from explored.scenarios.queues import all_is_done
from explored.scenarios.takers import Work, do_one, do_the_rest
from explored.world import pause

from tenure import BatchWorker, Retry, Task, WorkQueue
from tenure.testing import cancellable, newcomer

RETRY = Retry(attempts=2, backoff=0.05, jitter=0)


@contextmanager
def on_all(work, tasks):
    """Note that somebody is at work on all of them."""
    with ExitStack() as stack:
        for task in tasks:
            stack.enter_context(work.on(task))
        yield


@on_every_engine("shared.BatchWorker.run", "shared.BatchWorker.drain")
async def batches_of_a_cancelled_worker_go_to_others(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, work = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), Work()
        names = list("abcdefgh")

        async def handle(tasks: list[Task]):
            assert 1 <= len(tasks) <= 3
            with on_all(work, tasks):
                assert {task.attempt for task in tasks} == {1}
                await pause()
            for task in tasks:
                task.set_result(task.payload)

        options = {"size": 3, "concurrency": 2}
        workers = [
            BatchWorker(queue, handle, linger=0.02, **options),
            BatchWorker(other, handle, **options),
        ]
        dying = BatchWorker(queue, handle, linger=0.02, prefetch=2, **options)

        async def victim():
            with cancellable():
                await dying.run()

        async with world.group() as group:
            group.start_soon(victim)
            for worker in workers:
                group.start_soon(worker.run)
            ids = await queue.put_many(names[:5])
            await pause()
            ids += await queue.put_many(names[5:])
            await queue.join()
            for worker in [*workers, dying]:
                group.start_soon(worker.drain)
        assert set(work.done) == set(names)
        assert [await queue.result(i) for i in ids] == names
        states = [worker.statistics() for worker in [*workers, dying]]
        assert sum(state.done for state in states) == 8 and all(state.busy == 0 for state in states)
        await all_is_done(queue, store, elsewhere, done=8, put=8)


@on_every_engine("shared.Worker.run", "shared.WorkQueue.cancel")
async def each_task_of_a_batch_ends_in_its_own_way(world):
    async with world.open() as store:
        queue = WorkQueue(store, "q", retry=RETRY)
        tries = []

        async def handle(tasks: list[Task]):
            tries.extend((task.payload, task.attempt) for task in tasks)
            for task in tasks:
                if task.payload == "fails":
                    task.fail(KeyError("no"))
                elif task.payload == "cancelled":
                    assert await queue.cancel(task.id)
            with cancellable():
                await pause()

        worker = BatchWorker(queue, handle, size=3, linger=0.01, concurrency=2)

        async def canceller():
            await queue.cancel(ids[-1])  # False if the answer was lost

        async with world.group() as group:
            ids = await queue.put_many(["done", "fails", "cancelled", "done", "early"])
            group.start_soon(canceller)
            group.start_soon(worker.run)
            await queue.join()
            await worker.drain()
        state, counted = worker.statistics(), await queue.statistics()
        assert (state.dead, state.retried, state.given_back, state.lost) == (1, 1, 0, 0)
        assert sorted(one for one in tries if one[0] != "early") == [
            ("cancelled", 1),
            ("done", 1),
            ("done", 1),
            ("fails", 1),
            ("fails", 2),
        ]
        assert counted.done + counted.cancelled == 4 and counted.cancelled in (1, 2)
        await all_is_done(queue, store, dead=1)


@on_every_engine("shared.BatchWorker.run", "shared.BatchWorker.drain", "shared.WorkQueue.take")
async def nobody_waits_behind_a_batch_that_has_begun(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, work = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), Work()
        handling, taken = anyio.Event(), anyio.Event()

        async def handle(tasks: list[Task]):
            with on_all(work, tasks):
                handling.set()
                with anyio.move_on_after(world.patience):
                    await taken.wait()

        drained = BatchWorker(queue, handle, size=5, linger=0.02, concurrency=1)

        async def taker():
            await do_one(other, work)
            taken.set()

        async def victim():
            with cancellable():
                await do_one(queue, work)

        async def stopper(arrival=anyio.lowlevel.checkpoint):
            await taken.wait()
            await arrival()
            await drained.drain()

        async with world.group() as group:
            group.start_soon(drained.run)
            await queue.put("a")
            await handling.wait()
            group.start_soon(victim)
            group.start_soon(taker)
            group.start_soon(stopper, newcomer)
            await queue.put("b")
            await queue.put("c")
            await stopper()
        await do_the_rest(other, work, world.patience)
        assert set(work.done) == set("abc")
        await all_is_done(queue, store, elsewhere, done=3, put=3)


@on_a_wire("shared.Worker.run", "shared.WorkQueue.take")
async def no_task_is_kept_for_a_batch_that_has_begun(world):
    """A process that cannot be reached while it handles a batch would delay what is offered to it."""
    async with world.open() as store, world.open() as elsewhere:
        link, queue, other, work = world.links[0], WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), Work()
        handling, over = anyio.Event(), anyio.Event()

        async def handle(tasks: list[Task]):
            with on_all(work, tasks):
                handling.set()
                await over.wait()

        worker = BatchWorker(queue, handle, size=5, linger=0.02, concurrency=1)

        async def taker():
            await do_one(other, work)

        async def victim():
            with cancellable():
                await do_one(other, work)

        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await other.put("a")
            await handling.wait()
            await anyio.sleep(1)
            link.pause()
            async with world.group() as served:
                served.start_soon(taker)
                served.start_soon(victim)
                await anyio.sleep(1)
                await other.put_many(list("bc"))
            link.resume()
            over.set()
            await worker.drain()
        await do_the_rest(other, work, world.patience)
        assert set(work.done) == set("abc")
        await all_is_done(queue, store, elsewhere, done=3, put=3)


@on_a_wire("shared.Worker.run", "shared.WorkQueue.put_many")
async def a_batch_that_was_lost_is_done_by_another(world):
    async with world.open() as store, world.open() as elsewhere:
        link, work = world.links[0], Work()
        queue, other = WorkQueue(store, "q"), WorkQueue(elsewhere, "q")
        ends = []

        async def handle(tasks: list[Task]):
            with on_all(work, tasks):
                try:
                    await anyio.sleep(100 if not ends else 0.01)
                finally:
                    ends.append([task.lost for task in tasks])

        loser = BatchWorker(queue, handle, size=4, linger=2, concurrency=1)
        winner = BatchWorker(other, handle, size=2, concurrency=1)

        async def victim():
            with cancellable():
                await loser.run()

        async with anyio.create_task_group() as group:
            await other.put_many(list("abcdef"))
            group.start_soon(victim)
            await anyio.sleep(1)
            link.pause()
            group.start_soon(winner.run)
            await anyio.sleep(AWAY)
            link.resume()
            await other.join()
            await loser.drain()
            await winner.drain()
        assert sorted(set(work.done)) == list("abcdef")
        assert all(len(set(reasons)) == 1 for reasons in ends)  # all of a batch, or none
        await all_is_done(other, store, elsewhere, done=6, put=6)
