"""The settings of a queue: one record, which all processes share."""

from __future__ import annotations

from datetime import UTC, datetime

import anyio
import pytest

import tenure
from tenure import DuplicateTask, Groups, Item, Keep, Key, Limit, QueueFull, Retry, WorkQueue
from tenure.engine import Configure


def told(caplog):
    return [line for line in caplog.messages if line.startswith("queue.settings_replaced")]


async def test_each_process_names_other_fields_and_all_hold(open_store_on, virtual_clock, caplog):
    async with open_store_on() as web, open_store_on() as worker:
        ours = WorkQueue(web, "jobs", max_size=2, keep=Keep(results=60))
        theirs = WorkQueue(worker, "jobs", aging=5, keep=Keep(payloads=True), groups=Groups(limit=1))
        await ours.put(1)
        async with theirs.take():
            pass
        settings = await ours.settings()
        assert settings.set_by == (await theirs.settings()).set_by
        assert (settings.max_size, settings.aging, settings.max_deliveries) == (2, 5, 5)
        assert settings.keep == Keep(60, 180 * 86400, True, True, None)
        assert settings.groups == Groups(1, None, None, "hold", None)
        assert settings.set_by == {
            **dict.fromkeys(("max_size", "keep.results"), web.process),
            **dict.fromkeys(("aging", "keep.payloads", "groups.limit"), worker.process),
        }
        assert abs((settings.set_at["aging"] - datetime.now(UTC)).total_seconds()) < 60
        assert told(caplog) == []


async def test_a_setting_that_left_the_code_is_seen_and_can_be_lifted(open_store_on, virtual_clock):
    async with open_store_on() as old:
        queue = WorkQueue(old, "jobs", max_size=1, groups=Groups(limit=1))
        await queue.put(1)
        name = old.process
    async with open_store_on() as new:
        queue = WorkQueue(new, "jobs")
        with pytest.raises(QueueFull) as full:
            await queue.try_put(2)
        assert full.value.max_size == 1
        assert (await queue.settings()).set_by == {"max_size": name, "groups.limit": name}
        settings = await queue.configure(max_size=10_000, groups=None)
        assert settings.groups == Groups(None, None, None, "hold", None)
        await queue.try_put(2)


async def test_a_process_whose_value_is_replaced_is_told_once_and_by_whom(
    open_store_on, virtual_clock, caplog
):
    async with open_store_on() as web, open_store_on() as worker:
        ours = WorkQueue(web, "jobs", max_size=50, aging=1)
        theirs = WorkQueue(worker, "jobs", max_size=70, aging=1)
        await ours.put(1)
        await theirs.put(2)
        assert told(caplog) == []
        for n in range(3):
            await ours.put(n)
        (line,) = told(caplog)
        assert line == (
            f"queue.settings_replaced queue=jobs fields=max_size by={worker.process} process={web.process}"
        )
        await theirs.put(3)
        await theirs.configure(max_deliveries=3)  # another revision, of a field that nobody here named
        for n in range(3):
            await ours.put(n)
        assert len(told(caplog)) == 1


async def test_a_process_is_told_of_the_value_that_it_configured(open_store_on, virtual_clock, caplog):
    async with open_store_on() as web, open_store_on() as worker:
        ours, theirs = WorkQueue(web, "jobs"), WorkQueue(worker, "jobs")
        await ours.configure(max_deliveries=3)
        await theirs.configure(max_deliveries=4)
        for n in range(2):
            await ours.put(n)
        (line,) = told(caplog)
        assert f"fields=max_deliveries by={worker.process}" in line


async def test_what_is_named_is_sent_once_and_costs_no_round_trip(recording, virtual_clock):
    async with tenure.open_store(recording) as store:
        queue = WorkQueue(store, "jobs", max_size=5)
        for n in range(3):
            await queue.put(n)
            async with queue.take():
                pass
        assert [op.changes for op in recording.take(Configure)] == [(("max_size", "5"),)]


async def test_naming_the_default_lifts_a_limit(store, virtual_clock):
    queue = WorkQueue(store, "jobs", max_size=1, aging=3, rate=Limit(1, per=60), keep=Keep(results=None))
    await queue.put(1)
    assert (await queue.settings()).rate == Limit(1, per=60)
    settings = await WorkQueue(store, "jobs").configure(max_size=10_000, aging=None, rate=None, keep=None)
    assert (settings.max_size, settings.aging, settings.rate) == (10_000, None, None)
    assert settings.keep == Keep(3600, 180 * 86400, False, True, None)
    await queue.try_put(2)


async def test_takers_learn_of_what_another_process_has_set(open_store_on, virtual_clock):
    """Of what is kept of a task, and of the traceback of a failure."""
    async with open_store_on() as a, open_store_on() as b:
        queue, other = WorkQueue(a, "jobs", retry=Retry(attempts=1)), WorkQueue(b, "jobs")
        first = await queue.put("secret")
        with pytest.raises(ZeroDivisionError):
            async with queue.take():
                raise ZeroDivisionError
        assert "ZeroDivisionError" in (await queue.get(first)).traceback
        await other.configure(keep=Keep(tracebacks=False, payloads=True, results=5))
        second, third = [await queue.put(n) for n in (2, 3)]
        with pytest.raises(ZeroDivisionError):
            async with queue.take():
                raise ZeroDivisionError
        assert (await queue.get(second)).traceback == ""
        async with queue.take():
            pass
        assert (await queue.get(third)).payload == 3
        await anyio.sleep(6)
        assert await queue.get(third) is None


