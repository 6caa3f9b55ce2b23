"""Following a task, and taking a lock from a holder that is stuck."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import anyio
import anyio.lowlevel
from explored.catalogue import on_every_engine
from explored.scenarios.holds import nothing_is_held
from explored.scenarios.queues import all_is_done
from explored.world import pause
from family import bear

from tenure import AcquireTimeout, LeaseLost, Lock, Retry, RWLock, Semaphore, WorkQueue
from tenure.engine import Hint, Notice
from tenure.testing import cancellable, newcomer

REPORTS = 3


@on_every_engine(
    "shared.TaskChanges.__aenter__",
    "shared.TaskChanges.__aexit__",
    "shared.TaskChanges.__anext__",
    "shared.WorkQueue.follow",
    "shared.WorkQueue.get",
    "shared.WorkQueue.reschedule",
)
async def each_follower_sees_the_last_report_and_the_end(world):
    retry = Retry(attempts=2, backoff=0.0, jitter=0.0)
    async with world.open() as store, world.open() as elsewhere:
        queue, other = WorkQueue(store, "q"), WorkQueue(elsewhere, "q", retry=retry)
        task_id, ends = await queue.put("work", delay=100.0), []

        async def follower(queue, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            seen = []
            async with queue.follow(task_id) as changes:
                async for record in changes:
                    seen.append((record.attempts, record.progress or 0, record.ended))
            assert seen == sorted(seen), "a follower saw something older after something newer"
            assert len(set(seen)) >= len(seen) - 4, "a follower saw the same again"
            ends.append((record.state, record.progress))

        async def victim():
            with cancellable():
                await follower(queue)

        async def worker():
            await pause()
            await other.reschedule(task_id)
            for attempt in range(2):
                try:
                    async with other.take() as task:
                        for step in range(1, REPORTS + 1):
                            await task.progress(10 * attempt + step)
                        if attempt == 0:
                            raise ValueError("the first try fails")
                except ValueError:
                    pass

        async with world.group() as group:
            group.start_soon(follower, queue)
            group.start_soon(follower, other)
            group.start_soon(victim)
            group.start_soon(follower, queue, newcomer)
            group.start_soon(worker)
        assert [end for end in ends if end != ("done", 10 + REPORTS)] == []
        assert len(ends) >= 3
        record = await queue.get(task_id)
        assert record is not None
        assert (record.state, record.progress, record.attempts) == ("done", 10 + REPORTS, 1)
        assert record.error is None
        assert "ValueError: the first try fails" in record.traceback
        await all_is_done(queue, store, elsewhere, done=1)


@on_every_engine("shared.WorkQueue.get", "shared.WorkQueue.follow")
async def a_follower_sees_children_end_before_their_parent(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, pages, other = WorkQueue(store, "q"), WorkQueue(elsewhere, "pages"), WorkQueue(elsewhere, "q")
        task_id, ends = await queue.put("root"), []

        async def taker(queue, work):
            with suppress(AcquireTimeout):
                while True:
                    async with queue.take(world.patience) as task:
                        await work(task)

        async def follower():
            left = 2
            async with other.follow(task_id) as changes:
                async for record in changes:
                    assert record.children <= left or record.state == "leased", "children come back"
                    assert record.unfinished_child is None or record.children
                    left = record.children if record.state == "suspended" else left
            ends.append((record.state, record.children))

        async def victim():
            for call in (other.children(task_id).page, partial(other.get, task_id), follower):
                with cancellable():
                    await call()

        async with world.group() as group:
            group.start_soon(taker, queue, lambda task: bear(queue, task, pages, "a", "b"))
            group.start_soon(taker, pages, lambda _: anyio.lowlevel.checkpoint())
            group.start_soon(follower)
            group.start_soon(victim)
        assert set(ends) == {("done", 0)}
        await all_is_done(queue, store, done=1, put=1)
        await all_is_done(pages, elsewhere, done=2, put=2)


@on_every_engine("shared.Lock.break_holder")
async def a_stuck_holder_of_a_lock_is_broken(world):
    async with world.open() as store, world.open() as elsewhere:
        lock, other = Lock(store, "x"), Lock(elsewhere, "x")
        await _break_a_holder(world, lock, lock.hold, other, other.hold, store, elsewhere)


@on_every_engine("shared.Semaphore.break_holder")
async def a_stuck_holder_of_all_permits_is_broken(world):
    async with world.open() as store, world.open() as elsewhere:
        semaphore, other = Semaphore(store, "x", 2), Semaphore(elsewhere, "x", 2)
        hold = partial(semaphore.hold, 2)
        await _break_a_holder(world, semaphore, hold, other, partial(other.hold, 2), store, elsewhere)


@on_every_engine("shared.RWLock.break_holder")
async def a_stuck_writer_is_broken(world):
    async with world.open() as store, world.open() as elsewhere:
        lock, other = RWLock(store, "x"), RWLock(elsewhere, "x")
        await _break_a_holder(world, lock, lock.write, other, other.read, store, elsewhere)


async def _break_a_holder(world, thing, hold, other, hold_elsewhere, store, elsewhere):
    inside, lost, later = anyio.Event(), [], []

    async def stuck():
        try:
            async with hold() as lease:
                inside.set()
                await anyio.sleep_forever()
        except LeaseLost as error:
            lost.append((lease.token, error.reason))

    async def operator():
        await inside.wait()
        (holder,) = (await other.holders().page()).records
        await other.break_holder(holder.token)
        assert not await other.break_holder(holder.token)
        if world.faults:  # engines lose hints with a connection, and say so when it is back
            store._handle.on_hint(Hint(store.process, "", "", Notice.MISSED))

    async def waiter():
        await inside.wait()
        async with hold_elsewhere() as lease:
            later.append(lease.token)
            await pause()

    async def victim():
        await inside.wait()
        with cancellable():
            await waiter()

    async with world.group() as group:
        group.start_soon(stuck)
        group.start_soon(operator)
        group.start_soon(waiter)
        group.start_soon(victim)
    ((token, reason),) = lost
    assert reason in ("broken", "gone")
    assert min(later) > token
    await nothing_is_held(thing, hold, store, elsewhere)
