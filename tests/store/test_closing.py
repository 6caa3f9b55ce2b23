"""Whatever waits is woken when its store closes: no public wait of `shared` and `processor` outlasts it."""

from __future__ import annotations

import inspect
from functools import partial

import anyio
import pytest

import tenure
from tenure import (
    Barrier,
    Election,
    Job,
    LeaseLost,
    Limit,
    Lock,
    Processor,
    QueueFigures,
    RateLimiter,
    ResourcePool,
    RWLock,
    Schedule,
    Semaphore,
    StoreClosed,
    Worker,
    WorkQueue,
    processor,
    shared,
)
from tenure.engines.memory import MemoryEngine
from tenure.processor import Context
from tenure.testing import FaultyEngine


async def enter(manager):
    async with manager:
        pytest.fail("entered")


async def rest(*_):
    await anyio.sleep_forever()


async def limited(limiter, scope):
    with scope:
        await limiter.acquire()
    pytest.fail("acquired, or given up")


async def watch(election):
    async with election.watch() as changes:
        async for _ in changes:
            pass


async def work(store, **options):
    queue = WorkQueue(store, "work")
    await queue.put(1)
    await Worker(queue, rest, **options).run()


async def drain(store):
    worker = Worker(WorkQueue(store, "draining"), rest)
    await WorkQueue(store, "draining").put(1)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await anyio.sleep(1)
        await worker.drain()


async def process(store, use, handle=rest, **options):
    async with Processor(store, "process", handle, **options) as running:
        await use(running)


async def join(running):
    await running.submit(1)
    await running.join()


async def submit_too_many(running):
    await running.queue().configure(max_size=20)
    for n in range(30):
        await running.submit(n)


async def submit_many(running):
    await running.queue().configure(max_size=20)
    await running.submit_many(range(30))


async def drain_processor(running):
    await running.submit(1)
    await anyio.sleep(1)
    await running.drain()


async def watch_processor(running):
    async for _ in running.monitor(every=1):
        pass


async def lock_in_context(task: tenure.Task, context: Context):
    async with context.lock("held"):
        pytest.fail("locked")


async def fill(store):
    """Another process has all that there is."""
    await WorkQueue(store, "jobs").put(1, delay=10**6)  # the first task of the engine: 1
    await WorkQueue(store, "full", max_size=1).put(1)
    await ResourcePool(store, "pool").add("r")


async def have_everything(store, *, task_status):
    async with (
        Lock(store, "held"),
        Semaphore(store, "held", 2).hold(2),
        RWLock(store, "held").write(),
        Election(store, "held", node="other").term(),
        ResourcePool(store, "pool").claim(),
    ):
        task_status.started()
        await anyio.sleep_forever()


async def follow(queue):
    async with queue.follow(1) as changes:
        async for _ in changes:
            pass


def waits(store):
    """By the name of the method that waits, or two of them with a word behind."""
    slow = RateLimiter(store, "slow", Limit(0.001))
    full, jobs = WorkQueue(store, "full", max_size=1), WorkQueue(store, "jobs")
    pool = ResourcePool(store, "pool")
    process_here = partial(process, store)
    return {
        "Lock.__aenter__": lambda: enter(Lock(store, "held")),
        "Lock.hold": lambda: enter(Lock(store, "held").hold()),
        "Lock.hold, bounded": lambda: enter(Lock(store, "held").hold(10**6)),
        "Semaphore.__aenter__": lambda: enter(Semaphore(store, "held", 2)),
        "Semaphore.hold": lambda: enter(Semaphore(store, "held", 2).hold()),
        "RWLock.read": lambda: enter(RWLock(store, "held").read()),
        "RWLock.write": lambda: enter(RWLock(store, "held").write()),
        "Election.term": lambda: enter(Election(store, "held").term()),
        "Election.lead": lambda: Election(store, "held").lead(rest),
        "Election.lead, leading": lambda: Election(store, "mine").lead(rest),
        "LeaderChanges.__anext__": lambda: watch(Election(store, "held")),
        "Barrier.wait": Barrier(store, "break", 2).wait,
        "Barrier.wait, drop": Barrier(store, "drop", 2, on_departure="drop").wait,
        "RateLimiter.acquire": lambda: limited(slow, anyio.CancelScope()),
        "RateLimiter.acquire, beyond its deadline": lambda: limited(slow, anyio.move_on_after(900)),
        "RateLimiter.__aenter__": lambda: enter(slow),
        "RateLimiter.spend": lambda: enter(slow.spend()),
        "ResourcePool.claim": lambda: enter(pool.claim()),
        "WorkQueue.put": lambda: full.put(2),
        "Job.put": lambda: Job(full, rest).put(2),
        "Job.result": lambda: Job(jobs, rest).result(1),
        "WorkQueue.put_many": lambda: full.put_many([2, 3]),
        "WorkQueue.take": lambda: enter(WorkQueue(store, "empty").take()),
        "WorkQueue.take, bounded": lambda: enter(WorkQueue(store, "empty").take(10**6)),
        "WorkQueue.result": lambda: jobs.result(1),
        "TaskChanges.__anext__": lambda: follow(jobs),
        "WorkQueue.join": jobs.join,
        "QueueFigures.run": QueueFigures(store).run,
        "Schedules.run": jobs.schedules.run,
        "Schedule.run": Schedule(jobs, "daily", every=86_400).run,
        "Schedule.run, putting": Schedule(full, "often", every=50).run,
        "Schedule.run_now": Schedule(full, "now", every=50).run_now,
        "Worker.run": lambda: work(store),
        "Worker.run, ahead": lambda: work(store, prefetch=5),
        "Worker.drain": lambda: drain(store),
        "Processor.join": lambda: process_here(join),
        "Processor.run": lambda: Processor(store, "process", rest).run(),
        "Processor.submit": lambda: process_here(submit_too_many, workers=1),
        "Processor.submit_many": lambda: process_here(submit_many, workers=1),
        "Processor.drain": lambda: process_here(drain_processor),
        "Processor.join, waiting for a claim": lambda: process_here(join, claims=pool),
        "Context.lock": lambda: process_here(join, lock_in_context),
        "Monitor.__anext__": lambda: process_here(watch_processor),
    }


