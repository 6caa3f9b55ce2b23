"""The options of a put: every way to put takes the same ones, and hands them all on."""

from __future__ import annotations

import inspect
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from zoneinfo import ZoneInfo

import anyio
import pytest

import tenure
from tenure import DuplicateTask, Item, Job, Key, Processor, Retry, Schedule, WorkQueue, blocking
from tenure.shared.queue._new_task import new_task
from tenure.types import Children, PutOptions, Schedules

BERLIN = ZoneInfo("Europe/Berlin")

OPTIONS = {
    "priority": 3,
    "delay": timedelta(minutes=1),
    "key": Key("invoice-7", "replace", ttl=timedelta(minutes=2), within=70.0),
    "group": "ann",
    "expires": timedelta(seconds=90),
    "deadline": timedelta(minutes=5),
    "timeout": timedelta(seconds=20),
    "retry": Retry(attempts=5, never=(LookupError,)),
    "meta": {"tenant": "ann"},
}


async def handle(payload):
    return payload


async def by_put(queue, **options):
    return await queue.put({}, **options)


async def by_try_put(queue, **options):
    return await queue.try_put({}, **options)


async def by_many(queue, **options):
    (outcome,) = await queue.put_many([Item({}, **options)])
    if isinstance(outcome, DuplicateTask):
        raise outcome
    return outcome


async def by_job(queue, **options):
    return await Job(queue, lambda: None).options(**options).put()


async def by_schedule(queue, **options):
    return await Schedule(queue, "hourly", every=3600, payload={}, **options).run_now()


async def by_submitting(queue, **options):
    processor = Processor(queue.store, "books", handle)
    return await processor.submit({}, **options)


WAYS = [by_put, by_try_put, by_many, by_job, by_schedule, by_submitting]


def queue_of(store, way):
    return Processor(store, "books", handle).queue() if way is by_submitting else WorkQueue(store, "books")


@pytest.mark.parametrize("way", WAYS)
async def test_every_option_reaches_the_task(store, virtual_clock, way):
    queue = queue_of(store, way)
    task_id = await way(queue, **OPTIONS)
    record = await queue.get(task_id)
    assert (record.state, record.priority, record.key, record.group) == ("delayed", 3, "invoice-7", "ann")
    assert record.meta["tenant"] == "ann"
    assert record.deadline == pytest.approx(300.0, abs=0.5)
    assert (record.timeout, record.retry) == (20.0, OPTIONS["retry"])
    # "replace", within: the delay begins anew, but the task waits at most 70 seconds from its first put on
    await virtual_clock.advance(30)
    assert await way(queue, **OPTIONS) == task_id
    await virtual_clock.advance(39)
    assert (await queue.statistics()).delayed == 1
    await virtual_clock.advance(2)
    async with queue.take(timeout=0) as task:
        assert (task.id, task.timeout, task.meta["tenant"]) == (task_id, 20.0, "ann")
    # ttl: the key lasts beyond the end of the task
    with pytest.raises(DuplicateTask):
        await queue.put({}, key="invoice-7")


@pytest.mark.parametrize("way", WAYS)
async def test_an_option_that_is_misspelt_is_refused(store, way):
    queue = queue_of(store, way)
    with pytest.raises(TypeError, match="unexpected keyword argument 'prioriti'"):
        await way(queue, prioriti=1)
    assert (await queue.statistics()).put == 0


def soon(zone=UTC, seconds=60.0):
    return datetime.now(zone) + timedelta(seconds=seconds)


@pytest.mark.parametrize("way", [way for way in WAYS if way is not by_schedule])
async def test_a_time_is_a_delay_from_now_on(store, virtual_clock, way):
    queue = queue_of(store, way)
    for zone in (UTC, ZoneInfo("Asia/Kathmandu"), timezone(timedelta(hours=-5))):
        await way(queue, at=soon(zone), delay=0)
    past, soonest = await way(queue, at=soon(seconds=-60)), await way(queue, at=None)
    assert [(await queue.get(task_id)).state for task_id in (past, soonest)] == ["waiting"] * 2
    await virtual_clock.advance(50)  # the clock of this host is the real one, and may go on by some seconds
    assert (await queue.statistics()).delayed == 3
    await virtual_clock.advance(10.1)
    assert (await queue.statistics()).waiting == 5


