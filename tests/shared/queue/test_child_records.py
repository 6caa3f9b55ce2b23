"""What users see of families: states, parents, children, and which child a task waits for."""

from __future__ import annotations

import anyio
import pytest
from family import bear

import tenure
from tenure import Discard, Retry, WorkQueue
from tenure.engine import CAP, SetEntry
from tenure.types import Page


@pytest.fixture(autouse=True)
def families(engine):
    """Leave an engine out that has no children of tasks."""
    if not engine.families:
        pytest.skip(f"{engine.url} has no families of tasks")


@pytest.fixture
def jobs(store):
    return WorkQueue(store, "jobs", retry=Retry(attempts=1))


@pytest.fixture
def pages(store):
    return WorkQueue(store, "pages", retry=Retry(attempts=1))


async def suspended(jobs, pages, *names):
    """The id of a task that waits for children, and their ids."""
    task_id = await jobs.put("root")
    async with jobs.take() as task:
        ids = await bear(jobs, task, pages, *names)
    return task_id, ids


async def test_a_suspended_task_is_listed_and_counted_as_unfinished(jobs, pages):
    task_id, (a, _) = await suspended(jobs, pages, "a", "b")
    (record,) = (await jobs.tasks("suspended").page()).records
    assert (record.id, record.state, record.ended, record.children) == (task_id, "suspended", False, 2)
    assert (record.parent, record.parent_queue, record.unfinished_child) == (None, None, None)
    statistics = await jobs.statistics()
    assert (statistics.suspended, statistics.ending, statistics.unfinished) == (1, 0, 1)
    assert await jobs.verify()
    (child, _) = (await pages.tasks("waiting").page()).records
    assert (child.id, child.parent, child.parent_queue, child.children) == (a, task_id, "jobs", 0)


async def test_a_suspended_task_of_a_group_counts_as_delayed_there(jobs, pages):
    await jobs.put("root", group="acme")
    async with jobs.take() as task:
        await bear(jobs, task, pages, "a")
    (group,) = (await jobs.groups().page()).records
    assert (group.group, group.delayed, group.unfinished) == ("acme", 1, 1)
    assert await jobs.verify()


async def test_a_task_that_is_ending_is_listed_and_counted_as_unfinished(jobs, pages):
    task_id, (a,) = await suspended(jobs, pages, "a")
    with pytest.raises(tenure.TaskCancelled):
        async with pages.take():
            assert await jobs.cancel(task_id)
            assert [record.id for record in (await jobs.tasks("ending").page()).records] == [task_id]
            statistics = await jobs.statistics()
            assert (statistics.suspended, statistics.ending, statistics.unfinished) == (0, 1, 1)
            assert await jobs.verify()
            record = await jobs.get(task_id)
            assert (record.state, record.unfinished_child.id) == ("ending", a)
            with anyio.fail_after(50):
                await anyio.sleep_forever()
    assert (await jobs.get(task_id)).state == "cancelled"
    assert await jobs.verify()


async def test_a_task_names_an_unfinished_child(jobs, pages):
    task_id, (_, b) = await suspended(jobs, pages, "a", "b")
    async with pages.take():
        pass
    record = await jobs.get(task_id)
    child = record.unfinished_child
    assert (record.children, child.name, child.id, child.queue, child.state) == (
        *(1, "pages/b", b),
        *("pages", "unfinished"),
    )
    async with pages.take():
        pass
    record = await jobs.get(task_id)
    assert (record.state, record.children, record.unfinished_child) == ("waiting", 0, None)
    assert (await pages.get(b)).parent is None


async def test_children_have_their_results_and_errors(jobs, pages):
    task_id, ids = await suspended(jobs, pages, *"abcde")
    async with pages.take() as task:
        task.set_result({"links": 3})
    async with pages.take():
        raise Discard("gone")
    with pytest.raises(RuntimeError):
        async with pages.take():
            raise RuntimeError("broken")
    await pages.cancel(ids[3])
    page = await jobs.children(task_id).page()
    assert page.next is None
    assert [(child.name, child.id, child.queue) for child in page.records] == [
        (f"pages/{name}", task_id, "pages") for name, task_id in zip("abcde", ids, strict=True)
    ]
    assert [(child.state, child.result, child.error) for child in page.records] == [
        ("done", {"links": 3}, None),
        ("discarded", None, "gone"),
        ("dead", None, "RuntimeError: broken"),
        ("cancelled", None, None),
        ("unfinished", None, None),
    ]
    assert "links" not in repr(page)


