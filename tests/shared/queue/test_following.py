"""One task followed: its record at any time, its changes, what failed, what travels with it, and when it is due."""

from __future__ import annotations

import re

import anyio
import depth
import pytest

import tenure
from tenure import Discard, Item, Keep, ResultUnavailable, Retry, RetryLater, Worker, WorkQueue
from tenure.engine import Scan
from tenure.engines.memory import MemoryEngine
from tenure.testing import FaultyEngine

NO_PAUSE = Retry(attempts=3, backoff=0.0, jitter=0.0)
DAY = 86400.0


async def fail(queue, error):
    try:
        async with queue.take(timeout=1):
            raise error
    except type(error):
        pass


# ------------------------------------------------------------------------------------------------------------- records


async def test_a_record_says_all_that_is_known(store):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put({"to": "ann"}, priority=3, key="ann", meta={"tenant": "\u00e4 42"})
    record = await queue.get(task_id)
    assert (record.id, record.state, record.payload, record.priority) == (
        task_id,
        "waiting",
        {"to": "ann"},
        3,
    )
    assert (record.key, record.meta, record.progress, record.error) == (
        "ann",
        {"tenant": "\u00e4 42"},
        None,
        None,
    )
    async with queue.take() as task:
        assert task.meta == {"tenant": "\u00e4 42"}
        await task.progress(0.5)
        record = await queue.get(task_id)
        assert (record.state, record.progress, record.deliveries) == ("leased", 0.5, 1)
        task.set_result("sent")
    record = await queue.get(task_id)
    assert (record.state, record.result, record.progress) == ("done", "sent", 0.5)
    assert record.ended
    assert record.meta == {"tenant": "\u00e4 42"}


async def test_a_task_is_found_by_its_key_while_it_is_unfinished(store):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1, key="ann")
    assert (await queue.get(key="ann")).id == task_id
    assert await queue.get(key="bob") is None
    async with queue.take():
        pass
    assert await queue.get(key="ann") is None
    assert await queue.get(task_id + 1) is None
    for arguments in ({}, {"task_id": 1, "key": "ann"}):
        with pytest.raises(TypeError, match="a task_id or a key"):
            await queue.get(**arguments)


async def test_a_failed_try_is_on_record_while_the_task_rests_and_when_it_is_dead(store, virtual_clock):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=3, backoff=5.0, jitter=0.0))
    task_id = await queue.put(1)
    await fail(queue, ValueError("first"))
    record = await queue.get(task_id)
    assert (record.state, record.error, len(record.failed_tries)) == ("delayed", "ValueError: first", 1)
    assert record.traceback.startswith("Traceback")
    assert "raise error" in record.traceback
    assert "tenure/shared" not in record.traceback
    (listed,) = (await queue.tasks("delayed").page()).records
    assert listed.traceback == record.traceback
    await anyio.sleep(6)
    await fail(queue, KeyError("second"))
    await anyio.sleep(11)
    await fail(queue, ValueError("third"))
    (dead,) = (await queue.tasks("dead").page()).records
    assert dead.error == "ValueError: third"
    assert dead.traceback.endswith("ValueError: third\n")
    errors = ("ValueError: first", "KeyError: 'second'", "ValueError: third")
    for number, (line, error) in enumerate(zip(dead.failed_tries, errors, strict=True), 1):
        began = r"(, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)?"  # a store in memory knows no dates
        assert re.fullmatch(rf"try {number}{began}, ran \d+\.\d{{3}} s: {re.escape(error)}", line)
    assert await queue.get(task_id) == dead
    assert await queue.requeue([task_id]) == 1
    assert (await queue.get(task_id)).error == "ValueError: third"


async def test_of_many_tries_eleven_are_on_record_each_in_a_line(store):
    queue = WorkQueue(store, "jobs", retry=Retry(attempts=20, backoff=0.0, jitter=0.0))
    task_id = await queue.put(1)
    for number in range(1, 14):
        await fail(queue, ValueError(f"{number} " + "x" * 5000 + "\n" + "y" * 50_000))
    record = await queue.get(task_id)
    assert [line.split()[1] for line in record.failed_tries] == [f"{number}," for number in range(3, 14)]
    assert max(map(len, record.failed_tries)) <= 200
    assert record.error.startswith("ValueError: 13 x")
    assert len(record.traceback.encode()) <= 8192
    assert record.traceback.startswith("ValueError: 13 x")