# one round trip each, which ends as `store._handle.call` does
ASKS = {
    *(
        "Barrier.abort",
        "Barrier.reset",
        "Barrier.statistics",
        "Claim.cool_down",
        "Claim.retire",
        "Claim.set_metadata",
    ),
    *("Election.leader", "Listing.page", "Lock.locked", "Semaphore.resize"),
    *("Lock.break_holder", "RWLock.break_holder", "Semaphore.break_holder"),
    *("RateLimiter.try_acquire", "RateLimiter.state", "RateLimiter.hold_off", "WorkQueue.hold_off"),
    *("ResourcePool.add", "ResourcePool.remove"),
    *(
        "ResourcePool.statistics",
        "Task.progress",
        "Task.step",
        "Task.at_end",
        "Task.keep",
        "WorkQueue.get",
        "WorkQueue.reschedule",
        "WorkQueue.cancel",
        "WorkQueue.cursors",
    ),
    # they ask the database of the user's own connection
    *("SqlGuard.enforce", "Task.complete_in", "WorkQueue.complete_in", "WorkQueue.put_in"),
    "Job.try_put",
    *("Children.put", "Children.put_many", "WorkQueue.signal"),
    *("Task.wait_for", "Task.undo"),  # they interrupt the handler, and wait in no process
    *(
        "Schedule.drain",
        "Schedule.next",
        "Schedules.run_now",
        "WorkQueue.configure",
        "WorkQueue.settings",
    ),
    *("WorkQueue.pause", "WorkQueue.purge", "WorkQueue.requeue", "WorkQueue.resume"),
    *(
        "QueueFigures.drain",
        "QueueFigures.statistics",
        "Schedules.drain",
        "Schedules.pause",
    ),
    *(
        "Schedules.remove",
        "Schedules.next",
        "Schedules.resume",
        "Schedules.set",
        "WorkQueue.edit",
    ),
    *("WorkQueue.statistics", "WorkQueue.try_put", "WorkQueue.verify", "Processor.fleet"),
}


def test_every_public_wait_is_here():
    known = {name.partition(",")[0] for name in waits(tenure.open_store("memory:"))} | ASKS
    public = {
        f"{thing.__name__}.{name}"
        for room in (shared, processor)
        for thing in (getattr(room, each) for each in room.__all__)
        if inspect.isclass(thing)
        for name, member in vars(thing).items()
        if inspect.iscoroutinefunction(member) and not name.startswith("_")
    }
    assert public - known == set()


@pytest.mark.parametrize("make", [MemoryEngine, lambda: FaultyEngine(MemoryEngine())], ids=["memory", "wire"])
@pytest.mark.parametrize("name", waits(tenure.open_store("memory:")))
async def test_it_ends_with_its_store(make, name, virtual_clock):
    engine, ended = make(), []

    async def wait(store):
        try:
            await waits(store)[name]()
        except* (StoreClosed, LeaseLost):
            pass
        ended.append(virtual_clock.now())

    async with tenure.open_store(engine) as other, anyio.create_task_group() as group:
        await fill(other)
        await group.start(have_everything, other)
        await RateLimiter(other, "slow", Limit(0.001)).try_acquire()
        async with tenure.open_store(engine) as store:
            group.start_soon(wait, store)
            await virtual_clock.advance(100)
            assert ended == []
        await virtual_clock.settle()
        assert ended == [virtual_clock.now()] == [100]
        group.cancel_scope.cancel()