@pytest.mark.parametrize(
    ("at", "utc"),
    [
        ("2027-03-28T01:59+01:00", "2027-03-28T00:59+00:00"),
        # the clock of Berlin goes from 2:00 to 3:00, and seven months later from 3:00 to 2:00
        (datetime(2027, 3, 28, 1, 59, tzinfo=BERLIN), "2027-03-28T00:59+00:00"),
        (datetime(2027, 3, 28, 3, 0, tzinfo=BERLIN), "2027-03-28T01:00+00:00"),
        (datetime(2027, 10, 31, 2, 30, tzinfo=BERLIN), "2027-10-31T00:30+00:00"),
        (datetime(2027, 10, 31, 2, 30, fold=1, tzinfo=BERLIN), "2027-10-31T01:30+00:00"),
    ],
)
def test_a_time_is_that_of_its_zone_also_where_the_clocks_change(monkeypatch, at, utc):
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    now = datetime(2027, 3, 27, 17, tzinfo=BERLIN).timestamp()
    monkeypatch.setattr("tenure.shared.queue._new_task.time", lambda: now)
    expected = datetime.fromisoformat(utc).timestamp() - now
    store = tenure.open_store("memory:")
    assert new_task(WorkQueue(store, "x"), 1, at=at).delay == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"at": datetime.fromisoformat("2027-01-01")},
            ValueError,
            "^at must have a time zone, .* and 2027-01-01 00:00:00 has",
        ),
        ({"at": date(2027, 1, 1)}, TypeError, "^at must be a datetime, not date$"),
        ({"at": 60}, TypeError, "^at must be a datetime, not int$"),
        ({"at": datetime.max.replace(tzinfo=UTC)}, ValueError, "^at must be at most 1e.09 seconds from now"),
        (
            {"at": datetime(2027, 1, 1, tzinfo=UTC), "delay": 5},
            ValueError,
            "^a put has a delay or at, not both",
        ),
        ({"delay": timedelta(-1)}, ValueError, "^delay must be at least 0 seconds, not -86400$"),
        ({"expires": timedelta(0)}, ValueError, "^expires must be above 0 seconds, not 0"),
        ({"timeout": timedelta.max}, ValueError, "^timeout must be at most 1e.09 seconds"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
async def test_wrong_times_are_refused_by_name(store, way, options, error, message):
    queue = queue_of(store, way)
    if way is by_schedule and "at" in options:
        error, message = TypeError, "argument 'at'; the options of a schedule are priority, delay"
    with pytest.raises(error, match=message):
        await way(queue, **options)
    assert (await queue.statistics()).put == 0


async def test_a_time_does_not_move_while_the_put_waits_for_room(store, virtual_clock, monkeypatch):
    begun = virtual_clock.now()
    monkeypatch.setattr("tenure.shared.queue._new_task.time", lambda: 1e9 + virtual_clock.now() - begun)
    queue = WorkQueue(store, "books", max_size=1)
    at = datetime.fromtimestamp(1e9 + 100, UTC)
    await queue.put("first")
    async with anyio.create_task_group() as group:
        group.start_soon(partial(queue.put_many, [Item("later", at=at)]))
        await virtual_clock.advance(60)
        assert (await queue.statistics()).producers == 1
        async with queue.take():
            pass
    await virtual_clock.advance(39)
    assert (await queue.statistics()).delayed == 1
    await virtual_clock.advance(2)
    async with queue.take(timeout=0) as task:
        assert task.payload == "later"


async def test_the_name_of_a_child_is_refused_where_there_is_no_parent(store):
    queue = WorkQueue(store, "books")
    with pytest.raises(ValueError, match="^name is for items of Children.put_many, not 'one'"):
        await queue.put_many([Item(1), Item(2, name="one")])
    assert (await queue.statistics()).put == 0


async def test_an_option_that_belongs_to_a_key_is_refused(store):
    queue = WorkQueue(store, "books")
    for wrong in ({"on_duplicate": "keep"}, {"key_ttl": 1}, {"max_wait": 1}):
        for put in (queue.put, queue.try_put):
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{next(iter(wrong))}'"):
                await put(1, key="k", **wrong)
    assert (await queue.statistics()).put == 0


def test_an_item_is_a_payload_with_all_options():
    item = Item("page", name="one", **OPTIONS)
    assert (item.payload, item.name, item.options) == ("page", "one", OPTIONS)
    assert item == Item("page", name="one", **OPTIONS) != Item("page", **OPTIONS)
    assert PutOptions.__annotations__.keys() - {"at"} == OPTIONS.keys()
    assert Item[str]("page").payload == "page"


@pytest.mark.parametrize(
    "function",
    [
        *(WorkQueue.put, WorkQueue.try_put, WorkQueue.put_in, WorkQueue.put_in_sync, Item, Job.options),
        *(Schedule, Schedules.set, Processor.submit, Children.put),
        *(blocking.WorkQueue.put, blocking.WorkQueue.try_put, blocking.WorkQueue.put_in_sync),
        blocking.Job.options,
    ],
    ids=lambda function: function.__qualname__,
)
def test_the_signature_that_help_shows_names_every_option(function):
    shown = inspect.signature(function).parameters
    defaults = dict.fromkeys(PutOptions.__annotations__) | {"priority": 0, "delay": 0.0}
    if function in (Schedule, Schedules.set):
        del defaults["at"]  # the ticks are the times
    if function is Children.put:
        defaults["priority"] = None  # the parent's
    assert {name: shown[name].default for name in defaults} == defaults
    assert all(shown[name].kind is inspect.Parameter.KEYWORD_ONLY for name in defaults)