async def test_the_last_frames_of_a_long_traceback_are_kept(store):
    queue = WorkQueue(store, "jobs", retry=NO_PAUSE)
    task_id = await queue.put(1)

    def sink(depth):
        if depth:
            (sink if depth % 2 else sunk)(depth - 1)
        raise ValueError("at the bottom")

    def sunk(depth):
        sink(depth - 1)

    async with anyio.create_task_group() as group:

        async def handler(task: tenure.Task):
            sink(400)

        worker = Worker(queue, handler)
        group.start_soon(worker.run)
        async with queue.follow(task_id) as changes:
            async for record in changes:
                last = record
        group.cancel_scope.cancel()
    assert last.state == "dead"
    assert len(last.traceback.encode()) <= 8192
    assert last.traceback.startswith("...\n  File")
    assert last.traceback.endswith("ValueError: at the bottom\n")


async def test_a_queue_may_keep_no_tracebacks(store):
    queue = WorkQueue(store, "jobs", retry=NO_PAUSE, keep=Keep(tracebacks=False))
    task_id = await queue.put(1)
    await fail(queue, ValueError("secret"))
    record = await queue.get(task_id)
    assert (record.error, record.traceback) == ("ValueError: secret", "")


async def test_what_was_discarded_or_postponed_says_why(store):
    queue = WorkQueue(store, "jobs")
    one, other = await queue.put_many([1, 2])
    async with queue.take():
        raise Discard("no such user")
    async with queue.take():
        raise RetryLater(60, counts=False) from ValueError("429")
    discarded, postponed = await queue.get(one), await queue.get(other)
    assert (discarded.state, discarded.error) == ("discarded", "no such user")
    assert (postponed.state, postponed.attempts) == ("delayed", 0)
    assert postponed.error.startswith("RetryLater")
    assert "ValueError: 429" in postponed.traceback


async def test_an_error_that_cannot_be_formatted_is_on_record_all_the_same(store):
    class Odd(ValueError):
        @property
        def __notes__(self):
            raise RuntimeError("no notes")

    queue = WorkQueue(store, "jobs", retry=NO_PAUSE)
    task_id = await queue.put(1)
    await fail(queue, Odd("odd"))
    record = await queue.get(task_id)
    assert (record.state, record.attempts, record.error) == ("waiting", 1, "Odd: odd")
    assert "no notes" in record.traceback


async def test_an_error_whose_text_no_encoding_takes(store):
    queue = WorkQueue(store, "jobs", retry=NO_PAUSE)
    task_id = await queue.put(1)
    await fail(queue, ValueError("\ud800 \0 \u00e4"))
    record = await queue.get(task_id)
    assert record.error.endswith(" \0 \u00e4")


# --------------------------------------------------------------------------------------------------------------- meta


@pytest.mark.parametrize(
    ("meta", "error", "problem"),
    [
        (["a"], TypeError, "meta must be a mapping of str to str, not list"),
        ({"a": 1}, TypeError, "'a': 1"),
        ({1: "a"}, TypeError, "1: 'a'"),
        ({"a": "x" * 1100}, ValueError, "at most 1024 bytes as JSON, not 1108"),
        ({"a": "\ud800"}, ValueError, "lone surrogates"),
    ],
)
async def test_a_meta_that_will_not_do(store, meta, error, problem):
    queue = WorkQueue(store, "jobs")
    for put in (queue.put, queue.try_put):
        with pytest.raises(error, match=problem):
            await put(1, meta=meta)
    with pytest.raises(error, match=problem):
        await queue.put_many([1, Item(2, meta=meta)])
    assert (await queue.statistics()).put == 0


# -------------------------------------------------------------------------------------------------------- dead letters


async def test_dead_letters_stay_for_half_a_year_unless_it_is_said_otherwise(store, virtual_clock):
    queue, ours = (
        WorkQueue(store, "jobs", retry=Retry(attempts=1)),
        WorkQueue(store, "ours", keep=Keep(dead=None)),
    )
    for one in (queue, ours):
        await one.put(1)
    await fail(queue, ValueError("no"))
    async with ours.take():
        pass
    assert (await queue.settings()).keep.dead == 180 * DAY
    assert (await ours.settings()).keep.dead is None
    assert len((await queue.tasks("dead").page()).records) == 1


# ---------------------------------------------------------------------------------------------------------- reschedule


