"""What follows a dead letter: each gets one task on record, however its task died."""

from __future__ import annotations

import anyio
import pytest
from workers import work_off, working

import tenure
from tenure import BatchWorker, Dead, Job, Keep, Retry, Task, Worker, WorkQueue
from tenure.engine import Count, Exchange, Scan
from tenure.types import TaskRecord

FIRST = Retry(attempts=1)


async def fail(payload):
    raise ValueError(payload)


class Told:
    """A handler of dead letters, and the letters that it got."""

    def __init__(self):
        self.letters: list[TaskRecord] = []

    async def __call__(self, letter):
        self.letters.append(letter)

    @property
    def payloads(self):
        return [letter.payload for letter in self.letters]

    async def until(self, count):
        """Wait until it has so many letters."""
        with anyio.fail_after(50):
            while len(self.letters) < count:
                await anyio.sleep(0.1)


async def test_a_dead_task_is_told_of_once_with_all_that_is_known(store, open_store_on, virtual_clock):
    queue, told = WorkQueue(store, "mail", retry=Retry(attempts=2, backoff=0.1)), Told()
    async with open_store_on() as elsewhere:
        other = Worker(WorkQueue(elsewhere, "mail", retry=queue.retry), fail, on_dead=told)
        async with working(queue, Worker(queue, fail, on_dead=told)), anyio.create_task_group() as group:
            group.start_soon(other.run)
            ids = await queue.put_many([f"no {n}" for n in range(40)])
            await queue.put("late", priority=3, meta={"request": "r7"}, group="ann", key="k")
            await told.until(41)
            await other.drain()
    assert sorted(letter.id for letter in told.letters[:40] + told.letters[40:])[:40] == ids
    late = next(letter for letter in told.letters if letter.payload == "late")
    assert (late.state, late.attempts, late.error, late.group) == ("dead", 2, "ValueError: late", "ann")
    assert (late.meta, late.priority, late.key) == ({"request": "r7"}, 3, "k")
    assert "ValueError: late" in late.traceback
    assert [line.partition(",")[0] for line in late.failed_tries] == ["try 1", "try 2"]
    assert late.ran == 0.0
    assert (await WorkQueue(store, "mail.dead").statistics()).put == 41


async def test_what_died_without_a_verdict_or_while_nobody_looked_is_found(
    store, open_store_on, virtual_clock
):
    options = {"retry": FIRST, "max_deliveries": 1}
    queue, told = WorkQueue(store, "mail", **options), Told()
    await queue.put_many(["died before", "discarded", "cancelled"])
    busy = []

    async def handler(task: Task):
        if task.payload == "discarded":
            raise tenure.Discard
        if task.payload == "cancelled":
            await queue.cancel(task.id)
            await anyio.sleep_forever()
        if task.payload == "busy":
            busy.append(task.id)
            await anyio.sleep_forever()
        raise Dead("gone")

    await work_off(queue, Worker(queue, handler))
    await queue.put("expired", expires=0.01)
    await anyio.sleep(1)
    async with working(queue, Worker(queue, handler, concurrency=1, on_dead=told)):
        await told.until(1)
        await queue.put("busy")
        await anyio.sleep(1)
        await queue.put("died silently")
        async with open_store_on(ttl=3.0) as dying:
            session = await dying._handle.session(3.0)
            with pytest.raises(tenure.LeaseLost):
                async with WorkQueue(dying, "mail", **options).take():
                    await store._handle.call(tenure.engine.CloseSession(session.id))
                    await anyio.sleep(10)
        await told.until(2)
        await queue.cancel(busy[0])
    assert told.payloads == ["died before", "died silently"]
    assert told.letters[0].error == "gone"
    assert str(told.letters[1].error).startswith("delivered once without a verdict: process ")


async def test_a_handler_that_fails_is_tried_again_and_a_second_death_is_another(store, virtual_clock):
    queue, seen = WorkQueue(store, "mail", retry=FIRST), []

    async def on_dead(task: Task[TaskRecord]):
        seen.append((task.payload.id, task.attempt))
        if task.attempt == 1:
            raise OSError

    first = await queue.put({"to": "ann"})
    async with working(queue, Worker(queue, fail, on_dead=on_dead)):
        await queue.join()
        await WorkQueue(store, "mail.dead").join()
        while not seen[1:]:
            await anyio.sleep(0.1)
        await queue.requeue([first])
        while not seen[3:]:
            await anyio.sleep(0.1)
    assert seen == [(first, 1), (first, 2)] * 2


async def test_draining_leaves_no_dead_letter_behind(store, virtual_clock):
    queue = WorkQueue(store, "mail", retry=FIRST)
    ids = await queue.put_many(range(100))
    worker = Worker(queue, fail, concurrency=100, on_dead=Told())
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await queue.join()
        await worker.drain()
        assert (await WorkQueue(store, "mail.dead").statistics()).put == len(ids)


async def test_batches_jobs_and_any_codec(store, virtual_clock):
    class Upside:
        encode = staticmethod(lambda text: text.encode("utf-16"))
        decode = staticmethod(lambda data: data.decode("utf-16"))

    told = Told()

    async def fail_all(texts):
        raise ValueError

    queue = WorkQueue(store, "batch", codec=Upside(), retry=FIRST)
    async with working(queue, BatchWorker(queue, fail_all, size=10, on_dead=told)):
        await queue.put_many(["a", "ü"])
        await told.until(2)

    async def call(x, y=0):
        raise ValueError

    job = Job(WorkQueue(store, "job", retry=FIRST), call)
    async with working(job.queue, Worker(job, on_dead=told)):
        await job.put(1, y=2)
        await told.until(3)
    assert sorted(map(str, told.payloads)) == ["a", str({"x": 1, "y": 2}), "ü"] and told.payloads[2] == {
        "x": 1,
        "y": 2,
    }
    queue = WorkQueue(store, "job.dead", keep=Keep(payloads=True))
    (stored,) = (await queue.tasks("ended").page()).records
    assert stored.state == "done"


async def test_a_worker_that_waits_looks_every_ten_seconds(recording, virtual_clock):
    async with tenure.open_store(recording, ttl=600) as store:
        queue = WorkQueue(store, "mail")
        async with working(queue, Worker(queue, fail, on_dead=Told())):
            await anyio.sleep(5)
            recording.take()
            await anyio.sleep(100)
            asked = recording.take(Count, Scan, Exchange)
            assert 16 <= len(asked) <= 24, asked


async def test_bad_input(store, virtual_clock):
    queue = WorkQueue(store, "mail")
    with pytest.raises(TypeError, match=r"on_dead: handler must be a function, not 3"):
        Worker(queue, fail, on_dead=3)
    with pytest.raises(TypeError, match=r"on_dead: handler .*nothing must take the payload"):

        def nothing(): ...

        Worker(queue, fail, on_dead=nothing)
    with pytest.raises(ValueError, match="on_dead has a queue named"):
        Worker(WorkQueue(store, "x" * 510), fail, on_dead=Told())
    told = Told()
    await WorkQueue(store, "mail.dead", retry=FIRST).put({"put": "by hand"})
    await queue.put(1)
    async with working(queue, Worker(queue, fail, retry=FIRST, on_dead=told)):
        await told.until(1)
    own = WorkQueue(store, "mail.dead")
    async with working(own, Worker(queue, fail, on_dead=told)):
        await own.join()
    (problem,) = (await own.tasks("dead").page()).records
    assert "it is no dead letter that on_dead has put" in problem.error
