"""Selections of tasks: browsed, cancelled, requeued and purged by what they have in common, and counted before."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tenure import Dead, Item, Retry, Selection, WorkQueue
from tenure.engine import CAP


class Refusal(Exception):
    pass


@pytest.fixture
def queue(store):
    return WorkQueue(store, "jobs", retry=Retry(attempts=1))


async def fails(queue, *errors):
    for error in errors:
        with suppress(type(error)):
            async with queue.take(timeout=0):
                raise error


async def payloads(queue, state, **selection):
    return [record.payload async for record in queue.tasks(state, where=Selection(**selection))]


@pytest.mark.parametrize(
    ("selection", "error"),
    [
        ({"older": 1}, "unexpected keyword argument 'older'"),
        ({"older_than": -1}, "older_than must be"),
        ({"group": "\0a"}, "group must not begin"),
        ({"key_prefix": 3}, "key_prefix must be"),
        ({"key_prefix": ""}, "key_prefix must"),
        ({"error": 3}, "error must be a type of exceptions or its name, not 3"),
        ({"error": int}, "error must be a type of exceptions"),
        ({"meta": {"a": 1}}, "meta must be a mapping of str to str"),
    ],
)
def test_a_wrong_selection_is_named(selection, error):
    with pytest.raises((TypeError, ValueError), match=error):
        Selection(**selection)


async def test_what_is_no_selection_changes_nothing(queue):
    await queue.put(1, key="k")
    for call in (
        lambda: queue.cancel(state="waiting", where={"group": "a"}),
        lambda: queue.requeue(where={}),
        lambda: queue.purge("waiting", where={"group": "a"}),
    ):
        with pytest.raises(TypeError, match="where must be a Selection, not dict"):
            await call()
    with pytest.raises(TypeError, match="where must be a Selection, not dict"):
        queue.tasks("waiting", where={"group": "a"})
    assert (await queue.statistics()).waiting == 1


async def test_ways_to_call_that_mean_two_things_are_refused(queue):
    for call, error in (
        (queue.cancel, "task_id must be"),
        (lambda: queue.cancel(1, state="waiting"), "a task_id or a state, not both"),
        (lambda: queue.cancel(1, where=Selection(group="a")), "a task_id alone, or a state"),
        (lambda: queue.cancel(state="dead"), "state must be one of waiting"),
        (lambda: queue.requeue([1], where=Selection(error="OSError")), "task_ids alone, or a selection"),
        (lambda: queue.requeue(limit=0), "limit must be"),
        (lambda: queue.purge("waiting", dry_run="no"), "dry_run must be"),
        (lambda: queue.purge(where=Selection(older_than=1)), "states must be some of"),
    ):
        with pytest.raises((TypeError, ValueError), match=error):
            await call()


async def test_tasks_are_selected_by_all_that_is_given(queue, virtual_clock):
    await queue.put_many([Item("old", key="user-1", group="a"), Item("old b", key="user-2", group="b")])
    await virtual_clock.advance(100)
    await queue.put_many(
        [
            Item("new", key="user-3", group="a", meta={"app": "x", "n": "1"}),
            Item("bare"),
            Item("other", key="x"),
        ]
    )
    assert await payloads(queue, "waiting", older_than=50) == ["old", "old b"]
    assert await payloads(queue, "waiting", group="a") == ["old", "new"]
    assert await payloads(queue, "waiting", group="") == ["bare", "other"]
    assert await payloads(queue, "waiting", key_prefix="user-", group="a", older_than=50) == ["old"]
    assert await payloads(queue, "waiting", meta={"app": "x"}) == ["new"]
    assert await payloads(queue, "waiting", meta={"app": "x", "m": "1"}) == []
    assert await queue.cancel(state="waiting", where=Selection(key_prefix="user-"), dry_run=True) == 3
    assert await queue.cancel(state="waiting", where=Selection(key_prefix="user-"), limit=2) == 2
    assert (await queue.statistics()).cancelled == 2
    await virtual_clock.advance(60)
    assert await queue.purge("cancelled", "waiting", where=Selection(older_than=50), dry_run=True) == 5
    assert await queue.purge("cancelled", "waiting", where=Selection(older_than=50), limit=4) == 4
    assert await queue.verify()


async def test_dead_tasks_are_selected_by_the_type_of_their_error(queue):
    await queue.put_many(range(4))
    await fails(queue, Refusal("no"), LookupError(), Dead("no such user"), Refusal())
    assert await payloads(queue, "dead", error=Refusal) == [0, 3]
    assert await payloads(queue, "dead", error="LookupError") == [1]
    assert await payloads(queue, "dead", error="Dead") == [2]
    assert await payloads(queue, "dead", error="no such user") == [2]
    assert await payloads(queue, "dead", error="Ref") == []
    assert await queue.requeue(where=Selection(error=Refusal), dry_run=True) == 2
    assert (await queue.statistics()).dead == 4
    assert await queue.requeue(where=Selection(error=Refusal), limit=1) == 1
    assert await queue.purge("dead", "waiting", where=Selection(error=Refusal)) == 2
    assert await queue.purge("dead", where=Selection(error=LookupError)) == 1
    assert [letter.error for letter in (await queue.tasks("dead").page()).records] == ["no such user"]
    assert await queue.verify()


async def test_dead_tasks_are_selected_by_the_type_of_an_error_in_a_group(queue):
    await queue.put_many(range(3))
    deep = ExceptionGroup("one", [ExceptionGroup("deep", [Refusal()])])
    await fails(queue, ExceptionGroup("two", [ValueError("x"), Refusal("no")]), deep, ValueError("[Refusal]"))
    assert await payloads(queue, "dead", error=Refusal) == [0, 1]
    assert await payloads(queue, "dead", error=ValueError) == [0, 2]
    assert await payloads(queue, "dead", error=ExceptionGroup) == [0, 1]


async def test_pages_of_a_selection_are_exact(store):
    """However rare the matches are, a page has as many as were asked for, and the next begins behind its last."""
    queue = WorkQueue(store, "jobs")
    count = CAP + 40
    await queue.put_many(Item(n, group="rare" if n % 50 == 7 else "usual") for n in range(count))
    wanted = [n for n in range(count) if n % 50 == 7]
    seen, after = [], None
    while True:
        page = await queue.tasks("waiting", where=Selection(group="rare")).page(after, 2)
        seen.append([record.payload for record in page.records])
        if not (after := page.next):
            break
    assert [n for part in seen for n in part] == wanted
    assert all(len(part) == 2 for part in seen[:-2])
    assert await queue.purge("waiting", where=Selection(group="usual"), limit=CAP + 10) == CAP + 10
    assert (await queue.statistics()).waiting == 30
    assert len(await payloads(queue, "waiting", group="rare")) == len(wanted)