async def test_a_delayed_task_is_made_ready_and_a_ready_one_delayed(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    one, other = await queue.put_many([Item(1, delay=1000), 2])
    assert await queue.reschedule(one)
    assert await queue.reschedule(other, 5)
    taken = []
    start = virtual_clock.now()
    for _ in range(2):
        async with queue.take(timeout=20) as task:
            taken.append((task.id, round(virtual_clock.now() - start)))
            assert not await queue.reschedule(task.id)
    assert taken == [(one, 0), (other, 5)]
    assert not await queue.reschedule(one)
    assert not await queue.reschedule(other + 1)


async def test_odd_arguments_of_reschedule(store):
    queue = WorkQueue(store, "jobs")
    with pytest.raises(ValueError, match="delay must be at least 0"):
        await queue.reschedule(1, -1)
    with pytest.raises(ValueError, match="task_id must be the id"):
        await queue.reschedule(0)


# -------------------------------------------------------------------------------------------------------------- follow


async def test_each_change_is_seen_until_the_end(open_store_on, virtual_clock):
    async with open_store_on(ttl=300) as a, open_store_on(ttl=300) as b:
        queue, other = WorkQueue(a, "jobs", retry=Retry(backoff=5.0, jitter=0.0)), WorkQueue(b, "jobs")
        task_id = await queue.put(1)
        seen = []

        async def follow():
            async with other.follow(task_id) as changes:
                async for record in changes:
                    seen.append(
                        (record.state, record.progress, record.error, round(virtual_clock.now() - start))
                    )

        start = virtual_clock.now()
        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await anyio.sleep(10)
            try:
                async with queue.take():
                    await anyio.sleep(10)
                    raise ValueError("no")
            except ValueError:
                pass
            await anyio.sleep(10)
            async with queue.take() as task:
                for step in (1, 2):
                    await task.progress(step)
                    await anyio.sleep(10)
    # what is taken and reports at once may be one change
    assert [one for one in seen if one != ("leased", None, "ValueError: no", 30)] == [
        ("waiting", None, None, 0),
        ("leased", None, None, 10),
        ("delayed", None, "ValueError: no", 20),
        ("waiting", None, "ValueError: no", 25),
        ("leased", 1, "ValueError: no", 30),
        ("leased", 2, "ValueError: no", 40),
        ("done", 2, None, 50),
    ]


async def test_an_unknown_task_cannot_be_followed(store):
    queue = WorkQueue(store, "jobs")
    async with queue.follow(99) as changes:
        with pytest.raises(ResultUnavailable, match="99"):
            await anext(changes)
    with pytest.raises(RuntimeError, match="read inside that block"):
        await anext(changes)
    with pytest.raises(ValueError, match="task_id"):
        queue.follow(0)


async def test_a_block_is_entered_again_but_not_twice_at_once(store):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    changes = queue.follow(task_id)
    for _ in range(2):
        async with changes:
            assert (await anext(changes)).state == "waiting"
            with pytest.raises(RuntimeError, match="entered already"):
                await changes.__aenter__()


async def test_a_purged_task_ends_its_followers(store, virtual_clock):
    queue = WorkQueue(store, "jobs")
    task_id = await queue.put(1)
    async with queue.follow(task_id) as changes:
        assert (await anext(changes)).state == "waiting"
        await queue.purge("waiting")
        with pytest.raises(ResultUnavailable):
            await anext(changes)


async def test_the_queue_object_may_go_while_it_is_followed(store, virtual_clock):
    task_id = await WorkQueue(store, "jobs").put(1)
    async with WorkQueue(store, "jobs").follow(task_id) as changes:
        await anext(changes)
        start = virtual_clock.now()
        async with WorkQueue(store, "jobs").take() as task:
            await task.progress(1)
        assert [record.progress async for record in changes][-1] == 1
        assert virtual_clock.now() - start < 1


class Counting(FaultyEngine):
    asked = 0

    async def execute(self, operations):
        self.asked += sum(isinstance(operation, Scan) for operation in operations)
        return await super().execute(operations)


async def test_all_followers_cost_the_engine_one_answer(virtual_clock):
    engine, followers = Counting(MemoryEngine()), 10_000 if depth.full else 500
    async with tenure.open_store(engine) as store:
        queue = WorkQueue(store, "jobs")
        task_id = await queue.put(1)
        ends = []

        async def follow():
            async with queue.follow(task_id) as changes:
                async for record in changes:
                    last = record.state
                ends.append(last)

        async with anyio.create_task_group() as group:
            for _ in range(followers):
                group.start_soon(follow)
            await anyio.sleep(1)
            assert engine.asked == 1
            async with queue.take():
                pass
        assert ends == ["done"] * followers
        assert engine.asked <= 3
