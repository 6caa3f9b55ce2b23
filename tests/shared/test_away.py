"""While the store is away, a call that waits for nothing but an answer says so in time, and leaves nothing."""

from __future__ import annotations

import contextlib

import anyio
import pytest
from explored.catalogue import public_coroutines, scenarios

import tenure
from tenure import StoreUnavailable

TIMEOUT = 5.0
"""The response_timeout of an engine without a server."""


def lock(store):
    return tenure.Lock(store, "x")


def semaphore(store):
    return tenure.Semaphore(store, "x", 2)


def rwlock(store):
    return tenure.RWLock(store, "x")


def limiter(store):
    return tenure.RateLimiter(store, "x", tenure.Limit(1))


def barrier(store):
    return tenure.Barrier(store, "x", 2)


def pool(store):
    return tenure.ResourcePool(store, "x")


def queue(store):
    return tenure.WorkQueue(store, "x")


def schedules(store):
    return queue(store).schedules


def job(store):
    return tenure.Job(queue(store), nothing)


async def nothing():
    """The handler of a job."""


GROUP = tenure.Selection(group="g")
CALLS = {
    "shared.Barrier.abort": lambda store: barrier(store).abort(),
    "shared.Barrier.reset": lambda store: barrier(store).reset(),
    "shared.Barrier.statistics": lambda store: barrier(store).statistics(),
    "shared.Election.leader": lambda store: tenure.Election(store, "x").leader(),
    "shared.Job.try_put": lambda store: job(store).try_put(),
    "shared.Lock.break_holder": lambda store: lock(store).break_holder(1),
    "shared.Listing.page": lambda store: queue(store).tasks().page(),
    "shared.Listing.page, children": lambda store: queue(store).children(1).page(),
    "shared.Listing.page, groups": lambda store: queue(store).groups().page(),
    "shared.Listing.page, holders": lambda store: lock(store).holders().page(),
    "shared.Listing.page, resources": lambda store: pool(store).resources().page(),
    "shared.Listing.page, schedules": lambda store: schedules(store).list().page(),
    "shared.Listing.page, selected": lambda store: queue(store).tasks("dead", where=GROUP).page(),
    "shared.Listing.page, workers": lambda store: queue(store).workers().page(),
    "shared.Lock.locked": lambda store: lock(store).locked(),
    "shared.QueueFigures.statistics": lambda store: tenure.shared.QueueFigures(store).statistics(),
    "shared.RWLock.break_holder": lambda store: rwlock(store).break_holder(1),
    "shared.RateLimiter.acquire, fail_fast": lambda store: limiter(store).acquire(fail_fast=True),
    "shared.RateLimiter.hold_off": lambda store: limiter(store).hold_off(1),
    "shared.RateLimiter.state": lambda store: limiter(store).state(),
    "shared.RateLimiter.spend, fail_fast": lambda store: limiter(store).spend(fail_fast=True).__aenter__(),
    "shared.RateLimiter.try_acquire": lambda store: limiter(store).try_acquire(),
    "shared.ResourcePool.add": lambda store: pool(store).add("a"),
    "shared.ResourcePool.remove": lambda store: pool(store).remove("a"),
    "shared.ResourcePool.statistics": lambda store: pool(store).statistics(),
    "shared.Schedule.next": lambda store: tenure.Schedule(queue(store), "tick", every=1, payload=1).next(),
    "shared.Schedules.next": lambda store: schedules(store).next("tick"),
    "shared.Schedules.pause": lambda store: schedules(store).pause("tick"),
    "shared.Schedules.remove": lambda store: schedules(store).remove("tick"),
    "shared.Schedules.resume": lambda store: schedules(store).resume("tick"),
    "shared.Schedules.set": lambda store: schedules(store).set("tick", every=1),
    "shared.Semaphore.break_holder": lambda store: semaphore(store).break_holder(1),
    "shared.Semaphore.resize": lambda store: semaphore(store).resize(3),
    "shared.WorkQueue.cancel": lambda store: queue(store).cancel(1),
    "shared.WorkQueue.cancel, selected": lambda store: queue(store).cancel(
        state="waiting", where=tenure.Selection(group="g")
    ),
    "shared.WorkQueue.cursors": lambda store: queue(store).cursors(),
    "shared.WorkQueue.edit": lambda store: queue(store).edit(1, priority=1),
    "shared.WorkQueue.get": lambda store: queue(store).get(1),
    "shared.WorkQueue.hold_off": lambda store: queue(store).hold_off(1),
    "shared.WorkQueue.pause": lambda store: queue(store).pause(),
    "shared.WorkQueue.purge": lambda store: queue(store).purge("dead"),
    "shared.WorkQueue.requeue": lambda store: queue(store).requeue([1]),
    "shared.WorkQueue.reschedule": lambda store: queue(store).reschedule(1),
    "shared.WorkQueue.resume": lambda store: queue(store).resume(),
    "shared.WorkQueue.configure": lambda store: queue(store).configure(groups=tenure.Groups(limit=1)),
    "shared.WorkQueue.settings": lambda store: queue(store).settings(),
    "shared.WorkQueue.signal": lambda store: queue(store).signal(1, "go"),
    "shared.WorkQueue.statistics": lambda store: queue(store).statistics(),
    "shared.WorkQueue.try_put": lambda store: queue(store).try_put(1),
    "shared.WorkQueue.verify": lambda store: queue(store).verify(),
    "store.Store.ping": lambda store: store.ping(),
}
"""The calls that wait for nothing but an answer, by their names among the public coroutines."""

