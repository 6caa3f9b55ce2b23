"""What the tests of the user's own transactions look at, on a file and on a server."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from tenure import AcquireTimeout, Groups, Item, Key, QueueFull, Retry, WorkQueue
from tenure.types import GroupStatistics

_STATES = ("waiting", "delayed", "leased", "done", "dead", "cancelled", "expired", "discarded", "purged")


async def state_of(queue):
    """How many tasks are in each state that any is in."""
    statistics = await queue.statistics()
    assert await queue.verify()
    return {name: number for name in _STATES if (number := getattr(statistics, name))}


async def work_off_with_kills(queue, child, *arguments, kill_at):
    """Run a program that says each task it has done: killed after so many, again, and at last to the end."""
    script = [sys.executable, "-c", child, *arguments]
    for enough in (*kill_at, None):
        with subprocess.Popen(script, stdout=subprocess.PIPE) as process:
            try:
                for n, _ in enumerate(process.stdout):
                    if n == enough or (await queue.statistics()).unfinished == 0:
                        break
            finally:
                process.send_signal(signal.SIGKILL)


# Tests of both engines, whose modules import them: `begin()` begins a transaction on `db`, and commits.


async def test_put_in_keeps_and_replaces(store, db, begin):
    queue = WorkQueue(store, "jobs", max_size=2)
    with begin():
        first = queue.put_in_sync(db, "a", key=Key("k", "replace", ttl=60), delay=60)
        queue.put_in_sync(db, "other")
        # the queue is full, and this puts nothing new
        assert queue.put_in_sync(db, "b", key=Key("k", "keep")) == first
        assert queue.put_in_sync(db, "c", key=Key("k", "replace"), group="g") == first
    assert (await queue.get(first)).payload == "c"
    async with queue.take(0), queue.take(0):
        with begin(), pytest.raises(QueueFull):
            queue.put_in_sync(db, "d", key=Key("k", "replace"))
    with begin():
        assert queue.put_in_sync(db, "e", key=Key("k", "keep")) == first
        assert queue.put_in_sync(db, "f", key=Key("k", "replace")) != first
    assert await state_of(queue) == {"waiting": 1, "done": 2}
    assert await queue.verify()


async def test_a_commit_completes_one_of_a_group_and_puts_the_next_into_it(store, db, begin):
    queue = WorkQueue(store, "jobs", groups=Groups(limit=1, max_size=2))
    await queue.put("a0", group="a")
    async with queue.take() as task:
        with begin():
            task.complete_in_sync(db)
            queue.put_in_sync(db, "a1", group="a")
            queue.put_in_sync(db, "a2", group="a")
            with pytest.raises(QueueFull):
                queue.put_in_sync(db, "a3", group="a")
            with pytest.raises(ValueError, match="^group must"):
                queue.put_in_sync(db, "a3", group="")
            queue.put_in_sync(db, "b0", group="b")
            queue.put_in_sync(db, "plain")
    assert (await queue.groups().page()).records == [
        GroupStatistics("a", 2, 0, 0),
        GroupStatistics("b", 1, 0, 0),
    ]
    async with queue.take() as one, queue.take() as two, queue.take() as three:
        taken = {task.group: task.payload for task in (one, two, three)}
        assert taken == {"a": "a1", "b": "b0", None: "plain"}
        with pytest.raises(AcquireTimeout):
            async with queue.take(0):
                pass
        for task in (one, two, three):
            with begin():
                task.complete_in_sync(db)
    async with queue.take(0) as task:
        assert task.payload == "a2"
    assert await state_of(queue) == {"done": 5}
    assert (await queue.groups().page()).records == []


async def test_a_rollback_keeps_the_place_of_a_task_in_its_group(store, db, begin):
    queue = WorkQueue(store, "jobs", groups=Groups(limit=1), retry=Retry(backoff=0))
    await queue.put_many([Item("a0", group="a"), Item("a1", group="a")])
    with pytest.raises(ZeroDivisionError):
        async with queue.take() as task:
            with begin():
                task.complete_in_sync(db)
                queue.put_in_sync(db, "b0", group="b")
                raise ZeroDivisionError
    assert (await queue.groups().page()).records == [GroupStatistics("a", 2, 0, 0)]
    for name in ("a0", "a1"):
        async with queue.take() as task:
            assert task.payload == name
            with begin():
                task.complete_in_sync(db)
    assert await state_of(queue) == {"done": 2}


async def test_the_commit_wakes_those_that_wait_for_the_group(store, db, begin):
    """A taker for its next task, and a producer for room in it."""
    queue = WorkQueue(store, "jobs", groups=Groups(limit=1, max_size=2))
    await queue.put_many([Item("a0", group="a"), Item("a1", group="a")])
    taken = []

    async def take():
        async with queue.take() as task:
            taken.append(task.payload)

    with anyio.fail_after(50):
        async with queue.take() as task, anyio.create_task_group() as group:
            group.start_soon(take)
            group.start_soon(lambda: queue.put("a2", group="a"))
            while not (await queue.statistics()).producers:
                await anyio.sleep(0.01)
            await anyio.sleep(0.05)
            assert taken == []
            with begin():
                task.complete_in_sync(db)
    assert taken == ["a1"]
    assert (await queue.groups().page()).records == [GroupStatistics("a", 1, 0, 0)]


async def test_put_in_takes_all_options_of_put(store, db, begin):
    queue = WorkQueue(store, "jobs")
    with begin():
        first = queue.put_in_sync(db, {}, **OPTIONS)
        assert queue.put_in_sync(db, {"second": True}, **OPTIONS) == first
        queue.put_in_sync(db, {}, at=datetime.now(UTC) + timedelta(hours=1))
        for wrong in ({"at": datetime.now()}, {"at": datetime.now(UTC), "delay": 1}):  # noqa: DTZ005 that is wrong
            with pytest.raises(ValueError, match="at must have a time zone|not both"):
                queue.put_in_sync(db, {}, **wrong)
    await check_options(queue, first)
    assert (await queue.statistics()).delayed == 2
    with pytest.raises(TypeError, match=r"^connection must be asynchronous, .* call the same with _sync"):
        await queue.put_in(db, {})


OPTIONS = {
    "priority": 3,
    "delay": timedelta(minutes=1),
    "key": Key("invoice-7", "replace", ttl=timedelta(days=1), within=600),
    "group": "ann",
    "expires": 900,
    "deadline": timedelta(hours=1),
    "timeout": 20,
    "retry": Retry(attempts=5),
    "meta": {"tenant": "ann"},
}


async def check_options(queue, task_id):
    """The task has the `OPTIONS`."""
    record = await queue.get(task_id)
    assert (record.state, record.priority, record.key, record.group) == ("delayed", 3, "invoice-7", "ann")
    assert (record.timeout, record.retry, record.meta) == (20, Retry(attempts=5), {"tenant": "ann"})
    assert 3000 < record.deadline <= 3600