async def test_a_taker_sends_what_it_names_though_the_engine_counts_on_takers_of_this_process(
    store, virtual_clock
):
    slow = WorkQueue(store, "jobs", rate=Limit(1, per=86400))
    await slow.put_many([1, 2])
    async with slow.take():
        pass
    with anyio.move_on_after(1):
        async with slow.take():
            pytest.fail("the rate lets nothing begin")
    with anyio.fail_after(1):
        async with WorkQueue(store, "jobs", rate=Limit(100)).take():
            pass


async def test_a_process_that_only_cancels_keeps_records_as_the_queue_says(open_store_on, virtual_clock):
    async with open_store_on() as a, open_store_on() as b:
        queue, other = WorkQueue(a, "jobs", keep=Keep(results=5)), WorkQueue(b, "jobs")
        first, second, third = [await queue.put(n) for n in range(3)]
        await other.cancel(first)
        await queue.configure(keep=Keep(results=50))
        await other.cancel(second)
        await other.cancel(state="waiting")
        await anyio.sleep(6)
        assert await queue.get(first) is None
        assert [(await queue.get(kept)).state for kept in (second, third)] == ["cancelled"] * 2


async def put_one_of_many(queue, payload, **options):
    (task_id,) = await queue.put_many([Item(payload, **options)])
    return task_id


@pytest.mark.parametrize("put", [WorkQueue.put, WorkQueue.try_put, put_one_of_many])
@pytest.mark.parametrize("options", [{}, {"at": datetime(2020, 1, 1, tzinfo=UTC)}], ids=["", "at"])
async def test_the_first_put_of_a_process_keeps_its_key_as_the_queue_says(
    open_store_on, virtual_clock, put, options
):
    async with open_store_on() as a, open_store_on() as b:
        await WorkQueue(a, "jobs").configure(keep=Keep(keys=60))
        queue = WorkQueue(b, "jobs")
        await queue.cancel(await put(queue, 1, key="u", **options))
        with pytest.raises(DuplicateTask):
            await queue.put(2, key="u")
        await queue.cancel(await queue.put(3, key=Key("other", ttl=5)))
        await anyio.sleep(6)
        await queue.put(4, key="other")


async def test_the_first_task_of_a_process_is_kept_as_the_queue_says(open_store_on, virtual_clock):
    async with open_store_on() as a, open_store_on() as b:
        queue, other = WorkQueue(a, "jobs"), WorkQueue(b, "jobs", retry=Retry(attempts=1))
        await queue.configure(keep=Keep(results=5, dead=5, tracebacks=False))
        ids = [await queue.put(n) for n in range(2)]
        with pytest.raises(ZeroDivisionError):
            async with other.take():
                raise ZeroDivisionError
        async with other.take():
            pass
        assert (await queue.get(ids[0])).traceback == ""
        await anyio.sleep(6)
        assert [await queue.get(task_id) for task_id in ids] == [None, None]


@pytest.fixture
def record_ttl(monkeypatch):
    """The seconds for which settings last, in virtual time: SQLite looks at its file several times a second."""
    seconds = 600.0
    monkeypatch.setattr("tenure.engine.RECORD_TTL", seconds)
    return seconds


async def test_a_process_sends_its_fields_again_before_they_are_forgotten(
    open_store_on, virtual_clock, record_ttl
):
    async with open_store_on(ttl=record_ttl / 2) as store:
        queue = WorkQueue(store, "jobs", max_size=1, keep=Keep(results=1))
        task_id = await queue.put(1)
        for pause in (0.3, 0.6, 1.1, 2.5):
            await queue.cancel(task_id)
            await anyio.sleep(pause * record_ttl)
            task_id = await queue.try_put(1)
            with pytest.raises(QueueFull):
                await queue.try_put(2)


async def test_a_limit_that_was_lifted_stays_lifted(open_store_on, virtual_clock, record_ttl):
    async with open_store_on(ttl=record_ttl / 2) as store, open_store_on() as other:
        queue = WorkQueue(store, "jobs", max_size=1, keep=Keep(results=1))
        await queue.cancel(await queue.put(1))
        await WorkQueue(other, "jobs").configure(max_size=10_000)
        for _ in range(3):
            await anyio.sleep(0.6 * record_ttl)
            await queue.try_put(2)


def test_parts_show_the_fields_that_they_name():
    assert repr(Keep(results=None)) == "Keep(results=None)"
    assert repr(Groups(limit=2, on_retry="pass")) == "Groups(limit=2, on_retry='pass')"


async def test_an_option_that_there_is_not(store):
    with pytest.raises(TypeError, match="no option 'per_group'"):
        WorkQueue(store, "jobs", per_group=1)
