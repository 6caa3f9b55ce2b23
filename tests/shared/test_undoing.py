"""Nothing that a user sets needs another name to be undone: each setting is set, seen and unset, on all engines."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest

import tenure
from tenure import (
    AcquireTimeout,
    Barrier,
    BarrierBroken,
    Groups,
    Item,
    Keep,
    Key,
    Limit,
    RateLimiter,
    ResourcePool,
    Retry,
    Semaphore,
    WorkQueue,
)

pytestmark = pytest.mark.parametrize("engine", ["memory", "sqlite", "redis", "postgres"], indirect=True)

A_DAY = Limit(1, per=86_400)
"""What a user types who wanted one a second."""


async def take(queue):
    async with queue.take(0) as task:
        return task.payload


async def take_all(queue):
    taken = []
    with suppress(AcquireTimeout):
        while True:
            taken.append(await take(queue))
    return taken


def hold(seconds, **group):
    return lambda queue: queue.hold_off(seconds, **group)


def groups(**settings):
    return lambda queue: queue.configure(**settings)


SETTINGS = {
    "pause": (WorkQueue.pause, lambda s, _: s.paused, WorkQueue.resume),
    "hold_off": (hold(36_000), lambda s, _: s.held_off > 35_000, WorkQueue.resume),
    "hold_off, ended": (hold(36_000), lambda s, _: s.held_off > 35_000, hold(0)),
    "hold_off of a group": (
        hold(36_000, group="a"),
        lambda _, g: g["a"].held_off > 35_000,
        hold(0, group="a"),
    ),
    "rate": (groups(rate=A_DAY), lambda s, _: 0 < s.rate < 1 and s.starts_in, groups(rate=None)),
    "rate, corrected": (
        groups(rate=A_DAY),
        lambda s, _: 0 < s.rate < 1 and s.starts_in,
        groups(rate=Limit(1000, per=1)),
    ),
    "group_rate": (
        groups(groups=Groups(rate=A_DAY)),
        lambda s, g: 0 < s.group_rate < 1 and g["a"].starts_in > 80_000,
        groups(groups=Groups(rate=None)),
    ),
    "group_rate, corrected": (
        groups(groups=Groups(rate=A_DAY)),
        lambda s, g: 0 < s.group_rate < 1 and g["a"].starts_in > 80_000,
        groups(groups=Groups(rate=Limit(1000, per=1))),
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
async def test_a_setting_of_a_queue_is_shown_and_ends(open_store_on, store, virtual_clock, name):
    change, shows, undo = SETTINGS[name]
    queue, began, taken = WorkQueue(store, "jobs"), virtual_clock.now(), []

    async def seen():
        statistics = await queue.statistics()
        return bool(
            shows(statistics, {group.group: group for group in (await queue.groups().page()).records})
        )

    async def worker():
        for _ in range(2):
            async with queue.take() as task:
                taken.append(task.payload)

    await queue.put_many([Item(n, group="ab"[n % 2]) for n in range(6)])
    assert not await seen()
    # another process sets and ends it, while this one waits for tasks
    async with open_store_on() as other:
        await change(WorkQueue(other, "jobs"))
        with suppress(AcquireTimeout):
            taken.append(await take(queue))
            taken.append(await take(queue))
        assert await seen()
        async with anyio.create_task_group() as group:
            group.start_soon(worker)
            await anyio.sleep(5)
            await undo(WorkQueue(other, "jobs"))
    assert virtual_clock.now() - began < 5.5
    assert not await seen()
    assert sorted(taken + await take_all(queue)) == list(range(6))


async def test_producers_that_wait_for_a_limit_go_on_once_it_is_lifted(open_store_on, store, virtual_clock):
    narrow = WorkQueue(store, "jobs", max_size=2, groups=Groups(max_size=1))
    await narrow.put(1, group="a")
    async with open_store_on() as other, anyio.create_task_group() as group:
        group.start_soon(lambda: narrow.put(2, group="a"))
        await anyio.sleep(1)
        assert (await narrow.statistics()).producers == 1
        await WorkQueue(other, "jobs").configure(rate=None, groups=None)
        await anyio.sleep(1)
        assert (await narrow.statistics()).producers == 0
        group.start_soon(lambda: narrow.put(3, group="a"))
        await anyio.sleep(1)
        statistics = await narrow.statistics()
        assert (statistics.producers, statistics.max_size) == (1, 2)
        await WorkQueue(other, "jobs", max_size=100).put(4)
        await anyio.sleep(1)
        assert (await narrow.statistics()).producers == 0


async def test_a_task_is_changed_back(store, virtual_clock):
    queue = WorkQueue(
        store, "jobs", keep=Keep(results=None, dead=None, payloads=True), retry=Retry(attempts=1)
    )
    late = await queue.put("late", delay=36_000, priority=-5, group="a")
    assert await take_all(queue) == []
    await queue.edit(late, delay=0, priority=5, group=None)
    record = await queue.get(late)
    assert (record.group, record.priority) == (None, 5)
    assert await take_all(queue) == ["late"]
    with suppress(ZeroDivisionError):
        await queue.put("bad")
        async with queue.take(0):
            raise ZeroDivisionError
    assert await queue.requeue() == 1
    assert await take_all(queue) == ["bad"]
    # what is kept for good goes by hand
    assert await queue.purge("done") == 2
    assert (await queue.tasks("ended").page()).records == []


async def test_a_key_that_is_kept_for_years_is_freed(store, virtual_clock):
    queue = WorkQueue(store, "jobs", keep=Keep(keys=1e8))
    first = await queue.put("first", key="k")
    assert await take_all(queue) == ["first"]
    with pytest.raises(tenure.DuplicateTask):
        await queue.put("second", key="k")
    assert await queue.put("second", key=Key("k", "replace")) > first
    assert await take_all(queue) == ["second"]


async def test_a_resource_is_lent_again(store, virtual_clock):
    pool = ResourcePool(store, "keys", quarantine=36_000)

    async def lent():
        with suppress(AcquireTimeout):
            async with pool.claim(0):
                return True
        return False

    async def state():
        (resource,) = (await pool.resources().page()).records
        return resource.state

    await pool.add("key", preference=9, slots=2)
    await pool.add("key")
    (resource,) = (await pool.resources().page()).records
    assert (resource.preference, resource.slots) == (0, 1)
    async with pool.claim(0) as claim:
        await claim.cool_down(36_000)
        await claim.cool_down(0)
    assert await lent()
    async with pool.claim(0) as claim:
        await claim.cool_down(36_000)
    assert await state() == "resting"
    assert not await lent()
    await pool.remove("key")
    await pool.add("key")
    assert await lent()
    async with pool.claim(0) as claim:
        await claim.retire("mistaken")
    assert await state() == "retired"
    assert not await lent()
    await pool.add("key", revive=True)
    assert await lent()
    await pool.remove("key")
    await pool.add("key")
    assert await lent()


async def test_the_permits_of_a_semaphore_and_a_broken_barrier(store, virtual_clock):
    semaphore = Semaphore(store, "few", 5)
    async with semaphore:
        await semaphore.resize(1)
        with pytest.raises(tenure.CapacityMismatch):
            async with Semaphore(store, "few", 5).hold(timeout=0):
                pass
        await semaphore.resize(5)
        async with Semaphore(store, "few", 5).hold(3, timeout=0):
            pass
    barrier = Barrier(store, "start", 1)
    broken = Barrier(store, "start", 2)
    with anyio.move_on_after(1):
        await broken.wait()
    assert (await broken.statistics()).broken
    with pytest.raises(BarrierBroken):
        await broken.wait()
    await broken.reset()
    assert not (await broken.statistics()).broken
    await barrier.wait()


async def test_a_schedule_goes_on_and_is_set_again(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    schedules = queue.schedules
    await schedules.set("daily", every=86_400, payload="x")
    await schedules.set("daily", every=10, payload="x")
    (record,) = (await schedules.list().page()).records
    assert record.every == 10
    assert await schedules.pause("daily")
    assert (await schedules.list().page()).records[0].paused
    assert await schedules.resume("daily")
    assert not (await schedules.list().page()).records[0].paused
    assert await schedules.remove("daily")
    await schedules.set("daily", every=20, payload="x")
    assert [record.every async for record in schedules.list()] == [20]


async def test_a_corrected_rate_of_a_limiter_counts_at_once(store, virtual_clock):
    for limit in (Limit(1 / 86_400, burst=1), A_DAY):
        await RateLimiter(store, "api", limit).acquire()
        assert (await RateLimiter(store, "api", limit).state()).retry_after > 80_000
        began = virtual_clock.now()
        right = RateLimiter(store, "api", Limit(1, burst=1))
        await right.acquire()
        assert virtual_clock.now() - began <= 1.1
        await anyio.sleep(2)