async def test_a_result_that_cannot_be_decoded_hides_no_child(jobs, pages, store):
    class Raw:
        def encode(self, value):
            return value

        def decode(self, data):
            raise ValueError("not mine")

    task_id, (a,) = await suspended(jobs, pages, "a")
    async with pages.take() as task:
        task.set_result(1)
    store.codec = store._handle.codec = Raw()
    (child,) = (await jobs.children(task_id).page()).records
    with pytest.raises(ValueError, match=f"pages: the result of task {a} cannot be decoded: not mine"):
        _ = child.result


async def test_children_come_in_pages_by_name_without_values_and_signals(jobs, pages, store):
    names = [f"{n:03}" for n in range(CAP + 10)]
    task_id = await jobs.put("root")
    async with jobs.take() as task:
        await task.step("first", lambda: 1)
        for start in range(0, len(names), 100):
            await bear(jobs, task, pages, *names[start : start + 100])
    await store._handle.call(SetEntry(jobs.key, task_id, 0, "signal/approved", b"1"))

    async def read(limit):
        found, page = [], Page([], None)
        while not found or page.next:
            page = await jobs.children(task_id).page(page.next, limit)
            assert len(page.records) <= limit
            found += [child.name for child in page.records]
        return found

    expected = [f"pages/{name}" for name in names]
    assert await read(100) == await read(CAP + 1) == await read(1000) == expected
    assert [child.name async for child in jobs.children(task_id)] == expected


async def test_a_task_without_children_has_an_empty_page(jobs):
    task_id = await jobs.put(1)
    for unknown in (task_id, 99):
        assert await jobs.children(unknown).page() == Page([], None)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"task_id": 0}, "task_id"),
        ({"task_id": 1, "limit": 0}, "limit"),
        ({"task_id": 1, "after": "x" * 2000}, "after"),
    ],
)
async def test_odd_arguments_of_children(jobs, arguments, problem):
    task_id, page = arguments["task_id"], {k: v for k, v in arguments.items() if k != "task_id"}
    with pytest.raises(ValueError, match=problem):
        await jobs.children(task_id).page(**page)


async def test_an_engine_without_families_says_so(jobs, engine, monkeypatch):
    monkeypatch.setattr(engine, "families", False)
    with pytest.raises(tenure.EngineError, match="has no steps and children"):
        jobs.children(1)


async def test_a_dead_letter_and_a_failed_child_keep_what_they_know(jobs, pages):
    task_id = await jobs.put("root")
    with pytest.raises(RuntimeError):
        async with jobs.take() as task:
            (a,) = await bear(jobs, task, pages, "a")
            with pytest.raises(RuntimeError, match="child"):
                async with pages.take():
                    raise RuntimeError("child")
            raise RuntimeError("root")
    assert (await pages.get(a)).parent == task_id
    (child,) = (await jobs.children(task_id).page()).records
    assert (child.state, child.error) == ("dead", "RuntimeError: child")


async def test_a_follower_sees_for_which_child_a_task_waits(jobs, pages, virtual_clock):
    task_id, _ = await suspended(jobs, pages, "a", "b")
    seen = []

    async def follow():
        async with jobs.follow(task_id) as changes:
            async for record in changes:
                child = record.unfinished_child
                seen.append((record.state, record.children, child and child.name))

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        for _ in range(2):
            await anyio.sleep(10)
            async with pages.take():
                pass
        await anyio.sleep(10)
        async with jobs.take():
            pass
    assert [one for one in seen if one[0] != "leased"] == [
        ("suspended", 2, "pages/a"),
        ("suspended", 1, "pages/b"),
        ("waiting", 0, None),
        ("done", 0, None),
    ]