WAITS = {
    # a turn, room, a task, a result, a change, or the others: waiting is what the call is for
    *("shared.Barrier.wait", "shared.Election.lead", "shared.Job.put", "shared.Job.result"),
    *(
        "shared.WorkQueue.join",
        "shared.WorkQueue.put",
        "shared.WorkQueue.put_many",
        "shared.WorkQueue.result",
    ),
    *("shared.RateLimiter.acquire", "shared.RateLimiter.spend"),  # without fail_fast
    *("shared.LeaderChanges.__anext__", "shared.TaskChanges.__anext__"),
    # puts a task, as `put` does
    *("shared.Schedule.run_now", "shared.Schedules.run_now"),
    # blocks that are entered and left: they take `timeout=`, or a scope of the caller's ends the wait
    *(
        "shared.Election.term",
        "shared.Election.watch",
        "shared.Lock.hold",
        "shared.RWLock.read",
        "shared.RWLock.write",
    ),
    *(
        "shared.ResourcePool.claim",
        "shared.Semaphore.hold",
        "shared.WorkQueue.follow",
        "shared.WorkQueue.take",
    ),
    *(
        f"shared.{name}.__a{way}__"
        for name in ("Hold", "Lock", "RateLimiter", "Semaphore")
        for way in ("enter", "exit")
    ),
    *(f"shared.{name}.__a{way}__" for name in ("LeaderChanges", "TaskChanges") for way in ("enter", "exit")),
    # run until they are cancelled
    *(
        f"shared.{name}.{way}"
        for name in ("BatchWorker", "QueueFigures", "Schedule", "Schedules", "Worker")
        for way in ("run", "drain")
    ),
    # within a lease, whose loss ends the wait
    *(
        "shared.Children.__aenter__",
        "shared.Children.__aexit__",
        "shared.Children.ended",
        "shared.Children.put",
        "shared.Children.put_many",
    ),
    *("shared.Claim.cool_down", "shared.Claim.retire", "shared.Claim.set_metadata"),
    *("shared.Task.children", "shared.Task.progress", "shared.Task.step", "shared.Task.wait_for"),
    *("shared.Task.at_end", "shared.Task.keep", "shared.Task.undo"),
    # asks no engine
    "store.Store.statistics",
}


def test_each_public_call_waits_or_does_not():
    scenarios()
    public = {name for name in public_coroutines() if name.startswith(("shared.", "store.Store."))}
    public -= {"store.Store.__asynccontextmanager__"}
    here = {name.partition(",")[0] for name in CALLS}
    assert here | WAITS == public


@pytest.mark.parametrize("session", ["open", "none"])
@pytest.mark.parametrize("how", ["silent", "down"])
@pytest.mark.parametrize("name", CALLS)
async def test_it_says_in_time_that_the_store_is_away(faulty, virtual_clock, name, how, session):
    async with tenure.open_store(faulty, ttl=100) as store:
        if session == "open":
            await store._handle.session(100.0)
        if how == "silent":
            faulty.pause(before_effect=True)
        else:
            faulty.down = True
        for _ in range(3):
            began = anyio.current_time()
            with pytest.raises(
                StoreUnavailable, match="^the store memory: has (not answered|been away) for"
            ) as caught:
                await CALLS[name](store)
            assert anyio.current_time() - began <= TIMEOUT + 0.2
        assert "; " in str(caught.value)
        faulty.down = False
        faulty.resume()
        await virtual_clock.advance(3)
        await store.ping()


async def test_what_is_booked_late_costs_nobody_anything(faulty, virtual_clock):
    async with tenure.open_store(faulty, ttl=100) as store:
        spends = tenure.RateLimiter(store, "x", tenure.Limit(1, burst=2))
        assert await spends.try_acquire()
        faulty.pause(before_effect=False)
        for call in (spends.try_acquire, lambda: spends.acquire(fail_fast=True)):
            with pytest.raises(StoreUnavailable, match="nothing was spent: a late booking is given back"):
                await call()
        faulty.resume()
        await virtual_clock.advance(5)
        assert (await spends.state()).available == pytest.approx(2)


