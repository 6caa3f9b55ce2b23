"""What a key does: refuse, keep, replace; for how long it lasts; debounce, throttle and idempotent puts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf, nan

import anyio
import pytest

from tenure import (
    DuplicateTask,
    Groups,
    Item,
    Job,
    Keep,
    Key,
    ResultUnavailable,
    WorkQueue,
)
from tenure.arguments import LONGEST


async def take_one(queue, timeout=0):
    async with queue.take(timeout) as task:
        return task.payload


async def records(queue, state):
    return [(record.id, record.payload) for record in (await queue.tasks(state).page()).records]


# one after the other


async def test_what_a_put_does_if_another_task_has_the_key(store):
    queue = WorkQueue(store, "mail")
    first = await queue.put(1, key="u42")
    with pytest.raises(DuplicateTask, match=f"task {first} has the key 'u42'") as refused:
        await queue.put(2, key="u42")
    assert (refused.value.task_id, refused.value.key, refused.value.queue) == (first, "u42", queue.key)
    assert await queue.put(3, key=Key("u42", "keep")) == first
    assert await queue.try_put(4, key=Key("u42", "keep")) == first
    assert await records(queue, "waiting") == [(first, 1)]
    assert await queue.put(5, priority=7, key=Key("u42", "replace"), meta={"a": "b"}, group="g") == first
    record = await queue.get(key="u42")
    assert (record.id, record.payload, record.priority, record.group) == (first, 5, 7, "g")
    assert record.meta == {"a": "b"}
    # another queue object, and another key
    assert await WorkQueue(store, "mail").put(6, key=Key("u42", "replace")) == first
    assert await queue.put(7, key=Key("u43", "replace")) != first
    assert await WorkQueue(store, "other").put(8, key=Key("u42", "keep")) != first
    assert (await queue.statistics()).put == 2
    assert await queue.verify()


async def test_an_idempotent_put(virtual_clock, store):
    queue = WorkQueue(store, "charge", keep=Keep(keys=60, results=5))
    first = await queue.put({"amount": 3}, key=Key("req-1", "keep"))
    async with queue.take() as task:
        task.set_result("charged")
    # a client that never saw the answer tries again
    assert await queue.put({"amount": 3}, key=Key("req-1", "keep")) == first
    assert await queue.result(first) == "charged"
    assert (await queue.get(key="req-1")).id == first
    await anyio.sleep(10)
    assert await queue.put({"amount": 3}, key=Key("req-1", "keep")) == first
    with pytest.raises(ResultUnavailable):
        await queue.result(first)
    with pytest.raises(DuplicateTask) as refused:
        await queue.put({"amount": 3}, key="req-1")
    assert refused.value.task_id == first
    await anyio.sleep(51)
    assert await queue.put({"amount": 3}, key=Key("req-1", "keep")) != first


async def test_a_ttl_of_a_put_goes_before_that_of_the_queue(virtual_clock, store):
    queue = WorkQueue(store, "q", keep=Keep(keys=60))
    first = await queue.put(1, key=Key("a", ttl=5))
    none = await queue.put(2, key=Key("b", ttl=0))
    for _ in range(2):
        await take_one(queue)
    assert await queue.put(3, key=Key("b", "keep")) != none
    assert await queue.put(3, key=Key("a", "keep")) == first
    await anyio.sleep(6)
    assert await queue.put(4, key=Key("a", "keep")) != first


# many at once


async def test_many_at_once(store):
    queue = WorkQueue(store, "q", max_size=4)
    items = [Item(n, key="ab"[n % 2]) for n in range(10)]
    ids = await queue.put_many(items, on_duplicate="replace")
    assert ids == [ids[0], ids[1]] * 5
    assert sorted(await records(queue, "waiting")) == [(ids[0], 8), (ids[1], 9)]
    assert await queue.put_many(items, on_duplicate="keep") == ids
    mixed = await queue.put_many([Item(1, key="a"), Item(2, key=Key("b", "keep")), 3])
    assert isinstance(mixed[0], DuplicateTask)
    assert mixed[1] == ids[1]
    # a payload without a key, and one that says more than the call
    both = await queue.put_many([4, Item(5, key=Key("a", "keep"))], on_duplicate="replace")
    assert both[1] == ids[0]
    assert (await queue.statistics()).put == 4
    assert await queue.verify()


async def test_items_with_one_key_stay_in_order_where_groups_are_full(store, virtual_clock):
    """A portion that does not fit is put group by group, but the payload that comes last still counts."""
    queue, ids, done = WorkQueue(store, "q", groups=Groups(max_size=2)), [], []
    await queue.put_many([Item(n, group="full") for n in range(2)])
    items = [
        *(Item("full", group="full"), Item("free", group="free")),
        *(Item("old", key="k", group="free"), Item("new", key="k", group="full")),
    ]

    async def produce():
        ids.extend(await queue.put_many(items, on_duplicate="replace"))

    async with anyio.create_task_group() as group:
        group.start_soon(produce)
        for _ in range(3):
            await virtual_clock.settle()
            done.append(await take_one(queue))
    assert done == [0, "free", 1]
    assert ids[2] == ids[3]
    assert (await queue.get(key="k")).payload == "new"
    assert sorted(payload for _, payload in await records(queue, "waiting")) == ["full", "new"]
    assert await queue.verify()


# other ways to put


async def test_a_job(store):
    async def index(doc):
        return doc

    job = Job(WorkQueue(store, "index"), index).options(key=Key("doc", "replace", within=5))
    first = await job.put("a")
    assert await job.put("b") == first
    assert await job.try_put("c") == first
    assert await job.queue.put_many([job.item("d")], on_duplicate="replace") == [first]
    plain = job.options(key="doc")
    with pytest.raises(DuplicateTask):
        await plain.put("e")
    assert await plain.queue.put_many([plain.item("f")], on_duplicate="keep") == [first]
    assert await take_one(job.queue) == {"doc": "d"}


# wrong arguments


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"within": 5}, "^within needs on_duplicate='replace', not 'refuse'$"),
        ({"on_duplicate": "keep", "within": 5}, "^within needs on_duplicate='replace', not 'keep'$"),
        ({"on_duplicate": "ignore"}, "^on_duplicate must be 'refuse', 'keep' or 'replace', not 'ignore'$"),
        ({"on_duplicate": 1}, "^on_duplicate must be"),
        ({"ttl": -1}, "^ttl must be at least 0 seconds, not -1$"),
        ({"ttl": timedelta(days=-1)}, "^ttl must be at least 0 seconds, not -86400$"),
        ({"ttl": nan}, "^ttl must be at least 0 seconds, not nan$"),
        ({"ttl": inf}, "^ttl must be at most"),
        ({"ttl": 2 * LONGEST}, "^ttl must be at most"),
        ({"on_duplicate": "replace", "within": -1}, "^within must be at least 0 seconds"),
    ],
)
def test_a_wrong_key_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Key("a", **wrong)


async def test_a_key_that_does_not_fit_the_delay_is_refused(faulty_store):
    queue, key = WorkQueue(faulty_store, "q"), Key("a", "replace", within=2)
    later = {"at": datetime.now(UTC) + timedelta(minutes=1)}
    for wrong, seconds in (({"delay": 3}, "3"), ({"delay": timedelta(seconds=4)}, "4"), (later, r"\d+")):
        message = f"^within of the key must be at least the delay, {seconds}.* seconds, not 2$"
        with pytest.raises(ValueError, match=message):
            await queue.put(1, key=key, **wrong)
        with pytest.raises(ValueError, match=message):
            await queue.put_many([0, Item(1, key=key, **wrong)])
        with pytest.raises(ValueError, match=message):
            queue.put_in_sync(object(), 1, key=key, **wrong)
    assert (await queue.statistics()).put == 0


async def test_other_wrong_arguments(faulty_store):
    queue = WorkQueue(faulty_store, "q")
    with pytest.raises(TypeError, match="^ttl must be a number of seconds or a timedelta, not str"):
        Key("a", ttl="soon")
    for wrong in (7, ["a"]):
        with pytest.raises(TypeError, match="^key must be a str"):
            await queue.put(1, key=wrong)
    with pytest.raises(ValueError, match="on_duplicate must be"):
        await queue.put_many([1], on_duplicate="ignore")
    with pytest.raises(ValueError, match="no key may say 'refuse' with on_duplicate='keep'"):
        await queue.put_many([Item(1, key=Key("a", "refuse"))], on_duplicate="keep")
    for wrong in (-1, inf, nan):
        with pytest.raises(ValueError, match=r"keep\.keys must be"):
            WorkQueue(faulty_store, "q", keep=Keep(keys=wrong))
    assert (await WorkQueue(faulty_store, "q", keep=Keep(keys=5)).settings()).keep.keys == 5
    assert (await queue.statistics()).put == 0


# what is lost on the way
