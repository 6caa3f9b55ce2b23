"""Schedules: each tick once on record, and what becomes of those that nobody could put."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import anyio
import pytest

import tenure
from tenure import DuplicateTask, Groups, Keep, Schedule, Worker, WorkQueue, serve
from tenure.engine import Count
from tenure.engines.memory import MemoryEngine
from tenure.errors import CursorConflict, PayloadTooLarge

HOUR = 3600.0
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
async def store(open_store_on):
    """An open store that is seldom renewed, for hours and days go by."""
    async with open_store_on(ttl=600) as opened:
        yield opened


@asynccontextmanager
async def running(*schedules):
    """They run during the block, and have begun, none of them just before a tick."""
    for schedule in schedules:
        if (await schedule.next()).timestamp() - await time_of(schedule.queue) < 1.0:
            await until_after(schedule, 0.1)
    async with anyio.create_task_group() as group:
        for schedule in schedules:
            group.start_soon(schedule.run)
        await anyio.sleep(0.1)
        yield
        group.cancel_scope.cancel()


async def on_record(queue):
    """The times of the ticks that wait in the queue, in the order in which they were put."""
    tasks = (await queue.tasks("waiting").page(limit=10_000)).records
    return [datetime.fromisoformat(task.meta["scheduled_for"]).timestamp() for task in tasks]


async def until_after(schedule, seconds=0.0):
    """Wait until its next tick was, and some seconds more; return the tick."""
    tick = (await schedule.next()).timestamp()
    await anyio.sleep(tick - await time_of(schedule.queue) + seconds)
    return tick


async def time_of(queue):
    return (await queue.store._handle.call(Count(queue.key))).now


async def begin(schedule):
    """Put it on record, a second after one of its ticks."""
    await until_after(schedule, 1.0)
    async with running(schedule):
        pass


# ticks


async def test_each_tick_puts_a_task(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    schedule = Schedule(
        queue, "nightly", every=HOUR, tz="Asia/Kolkata", payload={"n": 1}, priority=3, group="g"
    )
    async with running(schedule):
        first = await until_after(schedule, 1.0)
        await anyio.sleep(2 * HOUR)
    tasks = (await queue.tasks("waiting").page()).records
    assert [(task.payload, task.priority, task.group) for task in tasks] == [({"n": 1}, 3, "g")] * 3
    assert {task.meta["schedule"] for task in tasks} == {"nightly"}
    assert {task.meta["scheduled_for"][-6:] for task in tasks} == {"+05:30"}
    assert await on_record(queue) == [first, first + HOUR, first + 2 * HOUR]


async def test_it_begins_when_it_is_run_for_the_first_time(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    schedule = Schedule(queue, "hourly", every=HOUR, missed="all")
    async with running(schedule):
        await anyio.sleep(1)
    assert await on_record(queue) == []
    before = await time_of(queue)
    tick = await until_after(schedule, 100.0)
    assert tick > before
    async with running(schedule):
        await anyio.sleep(1)
    assert await on_record(queue) == [tick]


async def test_schedules_of_one_queue_do_not_mix(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    fast, slow = Schedule(queue, "fast", every=60), Schedule(queue, "slow", every=180)
    async with running(fast, slow):
        await until_after(slow, 1.0)
        await anyio.sleep(360)
    names = [task.meta["schedule"] for task in (await queue.tasks("waiting").page()).records]
    assert names.count("slow") == 3
    assert names.count("fast") in (7, 8, 9)


async def test_while_an_earlier_task_with_its_key_is_unfinished_none_is_put(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    schedule = Schedule(queue, "often", every=60, key="report")
    async with running(schedule):
        first = await until_after(schedule, 1.0)
        async with queue.take() as task:
            await anyio.sleep(120)
        assert datetime.fromisoformat(task.meta["scheduled_for"]).timestamp() == first
        assert await on_record(queue) == []
        await anyio.sleep(60)
        assert await on_record(queue) == [first + 180]


# ticks that nobody could put in time


@pytest.mark.parametrize(("missed", "put"), [("one", [4]), ("all", [1, 2, 3, 4]), ("skip", [])])
async def test_after_a_pause(store, virtual_clock, missed, put):
    queue, time = WorkQueue(store, "jobs"), 300.0
    schedule = Schedule(queue, "often", every=time, missed=missed)
    await begin(schedule)
    last = (await schedule.next()).timestamp() - time
    await anyio.sleep(4 * time + 100)
    async with running(schedule):
        await anyio.sleep(1)
        assert await on_record(queue) == [last + n * time for n in put]
        await anyio.sleep(time)
        assert await on_record(queue) == [last + n * time for n in (*put, 5)]


async def test_a_tick_that_is_less_than_a_minute_late_is_in_time(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    schedule = Schedule(queue, "hourly", every=HOUR, missed="skip")
    await begin(schedule)
    await until_after(schedule, HOUR + 50)
    latest = (await schedule.next()).timestamp() - HOUR
    async with running(schedule):
        await anyio.sleep(1)
        assert await on_record(queue) == [latest]


@pytest.mark.parametrize(("missed", "put"), [("one", [3]), ("all", [1, 2, 3]), ("skip", [])])
async def test_after_an_outage(faulty, virtual_clock, missed, put):
    async with tenure.open_store(faulty, ttl=60) as store:
        queue, time = WorkQueue(store, "jobs"), 300.0
        schedule = Schedule(queue, "often", every=time, missed=missed)
        await begin(schedule)
        async with running(schedule):
            last = (await schedule.next()).timestamp() - time
            faulty.down = True
            await anyio.sleep(3 * time + 100)
            faulty.down = False
            await anyio.sleep(100)
            assert await on_record(queue) == [last + n * time for n in put]
            await anyio.sleep(time)
            assert await on_record(queue) == [last + n * time for n in (*put, 4)]


@pytest.mark.parametrize(("missed", "put"), [("one", [3]), ("all", [1, 2, 3]), ("skip", [])])
async def test_after_the_process_was_stopped(store, virtual_clock, freeze, missed, put):
    queue = WorkQueue(store, "jobs")
    schedule = Schedule(queue, "hourly", every=HOUR, missed=missed)
    async with running(schedule):
        last = await until_after(schedule, HOUR - 2)
        await queue.purge("waiting")
        freeze(2 * HOUR + 300)
        await anyio.sleep(10)
        assert await on_record(queue) == [last + n * HOUR for n in put]


class Clock:
    """The time of the memory engine, which can be set."""

    def __init__(self, engine):
        self._state = engine._state

    def set(self, seconds):
        self._state.wall_time()
        self._state._epoch += seconds


async def test_when_the_clock_is_set_back_no_tick_comes_twice(virtual_clock):
    engine = MemoryEngine()
    async with tenure.open_store(engine) as store:
        queue = WorkQueue(store, "jobs")
        schedule = Schedule(queue, "hourly", every=HOUR, missed="all")
        async with running(schedule):
            first = await until_after(schedule, 10.0)
            await anyio.sleep(2 * HOUR)
            Clock(engine).set(-2 * HOUR)
            await anyio.sleep(2 * HOUR + 1800)
            assert await on_record(queue) == [first, first + HOUR, first + 2 * HOUR]
            await anyio.sleep(1800)
            assert await on_record(queue) == [first, first + HOUR, first + 2 * HOUR, first + 3 * HOUR]


async def test_a_clock_that_is_set_forward_is_noticed_within_minutes(virtual_clock):
    engine = MemoryEngine()
    async with tenure.open_store(engine) as store:
        schedule = Schedule(WorkQueue(store, "jobs"), "daily", every=86400)
        async with running(schedule):
            tick = (await schedule.next()).timestamp()
            Clock(engine).set(tick - await time_of(schedule.queue))
            await anyio.sleep(301)
            assert await on_record(schedule.queue) == [tick]


async def test_the_clock_of_the_host_does_not_matter(store, virtual_clock, monkeypatch):
    schedule = Schedule(WorkQueue(store, "jobs"), "hourly", every=HOUR)
    async with running(schedule):
        first = await until_after(schedule, 1.0)
        monkeypatch.setattr("time.time", lambda: 5.0)
        await anyio.sleep(HOUR)
        assert await on_record(schedule.queue) == [first, first + HOUR]


# queues that refuse


async def test_in_a_full_queue_it_waits_in_line(open_store_on, virtual_clock):
    async with open_store_on() as a, open_store_on() as b:
        queues = [WorkQueue(store, "jobs", max_size=1) for store in (a, b)]
        schedules = [Schedule(queue, "often", every=60, missed="all") for queue in queues]
        await begin(schedules[0])
        await queues[0].put("other")
        async with running(*schedules):
            last = (await schedules[0].next()).timestamp() - 60
            await anyio.sleep(200)
            taken = []
            for _ in range(4):
                async with queues[0].take() as task:
                    taken.append(task.meta.get("scheduled_for"))
            assert taken[0] is None
            assert [datetime.fromisoformat(text).timestamp() for text in taken[1:]] == [
                last + 60 * n for n in (1, 2, 3)
            ]
        statistics = await queues[0].statistics()
        assert (statistics.unfinished, statistics.producers, statistics.reserved) == (0, 0, 0)


async def test_ticks_that_were_missed_may_be_more_than_the_queue_is_large(store, virtual_clock):
    queue = WorkQueue(store, "jobs", max_size=7, groups=Groups(max_size=3))
    schedule = Schedule(queue, "often", every=10, missed="all", group="g")
    await begin(schedule)
    last = (await schedule.next()).timestamp() - 10
    await anyio.sleep(500)
    taken = []
    async with running(schedule):
        for _ in range(50):
            async with queue.take() as task:
                taken.append(datetime.fromisoformat(task.meta["scheduled_for"]).timestamp())
    assert taken == [last + 10 * n for n in range(1, 51)]


class Salted:
    """Encodes equal values differently each time, as encryption does."""

    def encode(self, value):
        return os.urandom(8) + json.dumps(value).encode()

    def decode(self, data):
        return json.loads(data[8:])


async def test_a_codec_need_not_encode_equal_values_alike(open_store_on, virtual_clock):
    async with open_store_on(codec=Salted()) as store:
        schedule = Schedule(WorkQueue(store, "jobs"), "often", every=60)
        async with running(schedule):
            first = await until_after(schedule, 61.0)
        assert await on_record(schedule.queue) == [first, first + 60]


# running, draining, cancelling


async def test_it_runs_once_at_a_time_and_again_later(store, virtual_clock):
    schedule = Schedule(WorkQueue(store, "jobs"), "often", every=60)
    assert "idle" in repr(schedule)
    async with running(schedule):
        assert "running" in repr(schedule)
        with pytest.raises(RuntimeError, match="runs already"):
            await schedule.run()
    async with running(schedule):
        first = await until_after(schedule, 1.0)
    assert await on_record(schedule.queue) == [first]


async def test_draining_ends_it_while_it_waits(store, virtual_clock):
    schedule = Schedule(WorkQueue(store, "jobs"), "yearly", every=365 * 86400)
    async with anyio.create_task_group() as group:
        group.start_soon(schedule.run)
        await anyio.sleep(1)
        began = anyio.current_time()
        await schedule.drain()
    assert anyio.current_time() == pytest.approx(began, abs=0.1)
    await schedule.run()  # ends at once
    assert "drained" in repr(schedule)


async def test_draining_ends_it_while_it_waits_for_room(store, virtual_clock):
    queue = WorkQueue(store, "jobs", max_size=1)
    schedule = Schedule(queue, "often", every=60)
    await begin(schedule)
    await queue.put("other")
    async with anyio.create_task_group() as group:
        group.start_soon(schedule.run)
        await until_after(schedule, 1.0)
        assert (await queue.statistics()).producers == 1
        await schedule.drain()
    statistics = await queue.statistics()
    assert (statistics.waiting, statistics.producers, statistics.reserved) == (1, 0, 0)


async def test_a_schedule_that_is_drained_before_it_runs_puts_nothing(store, virtual_clock):
    schedule = Schedule(WorkQueue(store, "jobs"), "often", every=60)
    await schedule.drain()
    await schedule.run()
    assert await schedule.queue.cursors() == {}


async def test_serve_runs_it_beside_a_worker(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    schedule = Schedule(queue, "often", every=60)
    done = []

    async def handler(task: tenure.Task):
        done.append(task.meta["scheduled_for"])
        if len(done) == 3:
            await schedule.drain()
            drains.start_soon(worker.drain)

    worker = Worker(queue, handler)
    async with anyio.create_task_group() as drains:
        assert await serve(worker, schedule, signals=False)
    assert [b - a for a, b in pairwise(map(datetime.fromisoformat, done))] == [timedelta(seconds=60)] * 2


# looking, and by hand


async def test_next_says_when_the_next_tick_is(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    schedule = Schedule(queue, "nightly", cron="30 2 * * *", tz="Europe/Berlin")
    coming = await schedule.next()
    assert (coming.hour, coming.minute, coming.tzinfo) == (2, 30, ZoneInfo("Europe/Berlin"))
    assert 0 < coming.timestamp() - await time_of(queue) <= 25 * HOUR
    async with running(schedule):
        await until_after(schedule, 1.0)
    assert (await schedule.next()).date() == coming.date() + timedelta(days=1)


async def test_run_now_puts_one_beside_those_of_the_ticks(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    schedule = Schedule(queue, "hourly", every=HOUR, payload=5, key="k")
    task_id = await schedule.run_now()
    task = await queue.get(task_id)
    assert (task.payload, task.key, task.meta["schedule"]) == (5, "k", "hourly")
    now = datetime.fromisoformat(task.meta["scheduled_for"]).timestamp()
    assert now == pytest.approx(await time_of(queue), abs=1.0)
    with pytest.raises(DuplicateTask):
        await schedule.run_now()
    assert await queue.cursors() == {}


async def test_the_cursor_says_what_the_schedule_is(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    one = Schedule(queue, "a", every=60, tz="Asia/Tokyo")
    other = Schedule(queue, "b", cron="0 3 * * *", tz="Europe/Berlin")
    async with running(one, other):
        tick = await until_after(one, 1.0)
        cursors = await queue.cursors()
    assert cursors["schedule/a"] == {"tick": tick, "every": 60.0, "tz": "Asia/Tokyo"}
    assert {**cursors["schedule/b"], "tick": 0} == {"tick": 0, "cron": "0 3 * * *", "tz": "Europe/Berlin"}


async def test_other_ticks_count_from_the_last_one_on(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    hourly, often = Schedule(queue, "x", every=HOUR), Schedule(queue, "x", every=600)
    async with running(hourly):
        first = await until_after(hourly, 1.0)
    async with running(often):
        await anyio.sleep(1201)
    assert await on_record(queue) == [first, first + 600, first + 1200]
    assert (await queue.cursors())["schedule/x"]["every"] == 600


async def test_what_puts_into_the_cursor_conflicts(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    await begin(Schedule(queue, "x", every=HOUR))
    with pytest.raises(CursorConflict):
        await queue.put_many([1], cursor=("schedule/x", 5), expected=None)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, TypeError, "every or cron"),
        ({"every": 60, "missed": "none"}, ValueError, "missed must be"),
        ({"every": 60, "priority": "high"}, TypeError, "priority must be"),
        ({"every": 60, "key": ""}, ValueError, "key must not be empty"),
        ({"every": 60, "group": 5}, TypeError, "group must be"),
        ({"every": 60, "payload": {1, 2}}, TypeError, "payload"),
        ({"every": 60, "payload": "x" * 2**20}, PayloadTooLarge, "payload"),
        ({"every": 60, "name": ""}, ValueError, "name must not be empty"),
        ({"every": 60, "name": "x" * 504}, ValueError, "name must have at most 503 bytes"),
        ({"every": 60, "name": '"' * 503}, ValueError, "meta must have at most"),
    ],
)
async def test_wrong_arguments_are_refused_at_once(arguments, error, words):
    async with tenure.open_store("memory:") as store:
        with pytest.raises(error, match=words):
            Schedule(WorkQueue(store, "jobs"), **{"name": "x", **arguments})


async def test_what_is_no_queue():
    async with tenure.open_store("memory:") as store:
        with pytest.raises(TypeError, match="^queue must be a WorkQueue, not Store$"):
            Schedule(store, "x", every=60)


async def test_the_longest_name_will_do(store, virtual_clock):
    schedule = Schedule(WorkQueue(store, "jobs"), "x" * 503, every=60, tz="Asia/Kolkata")
    async with running(schedule):
        first = await until_after(schedule, 1.0)
    assert await on_record(schedule.queue) == [first]


# summer time


def days(begin, end):
    """What `30 2 * * *` has to be in Berlin: 3:00 where 2:30 is left out, the earlier one where it comes twice."""
    for number in range((end - begin).days):
        day = begin + timedelta(days=number)
        hour, minute = (3, 0) if (day.month, day.day) == (3, 29) else (2, 30)
        yield day.replace(hour=hour, minute=minute).timestamp()


CRONS = {"nightly": "30 2 * * *", "hourly": "0 * * * *"}


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        pytest.param("2026-03-28", "2026-03-31", id="spring"),
        pytest.param("2026-10-24", "2026-10-27", id="autumn"),
    ],
)
async def test_through_the_changes_of_summer_time(virtual_clock, monkeypatch, begin, end):
    begin, end = (datetime.fromisoformat(day).replace(tzinfo=BERLIN) for day in (begin, end))
    since, until = begin.timestamp(), end.timestamp()
    monkeypatch.setattr("tenure.engines.memory._state.time", lambda: since)
    engine = MemoryEngine()
    ticks = {name: [] for name in CRONS}
    async with tenure.open_store(engine, ttl=1e6) as a, tenure.open_store(engine, ttl=1e6) as b:
        schedules = [
            Schedule(
                WorkQueue(store, "jobs", keep=Keep(results=1)), name, cron=CRONS[name], tz="Europe/Berlin"
            )
            for store in (a, b)
            for name in CRONS
        ]
        queue = schedules[0].queue
        async with running(*schedules):
            with anyio.move_on_after(until - since - 1):
                while True:
                    async with queue.take() as task:
                        moment = datetime.fromisoformat(task.meta["scheduled_for"]).timestamp()
                        assert await time_of(queue) == pytest.approx(moment, abs=0.1)
                        ticks[task.meta["schedule"]].append(moment)
    assert ticks["nightly"] == list(days(begin, end))
    hours = round((until - since) / HOUR)
    assert ticks["hourly"] == [since + HOUR * n for n in range(1, hours)]
