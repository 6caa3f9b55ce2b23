"""Schedules that are kept in the store: any process changes them, and each tick is put once on record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import anyio
import pytest

from tenure import Key, Retry, Schedule, WorkQueue
from tenure.engine import Count


@pytest.fixture
async def store(open_store_on):
    async with open_store_on(ttl=600) as opened:
        yield opened


async def waiting(queue):
    """The tasks that wait, in the order in which they were put."""
    return (await queue.tasks("waiting").page(limit=10_000)).records


def times(tasks):
    return [datetime.fromisoformat(task.meta["scheduled_for"]).timestamp() for task in tasks]


async def time_of(queue):
    return (await queue.store._handle.call(Count(queue.key))).now


async def test_two_processes_put_each_tick_once_as_it_was_set_elsewhere(store, open_store_on, virtual_clock):
    queue = WorkQueue(store, "mail")
    async with open_store_on(ttl=600) as elsewhere:
        other = WorkQueue(elsewhere, "mail").schedules
        mine = queue.schedules
        async with anyio.create_task_group() as group:
            group.start_soon(mine.run)
            group.start_soon(other.run)
            await anyio.sleep(1)
            await other.set("often", every=10, payload={"to": "ann"}, priority=3, group="g", meta={"a": "b"})
            await anyio.sleep(100)
            await mine.drain()
            await other.drain()
    tasks = await waiting(queue)
    assert 9 <= len(tasks) <= 10
    assert all(b - a == 10 for a, b in pairwise(times(tasks)))
    assert {(task.payload["to"], task.priority, task.group, task.meta["a"]) for task in tasks} == {
        ("ann", 3, "g", "b")
    }
    assert all(0 <= float(task.meta["late"]) < 6 for task in tasks)
    assert max(float(task.meta["late"]) for task in tasks[1:]) < 1


async def test_a_schedule_is_listed_paused_resumed_run_and_removed(store, virtual_clock):
    queue = WorkQueue(store, "mail")
    schedules = queue.schedules
    async with anyio.create_task_group() as group:
        group.start_soon(schedules.run)
        await schedules.set("often", every=10, payload=[1], missed="all", jitter=2.5)
        (record,) = (await schedules.list().page()).records
        assert (record.name, record.every, record.payload, record.missed) == ("often", 10.0, [1], "all")
        assert (record.jitter, record.paused, record.kept_in_store) == (2.5, False, True)
        assert await record.next() == await schedules.next("often") == record.coming()[0]
        await anyio.sleep(25)
        assert await schedules.pause("often")
        before = (await queue.statistics()).put
        assert before in (2, 3)
        await anyio.sleep(100)
        assert (await queue.statistics()).put == before
        (record,) = (await schedules.list().page()).records
        assert record.paused and record.late() == 0
        await schedules.set("often", every=10, payload=[2])  # it stays paused
        task = await queue.get(await schedules.run_now("often"))
        assert (task.payload, task.meta["schedule"]) == ([2], "often")
        assert await schedules.resume("often") and await schedules.resume("often")
        await anyio.sleep(24)
        after = (await queue.statistics()).put
        assert after - before - 1 in (2, 3), "the ticks of the pause are not missed"
        assert await schedules.remove("often") and not await schedules.remove("often")
        await anyio.sleep(50)
        assert (await queue.statistics()).put == after
        assert (await schedules.list().page()).records == [] and await queue.cursors() == {}
        await schedules.drain()


async def test_what_code_keeps_is_listed_and_can_be_paused(store, virtual_clock):
    queue = WorkQueue(store, "mail")
    schedules, coded = queue.schedules, Schedule(queue, "coded", every=10, payload="x", priority=1)
    async with anyio.create_task_group() as group:
        group.start_soon(coded.run)
        group.start_soon(schedules.run)
        await anyio.sleep(15)
        (record,) = (await schedules.list().page()).records
        assert (record.payload, dict(record.options), record.kept_in_store) == ("x", {"priority": 1}, False)
        with pytest.raises(ValueError, match="name must be of no schedule that code keeps"):
            await schedules.set("coded", every=1)
        assert await schedules.pause("coded")
        put = (await queue.statistics()).put
        await anyio.sleep(100)
        assert (await queue.statistics()).put == put
        await schedules.run_now("coded")
        await schedules.resume("coded")
        await anyio.sleep(25)
        assert (await queue.statistics()).put >= put + 3
        await coded.drain()
        await schedules.drain()
    assert len(set(times(await waiting(queue)))) >= len(await waiting(queue)) - 1


async def test_a_key_and_durations_are_kept_in_the_store(store, virtual_clock):
    queue, key = WorkQueue(store, "mail"), Key("news", "keep", ttl=timedelta(minutes=1))
    schedules = queue.schedules
    await schedules.set("news", every=10, key=key, delay=timedelta(seconds=5), jitter=1, expires=90)
    (record,) = (await schedules.list().page()).records
    assert dict(record.options) == {
        "key": Key("news", "keep", ttl=60.0),
        "delay": 5.0,
        "expires": 90,
    }
    first = await schedules.run_now("news")
    assert ((await queue.get(first)).state, (await queue.get(first)).key) == ("delayed", "news")
    assert await schedules.run_now("news") == first
    await virtual_clock.advance(7)
    async with queue.take(timeout=0):
        pass
    assert await schedules.run_now("news") == first, "its key lasts for a minute"
    with pytest.raises(TypeError, match="^retry cannot be kept"):
        await schedules.set("news", every=10, retry=Retry())


async def test_start_end_and_jitter(store, virtual_clock):
    queue = WorkQueue(store, "mail")
    begin = (await time_of(queue)) // 10 * 10 + 20
    start, end = (datetime.fromtimestamp(begin + more, UTC) for more in (0, 30))
    schedules = queue.schedules
    async with anyio.create_task_group() as group:
        group.start_soon(schedules.run)
        await schedules.set("short", every=10, start=start, end=end, jitter=5)
        coded = Schedule(queue, "coded", every=10, start=start, end=end)
        assert await coded.next() == start
        await anyio.sleep(120)
        assert (await schedules.list().page()).records == [], "it is over"
        assert await coded.next() is None
        await schedules.drain()
    tasks = await waiting(queue)
    assert sorted(times(tasks)) == [begin + more for more in (0, 10, 20, 30)]
    naive = Schedule(queue, "naive", every=10, tz="Europe/Berlin", start=datetime(2100, 1, 1, 9))  # noqa: DTZ001
    assert (await naive.next()).isoformat() == "2100-01-01T09:00:00+01:00"


async def test_a_missed_tick_says_how_late_it_is(store, virtual_clock):
    queue = WorkQueue(store, "mail")
    schedules = queue.schedules
    await schedules.set("hourly", every=3600)
    first = (await schedules.list().page()).records[0].coming()[0].timestamp()
    await anyio.sleep(first - await time_of(queue) + 90)
    async with anyio.create_task_group() as group:
        group.start_soon(schedules.run)
        await anyio.sleep(10)
        await schedules.drain()
    (task,) = await waiting(queue)
    assert 89 < float(task.meta["late"]) < 101


async def test_bad_input(store, virtual_clock):
    queue = WorkQueue(store, "mail")
    schedules, noon = queue.schedules, datetime(2026, 1, 1, 12, tzinfo=UTC)
    for arguments, problem, message in (
        ({"every": 1, "payload": "x" * 5000}, ValueError, "payload must have at most 4,096 bytes"),
        ({"every": 1, "start": "today"}, TypeError, "start must be a datetime"),
        ({"every": 1, "start": noon, "end": noon - timedelta(1)}, ValueError, "end must not be before start"),
        ({"every": 1, "jitter": -1}, ValueError, "jitter"),
        ({"every": 1, "colour": "red"}, TypeError, "unexpected keyword argument 'colour'"),
        ({}, TypeError, "every or cron"),
    ):
        with pytest.raises(problem, match=message):
            await schedules.set("x", **arguments)
    for ask in (schedules.run_now, schedules.next):
        with pytest.raises(LookupError, match="has no schedule 'x'"):
            await ask("x")
    assert not await schedules.pause("x") and not await schedules.resume("x")
    assert await queue.cursors() == {}
