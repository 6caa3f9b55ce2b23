"""Groups of tasks: turns, weights, limits, order, full groups, and claimers that take turns."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from functools import partial

import anyio
import depth
import pytest

import tenure
from tenure import (
    AcquireTimeout,
    EngineError,
    Groups,
    Item,
    Job,
    Limit,
    QueueFull,
    ResourcePool,
    Retry,
    RetryLater,
    Worker,
    WorkQueue,
)
from tenure.engine import CloseSession, Configure, NewTask, Put, PutChildren, written
from tenure.errors import CursorConflict
from tenure.processor import Context, Processor
from tenure.shared.queue._groups import group_of_children
from tenure.types import GroupStatistics


async def take_one(queue, timeout=0):
    async with queue.take(timeout) as task:
        return task.payload


async def take_all(queue):
    """Take and complete, one after the other, all that can be taken now."""
    taken = []
    with pytest.raises(AcquireTimeout):
        while True:
            taken.append(await take_one(queue))
    return taken


async def fail(queue, error=ZeroDivisionError):
    """Take a task and fail; return its payload."""
    try:
        async with queue.take(0) as task:
            raise error
    except ZeroDivisionError:
        pass
    return task.payload


@asynccontextmanager
async def held(queue, number):
    """So many tasks are leased for as long as the block lasts, and then completed."""
    tasks, end = [], anyio.Event()

    async def hold():
        async with queue.take(5) as task:
            tasks.append(task)
            await end.wait()

    async with anyio.create_task_group() as group:
        for _ in range(number):
            group.start_soon(hold)
        while len(tasks) < number:
            await anyio.sleep(0.01)
        yield tasks
        end.set()


async def all_is_well(queue, **counts):
    audit = await queue.verify()
    assert audit, audit.problems
    assert (audit.statistics.producers, audit.statistics.reserved) == (0, 0)
    for name, number in counts.items():
        assert getattr(audit.statistics, name) == number, audit.statistics


def items(group, number, start=0):
    return [Item(f"{group}{n}", group=group) for n in range(start, start + number)]


# what is wrong is refused at once, by its name

SETTINGS = [
    ({"rate": 5}, TypeError, r"^rate must be a Limit, such as Limit\(100, per=1\), not int"),
    ({"groups": Groups(rate=(5, 1))}, TypeError, "^groups.rate must be a Limit, .* not tuple"),
    (
        {"groups": Groups(rate=Limit(5, unit="tokens"))},
        ValueError,
        "^groups.rate counts tasks, and has no unit: 'tokens'",
    ),
    ({"groups": Groups(limit=0)}, ValueError, r"^groups.limit must be at least 1, not 0$"),
    ({"groups": Groups(limit=-1)}, ValueError, "^groups.limit must be at least 1"),
    ({"groups": Groups(limit=2**40)}, ValueError, "^groups.limit must be at most"),
    ({"groups": Groups(limit=True)}, TypeError, "^groups.limit must be an int, not bool"),
    ({"groups": Groups(limit=1.0)}, TypeError, "^groups.limit must be an int, not float"),
    ({"groups": Groups(limit="1")}, TypeError, "^groups.limit must be an int, not str"),
    ({"groups": Groups(max_size=0)}, ValueError, "^groups.max_size must be at least 1"),
    ({"groups": Groups(max_size=2**40)}, ValueError, "^groups.max_size must be at most"),
    ({"groups": Groups(max_size=False)}, TypeError, "^groups.max_size must be an int, not bool"),
    ({"groups": Groups(max_size=1.5)}, TypeError, "^groups.max_size must be an int, not float"),
    (
        {"groups": Groups(weights=[("x", 1)])},
        TypeError,
        "^groups.weights must be a mapping of groups to numbers, not list",
    ),
    ({"groups": Groups(weights="x")}, TypeError, "^groups.weights must be a mapping .*, not str"),
    (
        {"groups": Groups(weights={"x": 0})},
        ValueError,
        r"^groups.weights\['x'\] must be at least 0.001, not 0",
    ),
    (
        {"groups": Groups(weights={"y": 1, "x": -1})},
        ValueError,
        r"^groups.weights\['x'\] must be at least 0.001",
    ),
    ({"groups": Groups(weights={"x": 1001})}, ValueError, r"^groups.weights\['x'\] must be at most 1000"),
    ({"groups": Groups(weights={"x": float("nan")})}, ValueError, r"^groups.weights\['x'\] must be"),
    ({"groups": Groups(weights={"x": float("inf")})}, ValueError, r"^groups.weights\['x'\] must be at most"),
    (
        {"groups": Groups(weights={"x": True})},
        TypeError,
        r"^groups.weights\['x'\] must be a number, not bool",
    ),
    ({"groups": Groups(weights={"x": "2"})}, TypeError, r"^groups.weights\['x'\] must be a number, not str"),
    (
        {"groups": Groups(weights={"x": None})},
        TypeError,
        r"^groups.weights\['x'\] must be a number, not NoneType",
    ),
    ({"groups": Groups(weights={5: 1})}, TypeError, "^groups.weights: the group must be a str, not int"),
    ({"groups": Groups(weights={0: 1})}, TypeError, "^groups.weights: the group must be a str, not int"),
    ({"groups": Groups(weights={b"": 1})}, TypeError, "^groups.weights: the group must be a str, not bytes"),
    ({"groups": Groups(weights={"\ud800": 1})}, ValueError, "^groups.weights: the group must .*surrogates"),
    (
        {"groups": Groups(weights={"\0a": 1})},
        ValueError,
        "^groups.weights: the group must not begin with a null character",
    ),
    ({"groups": Groups(weights={"x" * 2000: 1})}, ValueError, "^groups.weights: the group must"),
    (
        {"groups": Groups(weights={f"x{n}": 1 for n in range(1001)})},
        ValueError,
        "^groups.weights must have at most 1000 groups",
    ),
    (
        {"groups": Groups(on_retry="wait")},
        ValueError,
        "^groups.on_retry must be 'hold' or 'pass', not 'wait'",
    ),
    ({"groups": Groups(on_retry=None)}, ValueError, "^groups.on_retry must be 'hold' or 'pass', not None"),
    ({"groups": Groups(on_retry=["hold"])}, ValueError, "^groups.on_retry must be 'hold' or 'pass'"),
]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize(("options", "error", "match"), SETTINGS)
async def test_wrong_settings(store, options, error, match):
    queue = WorkQueue(store, "jobs", groups=Groups(limit=1))
    with pytest.raises(error, match=match):
        WorkQueue(store, "jobs", **options)
    with pytest.raises(error, match=match):
        await queue.configure(**options)
    # what was said before stays in force
    await queue.put_many(items("a", 2))
    async with held(queue, 1):
        assert await take_all(queue) == []


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("group", "error", "match"),
    [
        ("", ValueError, "^group must"),
        (5, TypeError, "^group must be a str, not int"),
        (b"a", TypeError, "^group must be a str, not bytes"),
        ("\ud800", ValueError, "^group must .*surrogates"),
        ("x" * 2000, ValueError, "^group must"),
    ],
)
async def test_a_wrong_group(store, group, error, match):
    queue = WorkQueue(store, "jobs")
    with pytest.raises(error, match=match):
        await queue.put(1, group=group)
    with pytest.raises(error, match=match):
        await queue.try_put(1, group=group)
    with pytest.raises(error, match=match):
        await queue.put_many([0, Item(1, group=group)])
    with pytest.raises(error, match=match):
        await Job(queue, take_one).options(group=group).put(1)
    with pytest.raises(error, match=match.replace("group", "fair_for")):
        ResourcePool(store, "keys").claim(fair_for=group)
    assert (await queue.statistics()).put == 0


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("limit", "error"),
    [(0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError)],
)
async def test_a_wrong_limit_of_groups(store, limit, error):
    with pytest.raises(error, match="^limit must be"):
        await WorkQueue(store, "jobs").groups().page(limit=limit)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
async def test_a_wrong_expectation(store):
    queue = WorkQueue(store, "jobs", max_size=2)
    with pytest.raises(ValueError, match="^expected needs a cursor"):
        await queue.put_many([1], expected=1)
    with pytest.raises(ValueError, match="^expected needs a cursor"):
        await queue.put_many([1], expected=None)
    with pytest.raises(ValueError, match="^expected needs .* one portion"):
        await queue.put_many([1, 2, 3], cursor=("c", 1), expected=None)
    with pytest.raises(TypeError, match="what is expected cannot be encoded"):
        await queue.put_many([1], cursor=("c", 1), expected={1})
    assert (await queue.statistics()).put == 0


# turns


async def test_the_name_that_the_engine_keeps_for_a_group_of_children_is_refused(store, virtual_clock):
    with pytest.raises(ValueError, match="^group must not begin with a null character: "):
        await WorkQueue(store, "jobs").put(1, group=group_of_children("a"))


async def test_a_group_of_children_is_shown_under_its_name(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    await queue.put("x", group="a")
    async with queue.take(0) as task:
        children = tuple(NewTask(b'"y"', group=group_of_children("a")) for _ in range(2))
        put = PutChildren(queue.key, task.id, task.token, queue.key, ("y", "z"), children)
        first, _ = (await store._handle.call(put)).ids
        assert (await queue.groups().page()).records == [
            GroupStatistics("a", 2, 0, 0, children=True),
            GroupStatistics("a", 0, 0, 1),
        ]
        assert (await queue.get(first)).group == "a"
        async with held(queue, 2) as tasks:
            assert [task.group for task in tasks] == ["a", "a"]
        await all_is_well(queue, leased=1, groups=1)


# limits


async def test_no_more_of_a_group_are_leased_than_its_limit(store, virtual_clock):
    queue = WorkQueue(store, "jobs", groups=Groups(limit=2))
    await queue.put_many([*items("a", 5), *items("b", 1), 0, 1, 2])
    async with held(queue, 6) as tasks:
        assert Counter(task.group for task in tasks) == {"a": 2, "b": 1, None: 3}
        assert await take_all(queue) == []
        assert (await queue.groups().page()).records == [
            GroupStatistics("a", 3, 0, 2),
            GroupStatistics("b", 0, 0, 1),
        ]
        await all_is_well(queue, leased=6, groups=2)
    assert await take_all(queue) == ["a2", "a3", "a4"]


# order


# full groups


async def test_put_many_puts_each_group_in_portions_of_its_own(store, virtual_clock):
    queue = WorkQueue(store, "jobs", groups=Groups(max_size=2))
    mixed = [*items("a", 5), 0, *items("b", 3), 1]
    outcomes = []

    async def produce():
        outcomes.extend(await queue.put_many(mixed, cursor=("input", 9)))

    async with anyio.create_task_group() as group:
        group.start_soon(produce)
        await virtual_clock.settle()
        assert await queue.cursors() == {}
        taken = []
        while not outcomes:
            async for group_now in queue.groups():
                assert group_now.unfinished <= 2
            taken += await take_all(queue)
            await virtual_clock.settle()
        taken += await take_all(queue)
    assert sorted(map(str, taken)) == sorted(str(getattr(i, "payload", i)) for i in mixed)
    assert [t for t in taken if str(t).startswith("a")] == [f"a{n}" for n in range(5)]
    assert len(set(outcomes)) == len(mixed), "in the order of the items"
    by_id = {i: str(getattr(item, "payload", item)) for i, item in zip(outcomes, mixed, strict=True)}
    assert [by_id[i] for i in sorted(outcomes)[:2]] == ["a0", "a1"]
    assert await queue.cursors() == {"input": 9}
    assert await queue.put_many([], cursor=("input", 10)) == []


async def test_put_many_fits_into_groups_whose_size_another_process_has_set(store, virtual_clock):
    await WorkQueue(store, "jobs", groups=Groups(max_size=2)).configure(groups=Groups(max_size=2))
    queue, outcomes = WorkQueue(store, "jobs"), []
    with pytest.raises(QueueFull):
        await queue.put_many([*items("a", 3), *items("b", 1)], cursor=("input", 9), expected=None)
    async with anyio.create_task_group() as group:

        async def produce():
            outcomes.extend(await queue.put_many([*items("a", 5), 0, *items("b", 3)], cursor=("input", 9)))

        group.start_soon(produce)
        taken = []
        while len(taken) < 9:
            taken.append(await take_one(queue, timeout=None))
            assert all(one.unfinished <= 2 for one in (await queue.groups().page()).records)
    assert len(set(outcomes)) == 9
    assert [t for t in taken if str(t).startswith("a")] == [f"a{n}" for n in range(5)]
    assert await queue.cursors() == {"input": 9}
    await all_is_well(queue, done=9, groups=0)


# settings


async def test_a_description_without_settings_changes_nothing(recording, open_store_on):
    async with tenure.open_store(recording) as store, open_store_on() as other:
        settled = WorkQueue(other, "jobs", groups=Groups(limit=1))
        await settled.put_many(items("a", 2))
        plain = WorkQueue(store, "jobs")
        await plain.put("x", group="b")
        async with held(plain, 2):
            assert await take_all(plain) == []
        assert [op.changes for op in recording.take(Configure)] == [()]


async def test_settings_are_said_once_and_before_anything_else(recording, virtual_clock):
    async with tenure.open_store(recording, ttl=30) as store:
        queue = WorkQueue(
            store, "jobs", groups=Groups(limit=1, weights={"a": 2}, max_size=7, on_retry="pass")
        )
        await queue.put_many(items("a", 3))
        await take_all(queue)
        WorkQueue(store, "jobs", groups=Groups(limit=1, weights={"a": 2}, max_size=7, on_retry="pass"))
        WorkQueue(store, "jobs")
        await queue.put(1)
        sent = recording.take(Configure, Put)
        named = {"group_limit": 1, "weights": (("a", 2.0), ("\0a", 2.0)), "group_size": 7, "hold": False}
        changes = tuple((name, written(name, value)) for name, value in named.items())
        assert [op for op in sent if isinstance(op, Configure)] == [sent[0]]
        assert sent[0] == Configure("tenure:queue:jobs", store.process, changes)
        WorkQueue(store, "jobs", groups=Groups(limit=2))
        await queue.put(1)
        assert [op.changes for op in recording.take(Configure)] == [(("group_limit", "2"),)]


async def test_what_another_process_has_set_stays_in_a_new_session(open_store_on, virtual_clock):
    async with open_store_on(ttl=3) as a, open_store_on(ttl=3) as b:
        queue, other = WorkQueue(a, "jobs", groups=Groups(limit=1)), WorkQueue(b, "jobs")
        await queue.put_many(items("a", 3))
        await other.configure(groups=Groups(limit=2))
        (session,) = a._handle.sessions
        await b._handle.call(CloseSession(session.id))
        await anyio.sleep(4)
        await queue.put("x")
        async with held(other, 3) as tasks:
            assert Counter(task.group for task in tasks) == {"a": 2, None: 1}
            assert await take_all(other) == []


async def test_settings_that_were_refused_are_logged_and_said_again(
    faulty, faulty_store, virtual_clock, caplog
):
    queue = WorkQueue(faulty_store, "jobs", groups=Groups(limit=1))
    faulty.refused = Configure
    await queue.put_many(items("a", 3))
    assert [line.partition(" error=")[0] for line in caplog.messages] == ["queue.settings_refused queue=jobs"]
    caplog.clear()
    with pytest.raises(EngineError, match="refused"):
        await queue.configure(groups=Groups(limit=1))
    faulty.refused = ()
    await queue.put(1)
    async with held(queue, 2):
        assert await take_all(queue) == []


async def test_what_was_said_before_does_not_come_after_what_is_set(faulty, faulty_store, virtual_clock):
    queue = WorkQueue(faulty_store, "jobs")
    await faulty_store._handle.session(faulty_store.ttl)
    await queue.configure(groups=Groups(limit=1))
    faulty.pause()
    async with anyio.create_task_group() as group:
        group.start_soon(partial(queue.configure, groups=None))
        await virtual_clock.settle()
        group.start_soon(queue.put_many, items("a", 2))
        await virtual_clock.settle()
        faulty.resume()
    async with held(queue, 2):
        pass


async def test_what_was_refused_is_not_said_later(faulty, faulty_store, virtual_clock):
    queue = WorkQueue(faulty_store, "jobs", groups=Groups(limit=2))
    faulty.refused = Configure
    with pytest.raises(EngineError, match="refused"):
        await queue.configure(groups=Groups(limit=1))
    faulty.refused = ()
    await queue.put_many(items("a", 3))
    async with held(queue, 2):
        assert await take_all(queue) == []


# what they are seen as


async def test_the_group_is_in_the_task_and_its_records(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
    task_id = await queue.put(1, group="a")
    assert (await queue.get(task_id)).group == "a"
    assert [record.group for record in (await queue.tasks("waiting").page()).records] == ["a"]
    async with held(queue, 1) as tasks:
        assert tasks[0].group == "a"
        assert [record.group for record in (await queue.tasks("leased").page()).records] == ["a"]
    assert (await queue.get(task_id)).group == "a"
    plain = await queue.put(1)
    assert (await queue.get(plain)).group is None
    await take_all(queue)
    dead = await queue.put(2, group="b")
    await fail(queue)
    assert [record.group for record in (await queue.tasks("dead").page()).records] == ["b"]
    assert await queue.requeue([dead]) == 1
    async with queue.take(0) as task:
        assert task.group == "b"


async def test_jobs_have_groups(store):
    ran = []

    async def send(to):
        ran.append(to)

    job = Job(WorkQueue(store, "mail", groups=Groups(limit=1)), send)
    await job.options(group="tenant-1").put("a")
    await job.options(group="tenant-1").try_put("b")
    await job.put("c")
    assert (await job.queue.groups().page()).records == [GroupStatistics("tenant-1", 2, 0, 0)]
    await job.queue.put_many([job.options(group="tenant-2").item("d")])
    assert (await job.queue.statistics()).groups == 2
    worker = Worker(job, concurrency=3)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await job.queue.join()
        await worker.drain()
    assert sorted(ran) == ["a", "b", "c", "d"]
    assert ran.index("a") < ran.index("b")


# workers and processors


async def test_a_processor_keeps_the_order_of_its_groups(store, virtual_clock):
    ended, tries = defaultdict(list), Counter()

    async def handler(task: tenure.Task, context: Context):
        tries[task.payload] += 1
        await anyio.sleep(0.01)
        if tries[task.payload] == 1 and task.payload[1] in "24":
            raise RetryLater(0.1, counts=False)
        ended[task.group].append(task.payload)

    async with Processor(store, "work", handler) as processor:
        await processor.queue().configure(groups=Groups(limit=1, weights={"a": 2}))
        await processor.submit_many(item for n in range(6) for g in "abc" for item in items(g, 1, n))
        await processor.join()
        assert ended == {g: [f"{g}{n}" for n in range(6)] for g in "abc"}
        await all_is_well(processor.queue(), done=18)


# rates


async def test_a_group_starts_at_its_rate_while_others_go_on(store, virtual_clock):
    """The times at which the tasks start, with one runner for all of them."""
    queue = WorkQueue(store, "jobs", groups=Groups(rate=Limit(2, per=1, burst=1)))
    await queue.put_many([*items("a", 3), *items("b", 2), *items(None, 2)])
    started = defaultdict(list)
    for _ in range(7):
        async with queue.take(5) as task:
            started[task.group].append(virtual_clock.now())
    assert started[None] == [0, 0]
    assert started["a"] == [pytest.approx(at, abs=0.1) for at in (0, 0.5, 1)]
    assert started["b"] == [pytest.approx(at, abs=0.1) for at in (0, 0.5)]
    assert (await queue.statistics()).done == 7


async def test_a_queue_starts_at_its_rate(store, virtual_clock):
    await virtual_clock.advance(
        10
    )  # in virtual time the clock of the server begins at 0: a burst has a past to come from
    began = virtual_clock.now()
    queue = WorkQueue(store, "jobs", rate=Limit(10, per=1, burst=2))
    await queue.put_many(range(12))
    started = []

    async def runner():
        while len(started) < 12:
            with contextlib.suppress(AcquireTimeout):
                async with queue.take(1):
                    started.append(virtual_clock.now() - began)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(runner)
    assert started[1] == 0
    assert 1.0 <= started[-1] <= 1.6


async def test_a_group_that_is_held_off_keeps_no_runner(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    await queue.put_many([*items("a", 2), *items("b", 1)])
    await queue.hold_off(30, group="a")
    await queue.hold_off(10, group="a")
    await queue.hold_off(0)
    assert {group.group: round(group.starts_in) for group in (await queue.groups().page()).records} == {
        "a": 30,
        "b": 0,
    }
    assert await take_all(queue) == ["b0"]
    await queue.hold_off(40)
    assert round((await queue.statistics()).starts_in) == 40
    async with queue.take(60) as task:
        assert task.payload == "a0"
        assert 40 <= virtual_clock.now() <= 41
    assert not (await queue.statistics()).paused


@pytest.mark.parametrize("odd", [-1, float("nan"), "5", None, True])
async def test_odd_times_to_hold_off(store, odd):
    queue = WorkQueue(store, "jobs")
    with pytest.raises((TypeError, ValueError), match="seconds must be"):
        await queue.hold_off(odd)
    with pytest.raises((TypeError, ValueError), match="group must"):
        await queue.hold_off(1, group="")


# cursors that are compared


async def test_a_cursor_is_stored_only_if_it_has_the_expected_value(store):
    queue = WorkQueue(store, "jobs")
    await queue.put_many([1], cursor=("input", {"line": 1}), expected=None)
    with pytest.raises(CursorConflict, match=r"'input' has the value \{'line': 1\}") as conflict:
        await queue.put_many([2], cursor=("input", {"line": 2}), expected=None)
    error = conflict.value
    assert (error.key, error.name, error.value) == (queue.key, "input", {"line": 1})
    with pytest.raises(CursorConflict):
        await queue.put_many([2], cursor=("input", {"line": 2}), expected={"line": 0})
    with pytest.raises(CursorConflict) as conflict:
        await queue.put_many([2], cursor=("other", 1), expected=0)
    assert conflict.value.value is None
    await queue.put_many([2], cursor=("input", {"line": 2}), expected={"line": 1})
    with pytest.raises(CursorConflict):
        await queue.put_many([], cursor=("input", 3), expected=0)
    assert await queue.put_many([], cursor=("input", 3), expected={"line": 2}) == []
    assert await queue.cursors() == {"input": 3}
    assert await take_all(queue) == [1, 2]


# claimers take turns


async def test_a_queue_in_use_verifies(store, virtual_clock):
    queue = WorkQueue(store, "jobs")

    async def work(name):
        while True:
            await queue.put(None, group=name)
            await take_one(queue, None)

    async with anyio.create_task_group() as group:
        for n in range(3):
            group.start_soon(work, f"g{n}")
        audits = [await queue.verify() for _ in range(depth.share(300))]
        group.cancel_scope.cancel()
    assert [problem for audit in audits for problem in audit.problems] == []
    assert len({audit.statistics.groups for audit in audits}) > 1
