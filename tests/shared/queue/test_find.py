"""Steps whose calls cannot be named: `find` is asked before such a step is called again."""

from __future__ import annotations

import anyio
import pytest
from workers import work_off

import tenure
from tenure import BatchWorker, OutcomeUnknown, Retry, Worker, WorkQueue
from tenure.engine import ENTRIES, Scan, SetEntry
from tenure.shared.queue._family import Family
from tenure.testing import Fault, FaultyEngine


@pytest.fixture(autouse=True)
def families(engine):
    """Leave an engine out that has no entries of tasks yet."""
    if not engine.families:
        pytest.skip(f"{engine.url} has no families of tasks")


AT_ONCE = Retry(attempts=3, backoff=0, jitter=0)


class Bank:
    """A service that cannot know a second call; its first call arrives, but the answer is lost."""

    def __init__(self, *, arrives=True):
        self.calls = []
        self.charges = 0
        self.arrives = arrives

    async def charge(self):
        self.calls.append("charge")
        await anyio.lowlevel.checkpoint()
        if len(self.calls) > 1 or self.arrives:
            self.charges += 1
        if len(self.calls) == 1:
            raise ConnectionError("the answer is lost")
        return "receipt"

    async def find(self):
        self.calls.append("find")
        await anyio.lowlevel.checkpoint()
        return "found" if self.charges else None


@pytest.mark.parametrize(
    ("arrives", "calls", "value"),
    [(True, ["charge", "find"], "found"), (False, ["charge", "find", "charge"], "receipt")],
)
async def test_a_later_delivery_asks_before_it_calls_again(store, arrives, calls, value):
    queue, bank = WorkQueue(store, "jobs", retry=AT_ONCE), Bank(arrives=arrives)

    async def handler(task: tenure.Task):
        receipt = await task.step("charge", bank.charge, find=bank.find)
        if task.deliveries == 2:
            raise OSError("the value is on record, and nothing is asked or called again")
        return receipt

    task_id = await queue.put(1)
    await work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == value
    assert (bank.calls, bank.charges) == (calls, 1)


async def test_a_second_try_in_a_delivery_asks_too(store):
    queue, bank = WorkQueue(store, "jobs"), Bank()
    await queue.put(1)
    async with queue.take() as task:
        with pytest.raises(ConnectionError):
            await task.step("charge", bank.charge, find=bank.find)
        assert await task.step("charge", bank.charge, find=bank.find) == "found"
    assert bank.charges == 1


async def test_in_a_batch(store):
    queue, bank = WorkQueue(store, "jobs", retry=AT_ONCE), Bank()

    async def handle(tasks: list[tenure.Task]):
        for task in tasks:
            task.set_result(await task.step("charge", bank.charge, find=bank.find))

    task_id = await queue.put(1)
    await work_off(queue, BatchWorker(queue, handle, size=10))
    assert (await queue.result(task_id), bank.charges) == ("found", 1)


async def test_an_unknown_outcome_ends_the_task_and_a_requeue_asks_again(store):
    queue, bank, knows = WorkQueue(store, "jobs", retry=AT_ONCE), Bank(), []

    def find():
        if not knows:
            raise OutcomeUnknown("bank", "the charge")
        return "found"

    task_id = await queue.put(1)

    async def handler(task: tenure.Task):
        return await task.step("charge", bank.charge, find=find)

    await work_off(queue, Worker(queue, handler))
    record = await queue.get(task_id)
    assert (record.state, record.attempts) == ("dead", 2)
    assert record.error == (
        "OutcomeUnknown: bank: the charge may or may not have been applied\n"
        "not tried again: the outcome of the step 'charge' is unknown"
    )
    knows.append(True)
    await queue.requeue([task_id])
    await work_off(queue, Worker(queue, handler))
    assert (await queue.result(task_id), bank.charges) == ("found", 1)


async def test_the_parent_of_a_child_with_an_unknown_outcome_does_not_put_it_anew(store):
    queue, bank = WorkQueue(store, "jobs", retry=AT_ONCE), Bank()

    async def find():
        raise OutcomeUnknown("bank", "the charge")

    async def handler(task: tenure.Task):
        if task.payload == "child":
            await task.step("charge", bank.charge, find=find)
        else:
            async with task.children() as children:
                await children.put("child")

    task_id = await queue.put("parent")
    await work_off(queue, Worker(queue, handler))
    assert ((await queue.get(task_id)).state, bank.calls) == ("dead", ["charge"])


async def test_any_other_error_of_find_is_a_failed_try(store):
    queue, bank, tries = WorkQueue(store, "jobs", retry=AT_ONCE), Bank(), []

    async def find():
        tries.append(1)
        if len(tries) == 1:
            raise TimeoutError("the bank is closed")
        return await bank.find()

    async def handler(task: tenure.Task):
        return await task.step("charge", bank.charge, find=find)

    task_id = await queue.put(1)
    await work_off(queue, Worker(queue, handler))
    assert (await queue.result(task_id), bank.charges) == ("found", 1)


async def test_the_mark_is_progress(store):
    queue, tries = WorkQueue(store, "jobs", retry=AT_ONCE), []

    async def handler(task: tenure.Task):
        tries.append(task.attempt)
        if len(tries) < 3:
            raise OSError("before the step")
        await task.step("charge", Bank().charge, find=lambda: None)

    task_id = await queue.put(1)
    await work_off(queue, Worker(queue, handler))
    assert tries == [1, 2, 3, 2, 3]
    assert (await queue.get(task_id)).attempts == 3


async def test_what_is_marked_and_when(store):
    """The mark is on record before the first call, and a step without `find` has none."""
    queue = WorkQueue(store, "jobs")
    await queue.put(1)
    async with queue.take() as task:

        async def names():
            page = await store._handle.call(Scan(ENTRIES, queue.key, only=str(task.id)))
            return [entry.name for entry in page.rows]

        assert await task.step("plain", names) == []
        assert await task.step("charge", names, find=lambda: None) == ["step/plain", "step?charge"]


async def test_a_mark_whose_answer_was_lost_is_no_former_try(engine):
    faulty = FaultyEngine(engine)
    async with tenure.open_store(faulty) as store:
        queue = WorkQueue(store, "jobs")
        await queue.put(1)
        async with queue.take() as task:
            faulty.plan(Fault.LOST_REPLY, on=SetEntry)
            assert await task.step("a", lambda: 1, find=lambda: 1 // 0) == 1


async def test_one_whose_time_has_passed_calls_nothing_after_the_mark_or_find(
    store, virtual_clock, freeze, monkeypatch
):
    queue, bank, frozen = WorkQueue(store, "jobs", retry=AT_ONCE), Bank(), []
    write = Family.write

    async def write_slowly(family, name, value):
        answer = await write(family, name, value)
        if not frozen:
            frozen.append(freeze(100))
        return answer

    monkeypatch.setattr(Family, "write", write_slowly)

    def find():
        if len(frozen) == 1:
            frozen.append(freeze(100))
        return "found" if bank.charges else None

    async def handler(task: tenure.Task):
        return await task.step("charge", lambda: bank.calls.append(task.deliveries) or 1, find=find)

    task_id = await queue.put(1)
    await work_off(queue, Worker(queue, handler, concurrency=1))
    assert (await queue.result(task_id), bank.calls) == (1, [3])
