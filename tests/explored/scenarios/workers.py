"""Workers: many tasks, each of them done once on record."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
from explored.catalogue import on_every_engine
from explored.scenarios.queues import all_is_done
from explored.scenarios.takers import Work, do_one, do_the_rest
from explored.world import block, pause

from tenure import (
    Discard,
    LeaseLost,
    Lock,
    ResourcePool,
    Retry,
    RetryLater,
    Task,
    TaskCancelled,
    Worker,
    WorkQueue,
)
from tenure.testing import cancellable, newcomer
from tenure.types import Claim


@on_every_engine("shared.Worker.run", "shared.Worker.drain")
async def tasks_of_a_cancelled_worker_go_to_others(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, work = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), Work()
        names = list("abcdefgh")

        async def handle(task: Task):
            with work.on(task):
                assert task.attempt == 1
                await pause()
            return task.payload

        workers = [Worker(queue, handle, concurrency=2), Worker(other, handle, concurrency=2)]
        dying = Worker(queue, handle, concurrency=2)

        async def victim():
            with cancellable():
                await dying.run()

        async with world.group() as group:
            group.start_soon(victim)
            for worker in workers:
                group.start_soon(worker.run)
            ids = await queue.put_many(names)
            await queue.join()
            for worker in [*workers, dying]:
                group.start_soon(worker.drain)
        assert set(work.done) == set(names)
        assert [await queue.result(i) for i in ids] == names
        done = sum(worker.statistics().done for worker in [*workers, dying])
        assert done == 8 and all(worker.statistics().busy == 0 for worker in [*workers, dying])
        await all_is_done(queue, store, elsewhere, done=8, put=8)


@on_every_engine("shared.Worker.run", "shared.Worker.drain", "shared.ResourcePool.claim")
async def managers_of_a_cancelled_worker_are_left(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, work = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), Work()
        keys, open_sessions = ResourcePool(store, "keys"), set()

        @asynccontextmanager
        async def session(task: Task):
            await pause()
            open_sessions.add(task.token)
            try:
                yield task.token
            finally:
                open_sessions.remove(task.token)

        async def handle(task: Task, claim: Claim, token: int):
            assert token in open_sessions and task.attempt == 1
            claim.check()
            with work.on(task):
                await pause()

        def worker(store, queue):
            pool = ResourcePool(store, "keys")
            return Worker(queue, handle, concurrency=2, around=[lambda task: pool.claim(), session])

        dying, living = worker(store, queue), worker(elsewhere, other)

        async def victim():
            with cancellable():
                await dying.run()

        await keys.add("a")
        await keys.add("b")
        async with world.group() as group:
            group.start_soon(victim)
            group.start_soon(living.run)
            await queue.put_many(list("abcde"))
            await queue.join()
            for each in (dying, living):
                group.start_soon(each.drain)
        assert set(work.done) == set("abcde") and open_sessions == set()
        counts = await keys.statistics()
        assert (counts.claimed, counts.waiting) == (0, 0)
        await all_is_done(queue, store, elsewhere, done=5, put=5)


@on_every_engine("shared.Worker.drain", "shared.Worker.run")
async def a_worker_drains_whoever_gives_up_waiting(world):
    async with world.open() as store:
        queue, work = WorkQueue(store, "q"), Work()
        ended = []

        async def handle(task: Task):
            with work.on(task):
                await pause()

        worker = Worker(queue, handle, concurrency=2)

        async def run():
            await worker.run()
            ended.append("run")

        async def victim():
            with cancellable():
                await worker.drain()

        async def drainer(arrival=anyio.lowlevel.checkpoint):
            await arrival()
            await worker.drain()
            assert (await queue.statistics()).leased == 0
            ended.append("drained")

        async with world.group() as group:
            await queue.put_many(range(6))
            group.start_soon(run)
            await pause()
            await pause()
            group.start_soon(victim)
            group.start_soon(drainer)
            group.start_soon(drainer, newcomer)
        assert sorted(ended) == ["drained", "drained", "run"] and worker.statistics().busy == 0
        await worker.drain()
        await queue.purge("waiting")  # it may count fewer than it deleted, if its answer was lost
        assert sorted(work.done) == sorted(set(work.done))
        if work.done:  # a queue of which nothing is on record is forgotten
            await all_is_done(queue, store, done=len(work.done), purged=6 - len(work.done))


@on_every_engine("shared.Worker.run")
async def handlers_end_in_every_way(world):
    async with world.open() as store:
        queue = WorkQueue(store, "q", retry=Retry(attempts=2, backoff=0.05, jitter=0))
        tries = []

        async def handle(task: Task):
            tries.append((task.payload, task.attempt))
            match task.payload:
                case "done":
                    with cancellable():
                        await task.progress(1)
                    return 1
                case "fails":
                    raise KeyError
                case "later" if tries.count(("later", 1)) == 1:
                    raise RetryLater(0.1, counts=False)
                case "discard":
                    raise Discard("no")
                case "slow":
                    await anyio.sleep(1000)
                case "cancelled":
                    assert await queue.cancel(task.id)
                    await anyio.sleep_forever()
            return None

        worker = Worker(queue, handle, concurrency=3, timeout=60)
        names = ["done", "fails", "later", "discard", "slow", "cancelled"]

        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await queue.put_many(names)
            await queue.join()
            await worker.drain()
        again = [("fails", 2), ("later", 1), ("slow", 2)]
        assert sorted(tries) == sorted([*((n, 1) for n in names), *again])
        state = worker.statistics()
        assert (state.done, state.dead, state.discarded, state.cancelled) == (2, 2, 1, 1)
        assert (state.retried, state.postponed, state.given_back, state.lost) == (2, 1, 0, 0)
        await all_is_done(queue, store, done=2, dead=2, discarded=1, cancelled=1)


@on_every_engine("shared.Worker.run", "shared.Worker.drain")
async def each_dead_letter_is_told_of_once(world):
    async with world.open() as store, world.open() as elsewhere:
        options = {"retry": Retry(attempts=1)}
        queue, other = WorkQueue(store, "q", **options), WorkQueue(elsewhere, "q", **options)
        told, names = [], list("abcdef")

        async def fail(payload):
            await pause()
            raise KeyError(payload)

        async def tell(task: Task):
            await pause()
            told.append((task.id, task.payload.payload))

        workers = [Worker(each, fail, concurrency=2, on_dead=tell) for each in (queue, other)]
        dying = Worker(other, fail, concurrency=2, on_dead=tell)

        async def victim():
            with cancellable():
                await dying.run()

        async with world.group() as group:
            group.start_soon(victim)
            for worker in workers:
                group.start_soon(worker.run)
            await queue.put_many(names)
            await queue.join()
            while len(set(told)) < len(names):
                await anyio.sleep(1)
            for worker in [*workers, dying]:
                group.start_soon(worker.drain)
        assert sorted(name for _, name in set(told)) == names
        assert (await WorkQueue(store, "q.dead").statistics()).put == len(names)
        await all_is_done(queue, store, elsewhere, dead=len(names), put=len(names))


@on_every_engine("shared.Worker.run")
async def the_time_limit_is_for_each_task_anew(world):
    async with world.open() as store:
        queue, tries = WorkQueue(store, "q"), []

        async def handle(task: Task):
            tries.append(task.payload)
            await anyio.sleep(6)

        worker = Worker(queue, handle, timeout=10, concurrency=1)

        async def victim():
            with cancellable():
                await queue.join()

        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            group.start_soon(victim)
            await queue.put_many(["a", "b"])
            await queue.join()
            await anyio.sleep(15)
            await queue.put("c")
            await queue.join()
            await worker.drain()
        assert tries == ["a", "b", "c"]
        await all_is_done(queue, store, done=3)


@on_every_engine("shared.Worker.run", "shared.Worker.drain", "shared.WorkQueue.take")
async def what_is_fetched_ahead_is_done_or_given_back(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, work = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), Work()

        async def handle(task: Task):
            with work.on(task):
                assert task.attempt == 1
                await pause()

        drained, dying = (Worker(queue, handle, concurrency=1, prefetch=2) for _ in range(2))

        async def victim():
            with cancellable():
                await dying.run()

        async def taker():
            with cancellable(), suppress(TaskCancelled):
                await do_one(queue, work)

        async def stopper(arrival=anyio.lowlevel.checkpoint):
            await arrival()
            await queue.cancel(ids[7])
            await drained.drain()

        ids = await queue.put_many(range(10))
        async with world.group() as group:
            group.start_soon(victim)
            group.start_soon(drained.run)
            await anyio.sleep(0.025)
            group.start_soon(taker)
            group.start_soon(stopper, newcomer)
            await pause()
            await stopper()
            await dying.drain()
        await do_the_rest(other, work, world.patience)
        assert {*work.done} | {7} == {*range(10)}
        cancelled = (await queue.statistics()).cancelled
        assert cancelled <= 1
        await all_is_done(queue, store, elsewhere, done=10 - cancelled, put=10)


@on_every_engine("shared.Worker.run", "shared.Worker.drain", "shared.WorkQueue.take", "shared.Lock.hold")
async def nothing_begins_behind_a_handler_that_blocks(world):
    async with world.open() as store:
        queue, lock, begun, stale = WorkQueue(store, "q"), Lock(store, "x"), [], []

        def begin(held):
            try:
                held.check()
            except LeaseLost as lost:
                stale.append(lost)

        async def handle(task: Task):
            begin(task)
            begun.append(task.payload)
            assert task.attempt == 1
            if len(begun) in {1, 4}:
                block(40)
            await pause()

        async def victim():
            with cancellable(), suppress(LeaseLost):
                async with queue.take() as task:
                    await handle(task)

        async def holder():
            with suppress(LeaseLost):
                async with lock.hold() as lease:
                    begin(lease)
                    await pause()

        worker = Worker(queue, handle, concurrency=3, prefetch=2)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            group.start_soon(victim)
            group.start_soon(holder)
            await queue.put_many(range(6))
            group.start_soon(holder)
            await queue.join()
            await worker.drain()
            group.cancel_scope.cancel()
        assert not stale
        await all_is_done(queue, store, done=6)