async def test_a_put_that_was_not_sent_is_not_put(faulty, virtual_clock):
    async with tenure.open_store(faulty, ttl=100) as store:
        jobs = tenure.WorkQueue(store, "x")
        await jobs.put("before")
        faulty.pause(before_effect=True)
        for outcome in ("may or may not have been applied", "was not applied"):
            with pytest.raises(StoreUnavailable, match=f"putting {outcome}$"):
                await jobs.try_put(outcome)
        faulty.resume()
        await virtual_clock.advance(5)
        tasks = (await jobs.tasks("waiting").page()).records
        assert [task.payload for task in tasks] == ["before", "may or may not have been applied"]


async def test_a_put_that_has_yet_to_learn_how_long_its_key_is_kept_is_not_put(faulty, virtual_clock):
    async with tenure.open_store(faulty, ttl=100) as store:
        await store._handle.session(100.0)
        faulty.pause(before_effect=True)
        jobs = tenure.WorkQueue(store, "x")
        with pytest.raises(StoreUnavailable, match="putting was not applied$"):
            await jobs.try_put("first", key="k")
        faulty.resume()
        await virtual_clock.advance(5)
        assert not (await jobs.statistics()).waiting


async def test_a_change_that_was_not_sent_is_not_made(faulty, virtual_clock):
    async with tenure.open_store(faulty, ttl=100) as store:
        faulty.down = True
        jobs = tenure.WorkQueue(store, "x")
        for outcome in ("may or may not have been applied", "was not applied"):
            with pytest.raises(StoreUnavailable, match=f"SetPaused {outcome} "):
                await jobs.pause()
        faulty.down = False
        await virtual_clock.advance(5)
        assert not (await jobs.statistics()).paused


async def test_an_outage_shorter_than_that_is_waited_for(faulty, virtual_clock):
    async with tenure.open_store(faulty, ttl=100) as store, anyio.create_task_group() as group:
        faulty.down = True
        group.start_soon(tenure.Lock(store, "x").locked)
        group.start_soon(tenure.WorkQueue(store, "x").try_put, 1)
        await virtual_clock.advance(3)
        faulty.down = False


async def test_what_waits_waits_on(faulty, virtual_clock):
    async with tenure.open_store(faulty, ttl=100) as store, anyio.create_task_group() as group:
        faulty.down = True
        jobs = tenure.WorkQueue(store, "x")
        group.start_soon(jobs.put, 1)
        group.start_soon(tenure.RateLimiter(store, "x", tenure.Limit(1)).acquire)
        group.start_soon(jobs.join)
        await virtual_clock.advance(60)
        faulty.down = False
        async with jobs.take():
            pass


async def test_a_timeout_says_what_was_in_the_way(faulty, virtual_clock):
    async with tenure.open_store(faulty, ttl=100) as store:
        mine = tenure.Lock(store, "x")

        async def reason(timeout):
            with pytest.raises(tenure.AcquireTimeout) as caught:
                await mine.hold(timeout).__aenter__()
            return caught.value

        async with anyio.create_task_group() as group:
            group.start_soon(hold, tenure.Lock(store, "x"))
            await virtual_clock.settle()
            for timeout in (0, 0.5):
                assert (await reason(timeout)).reason == "held"
            assert str(await reason(0.5)).endswith("not acquired within 0.5 s; it was first in line")
            assert str(await reason(0)).endswith("not acquired within 0 s; held")
            faulty.pause(before_effect=True)
            assert (await reason(0.5)).reason == "the store has not answered for 0.5 s"
            faulty.down = True
            faulty.resume()
            await virtual_clock.advance(3.1)
            error = await reason(0)
            assert error.reason in ("the store has been away for 4 s", "the store has been away for 5 s")
            with pytest.raises(tenure.AcquireTimeout, match="the store has been away for"):
                await tenure.WorkQueue(store, "x").take(0.5).__aenter__()
            faulty.down = False
            await virtual_clock.advance(2)
            group.cancel_scope.cancel()


async def hold(lock):
    async with lock:
        await anyio.sleep_forever()


async def test_a_program_that_does_nothing_else_waits_for_its_server(faulty, virtual_clock):
    store = tenure.open_store(faulty, ttl=100)
    store._handle.dispatchers.be_patient()
    async with store, anyio.create_task_group() as group:
        faulty.down = True
        for call in CALLS.values():
            group.start_soon(answered, call, store)
        await virtual_clock.advance(60)
        faulty.down = False


async def answered(call, store):
    with contextlib.suppress(tenure.errors.TaskNotWaiting, LookupError):
        await call(store)
