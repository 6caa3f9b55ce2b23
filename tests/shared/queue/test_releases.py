"""Releases: what a task names is undone when the task ends, however it ends, and no sooner."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import pytest
from workers import work_off, working

import tenure
from tenure import (
    BatchWorker,
    Job,
    LeaseLost,
    Retry,
    TaskCancelled,
    TaskFailed,
    Worker,
    WorkQueue,
)
from tenure.errors import PayloadTooLarge, ReleaseFailed

AT_ONCE = Retry(attempts=2, backoff=0, jitter=0)


class World:
    """A cloud that refuses a name that it has destroyed, a queue of owners, and a job that destroys.

    `log` has what happened; with `fails`, `destroy` fails for good.
    """

    def __init__(self, store):
        self.queue = WorkQueue(store, "pulls", retry=AT_ONCE)
        self.undone = WorkQueue(store, "undone", retry=Retry(attempts=1))
        self.destroy = Job(self.undone, self.destroyed)
        self.alive, self.gone, self.log, self.named = set(), set(), [], []
        self.fails = False

    def launch(self, thing):
        assert thing not in self.gone
        self.alive.add(thing)
        self.log.append("launch")
        return thing

    async def destroyed(self, task: tenure.Task[object], thing: str):
        assert thing == task.thing == f"undone-{task.id}"
        if self.fails:
            raise KeyError("no such region")
        self.alive.discard(thing)
        self.gone.add(thing)
        self.log.append("destroy")

    async def sandbox(self, task: tenure.Task, **options):
        release = await task.at_end("sandbox", self.destroy, **options)
        self.named.append(release)
        return await task.step("launch", partial(self.launch, release.thing))

    @asynccontextmanager
    async def at_work(self, handler):
        """A block in which owners and releases are worked on; when it ends, all of them have ended."""
        async with working(self.undone, Worker(self.destroy, concurrency=2)):
            async with working(self.queue, Worker(self.queue, handler)):
                yield
        assert await self.queue.verify() and await self.undone.verify()

    async def run(self, handler):
        """The state of a task of that handler in the end."""
        async with self.at_work(handler):
            task_id = await self.queue.put("pull")
        return (await self.queue.get(task_id)).state

    async def suspended(self, task_id):
        async with self.queue.follow(task_id) as changes:
            async for record in changes:
                if record.state == "suspended":
                    return


@pytest.fixture
def world(store):
    return World(store)


async def test_the_sandbox_lives_until_its_task_ends(world):
    async def review(task: tenure.Task):
        box = await world.sandbox(task)
        await task.wait_for("approved", timeout=7 * 86400)
        return await task.step("merge", lambda: world.log.append("merge") or box)

    async with world.at_work(review):
        task_id = await world.queue.put("pull")
        await world.suspended(task_id)
        assert world.log == ["launch"] and len(world.alive) == 1
        await world.queue.signal(task_id, "approved")
        result = await world.queue.result(task_id)
        assert world.log == ["launch", "merge", "destroy"]
    first, second = world.named
    assert first == second and first.name == "sandbox" and first.state == "held"
    assert result == first.thing == f"undone-{first.id}"
    statistics = await world.undone.statistics()
    assert (statistics.put, statistics.done) == (1, 1)


async def test_a_task_that_is_cancelled_while_it_is_suspended_undoes(world):
    async def review(task: tenure.Task):
        await world.sandbox(task)
        await task.wait_for("approved")

    async with world.at_work(review):
        task_id = await world.queue.put("pull")
        await world.suspended(task_id)
        await world.queue.cancel(task_id)
        with pytest.raises(TaskCancelled):
            await world.queue.result(task_id)
        assert world.log == ["launch", "destroy"]


async def test_a_task_whose_deadline_passes_undoes(world, virtual_clock):
    async def review(task: tenure.Task):
        await world.sandbox(task)
        await anyio.sleep_forever()

    async with world.at_work(review):
        task_id = await world.queue.put("pull", deadline=5)
        with pytest.raises(TaskFailed, match="expired"):
            await world.queue.result(task_id)
        assert world.log == ["launch", "destroy"]


async def test_a_retry_is_given_the_same_release(world):
    async def review(task: tenure.Task):
        await world.sandbox(task)
        raise KeyError(task.attempt)

    assert await world.run(review) == "dead"
    first, second, *others = world.named
    assert first == second
    assert world.log == ["launch", "destroy"] and not others


async def test_a_delivery_after_a_loss_is_given_the_same_release(world, virtual_clock, freeze):
    async def review(task: tenure.Task):
        await world.sandbox(task)
        if len(world.named) == 1:
            freeze(100)
            await anyio.sleep(1)

    assert await world.run(review) == "done"
    first, second = world.named
    assert first == second
    assert world.log == ["launch", "destroy"]


async def test_a_dead_task_that_is_made_ready_again_names_anew(world):
    async def review(task: tenure.Task):
        await world.sandbox(task)
        if len(world.named) <= 2:
            raise tenure.Dead("no")

    async with world.at_work(review):
        task_id = await world.queue.put("pull")
        for _ in range(2):
            with pytest.raises(TaskFailed):
                await world.queue.result(task_id)
            assert await world.queue.requeue([task_id]) == 1
        await world.queue.result(task_id)
    assert len({release.thing for release in world.named}) == 3
    assert world.log == ["launch", "destroy"] * 3


async def test_a_dead_release_changes_nothing_of_its_owner_and_can_be_requeued(world):
    world.fails = True

    async def review(task: tenure.Task):
        await world.sandbox(task)

    assert await world.run(review) == "done"
    (letter,) = [record async for record in world.undone.tasks("dead")]
    assert letter.id == world.named[0].id and "no such region" in letter.error
    assert world.alive == {world.named[0].thing}
    world.fails = False
    await world.undone.requeue([letter.id])
    await work_off(world.undone, Worker(world.destroy))
    assert not world.alive


async def test_the_own_queue_is_the_default_and_its_handler_knows_a_release_by_its_thing(world):
    log = []

    async def handle(task: tenure.Task):
        log.append((task.payload, task.thing))
        if task.thing is None:
            release = await task.at_end("x", priority=3, meta={"a": "b"}, retry=Retry(attempts=1))
            given = await task.at_end("y", payload={"given": 1})
            assert (given.thing, release.thing) == (f"pulls-{given.id}", f"pulls-{release.id}")
            log.extend((release.thing, given.thing))
        elif task.thing == log[1]:
            assert (task.priority, task.meta) == (3, {"a": "b"})

    await world.queue.put("owner")
    await work_off(world.queue, Worker(world.queue, handle, concurrency=1))
    (_, x, y, *rest), owner = log, log[0]
    assert owner == ("owner", None)
    assert rest == [({"given": 1}, y), (x, x)]


async def test_a_saga_is_undone_the_last_first_unless_it_is_done(world):
    log = []

    async def book(task: tenure.Task):
        if task.thing is not None:
            log.append(f"cancel {task.payload}")
            return
        for what in ("flight", "hotel"):
            await task.at_end(what, payload=what, unless_done=True)
            await task.step(what, partial(log.append, f"book {what}"))
        if task.payload == "full":
            raise tenure.Dead("no room")

    await world.queue.put("full")
    worker = Worker(world.queue, book, concurrency=1)
    await work_off(world.queue, worker)
    booked = ["book flight", "book hotel"]
    assert log == [*booked, "cancel hotel", "cancel flight"]
    await world.queue.put("empty")
    await work_off(world.queue, Worker(world.queue, book, concurrency=1))
    assert log[4:] == booked


async def test_what_is_kept_is_never_undone(world):
    kept = []

    async def hand_over(task: tenure.Task):
        await world.sandbox(task)
        kept.append(await task.keep("sandbox"))
        if task.attempt == 1:
            raise KeyError("first")

    assert await world.run(hand_over) == "done"
    assert kept == [True, True]
    assert [release.state for release in world.named] == ["held", "kept"]
    assert world.log == ["launch"]


async def test_releases_that_are_named_together_are_undone_together(world):
    begun, all_begun = [], anyio.Event()

    async def handle(task: tenure.Task):
        if task.thing is None:
            for name in "abc":
                await task.at_end(name, together=True)
            return
        begun.append(task.thing)
        if len(begun) == 3:
            all_begun.set()
        await all_begun.wait()

    await world.queue.put("owner")
    await work_off(world.queue, Worker(world.queue, handle))
    assert len(begun) == 3


async def test_undo_waits_for_the_children_and_for_the_release(world):
    async def review(task: tenure.Task):
        if task.payload == "child":
            world.log.append("child")
            return
        await world.sandbox(task)
        children = await task.children(name="x").__aenter__()
        await children.put("child", "a")
        await task.undo("sandbox")
        world.log.append("undone")
        assert await task.keep("sandbox") is False
        await task.undo("sandbox")

    assert await world.run(review) == "done"
    assert world.log == ["launch", "child", "destroy", "undone"]
    assert world.named[-1].state == "done"


async def test_undo_raises_if_the_release_is_a_dead_letter(world):
    world.fails = True

    async def review(task: tenure.Task):
        await world.sandbox(task)
        with pytest.raises(ReleaseFailed, match="no such region") as caught:
            await task.undo("sandbox")
        failed = caught.value
        assert (failed.queue, failed.task_id) == (world.undone.key, world.named[0].id)
        assert failed.name == "sandbox"
        return "seen"

    assert await world.run(review) == "done"


async def test_what_is_kept_cannot_be_undone(world):
    async def review(task: tenure.Task):
        await world.sandbox(task)
        assert await task.keep("sandbox")
        with pytest.raises(RuntimeError, match="'sandbox' is kept"):
            await task.undo("sandbox")

    assert await world.run(review) == "done"


async def test_what_is_wrong_is_refused(world, open_store_on):
    async def other_payload(task: tenure.Task):
        if task.attempt == 1:
            await task.at_end("x", world.undone, 1)
            raise KeyError("first")
        for target, payload in ((world.undone, 2), (world.queue, 1)):
            with pytest.raises(ValueError, match="payload and queue_or_job must be those .* 'x' before"):
                await task.at_end("x", target, payload)
        assert (await task.at_end("x", world.undone, 1)).state == "held"
        assert await task.keep("x")

    async def handle(task: tenure.Task):
        for wrong in ({"delay": 1}, {"key": "k"}, {"at": 1}):
            with pytest.raises(ValueError, match=f"{next(iter(wrong))} is no option of a release"):
                await task.at_end("x", world.undone, **wrong)
        with pytest.raises(TypeError, match="unless_done must be True or False"):
            await task.at_end("x", world.undone, unless_done="yes")
        with pytest.raises(TypeError, match="queue_or_job must be a WorkQueue or a Job"):
            await task.at_end("x", world.undone.name)
        async with open_store_on() as other:
            with pytest.raises(ValueError, match="queue_or_job must be of the task's own store"):
                await task.at_end("x", WorkQueue(other, "undone"))
        with pytest.raises(ValueError, match="name must not be empty"):
            await task.at_end("", world.undone)
        for change in (task.undo, task.keep):
            with pytest.raises(ValueError, match="name must be of a release .* 'x' is of none"):
                await change("x")
        with pytest.raises(TypeError, match="cannot be called with these arguments"):
            await task.at_end("y", Job(world.undone, lambda a, b: None))
        with pytest.raises(TypeError, match="unexpected keyword argument 'unknown'"):
            await task.at_end("x", world.undone, unknown=1)
        await task.at_end("x", world.undone, 1)
        with pytest.raises(RuntimeError, match="the release 'x' was used before"):
            await task.at_end("x", world.undone, 1)
        assert await task.keep("x")

    for handler in (handle, other_payload):
        await world.queue.put(1)
        await work_off(world.queue, Worker(world.queue, handler))
    assert (await world.queue.statistics()).done == 2


async def test_after_a_stop_request_naming_is_refused_and_keeping_is_not(world):
    async def review(task: tenure.Task):
        await world.sandbox(task)
        with anyio.CancelScope(shield=True):
            await world.queue.cancel(task.id)
            with pytest.raises(TaskCancelled):
                await task.at_end("late", world.destroy)
            assert await task.keep("sandbox")
        await anyio.sleep_forever()

    assert await world.run(review) == "cancelled"
    assert world.log == ["launch"]


async def test_in_a_block_of_take(world):
    await world.queue.put(1)
    async with world.queue.take(timeout=5) as task:
        await world.sandbox(task)
        await task.at_end("kept", world.destroy)
        assert await task.keep("kept")
        with pytest.raises(RuntimeError, match=r"task\.undo in the handler of a Worker"):
            await task.undo("sandbox")
    assert (await world.queue.get(task.id)).state == "ending"
    await work_off(world.undone, Worker(world.destroy))
    assert (await world.queue.get(task.id)).state == "done"
    assert world.log == ["launch", "destroy"]
    with pytest.raises(LeaseLost):
        await task.at_end("late", world.destroy)
    with pytest.raises(LeaseLost):
        await task.keep("kept")


async def test_in_a_batch_each_task_undoes_its_own(world):
    async def handle(tasks: list[tenure.Task]):
        for task in tasks:
            await world.sandbox(task)
            with pytest.raises(RuntimeError, match="not in one of batches"):
                await task.undo("sandbox")
        tasks[0].fail(tenure.Dead("no"))

    async with working(world.undone, Worker(world.destroy)):
        await world.queue.put_many([1, 2, 3])
        await work_off(world.queue, BatchWorker(world.queue, handle, size=3))
    assert len(world.gone) == 3 and not world.alive
    statistics = await world.queue.statistics()
    assert (statistics.done, statistics.dead) == (2, 1)


async def test_a_job_names_releases_of_other_jobs(world, store):
    log = []
    jobs = {name: WorkQueue(store, name) for name in ("owner", "bare", "called")}

    async def bare(task: tenure.Task[object]):
        log.append(("bare", task.thing))

    def called(first: int, second: str = "b"):
        log.append((first, second))

    async def owner(task: tenure.Task[object], number: int):
        release = await task.at_end("bare", Job(jobs["bare"], bare))
        call = Job(jobs["called"], called)
        await task.at_end("called", call.options(priority=1), call.item(number, second="c"))
        await task.at_end("one", call, number)
        return release.thing

    own = Job(jobs["owner"], owner)
    workers = [own, Job(jobs["bare"], bare), Job(jobs["called"], called)]
    async with anyio.create_task_group() as group:
        for job in workers:
            group.start_soon(Worker(job, concurrency=1).run)
        thing = await own.result(await own.put(7))
        group.cancel_scope.cancel()
    assert log == [(7, "b"), (7, "c"), ("bare", thing)]


async def test_a_task_of_a_job_names_where_its_releases_go(store):
    async def owner(task: tenure.Task[object]):
        with pytest.raises(
            ValueError, match="queue_or_job must be given in a task of a Job: else .*owner would"
        ):
            await task.at_end("x")
        assert (await task.at_end("x", task_queue)).state == "held"
        await task.keep("x")

    task_queue = WorkQueue(store, "owners")
    job = Job(task_queue, owner)
    await job.put()
    await work_off(task_queue, Worker(job))
    assert (await task_queue.statistics()).done == 1


async def test_an_operator_sees_what_a_release_undoes(world):
    world.fails = True

    async def review(task: tenure.Task):
        await world.sandbox(task)
        (held,) = [await world.undone.get(world.named[0].id)]
        assert (held.state, held.payload) == ("held", world.named[0].thing)
        assert (await world.undone.statistics()).held == 1

    letters = []
    async with working(world.undone, Worker(world.destroy, on_dead=letters.append)):
        await world.queue.put("pull")
        await work_off(world.queue, Worker(world.queue, review))
        while not letters:
            await anyio.sleep(0.01)
    assert letters[0].payload == world.named[0].thing


async def test_an_operator_sees_for_which_release_a_task_waits(world):
    task_id = await world.queue.put("pull")
    async with world.queue.take(timeout=5) as task:
        for name in "bca":
            await task.at_end(name, world.destroy)
    for name in "acb":
        record = await world.queue.get(task_id)
        assert (record.state, record.children, record.unfinished_child.name) == ("ending", 1, name)
        async with world.undone.take(timeout=5) as release:
            assert (release.id, release.release) == (record.unfinished_child.id, name)
    assert (await world.queue.get(task_id)).state == "done"


async def test_a_dead_task_shows_what_became_of_its_releases(world, caplog):
    task_id = await world.queue.put("pull")
    with suppress(tenure.Dead):
        async with world.queue.take(timeout=5) as task:
            for name in ("disk", "net", "seat", "site"):
                await task.at_end(name, world.destroy)
            await task.keep("seat")
            found = await world.queue.get(task_id)
            assert found.release is None
            assert [(r.name, r.state) for r in found.releases] == [
                ("disk", "held"),
                ("net", "held"),
                ("seat", "kept"),
                ("site", "held"),
            ]
            raise tenure.Dead("no such pull")
    async with world.undone.take(timeout=5):
        pass
    with suppress(tenure.Dead):
        async with world.undone.take(timeout=5) as net:
            raise tenure.Dead("no such region")
    async with world.undone.take(timeout=5):
        pass
    dead = await world.queue.get(task_id)
    assert (dead.state, dead.children) == ("dead", 0)
    by_name = {release.name: (release.state, release.error) for release in dead.releases}
    assert by_name["net"] == ("dead", "no such region")
    assert [by_name[name] for name in ("disk", "seat", "site")] == [
        ("done", None),
        ("kept", None),
        ("done", None),
    ]
    letter = await world.undone.get(net.id)
    assert (letter.release, letter.parent, letter.parent_queue) == ("net", task_id, "pulls")
    reports = [record.message for record in caplog.records if "task.dead" in record.message]
    assert ["release=net" in report for report in reports] == [False, True]


async def test_a_payload_that_cannot_be_encoded_names_nothing(world):
    async def review(task: tenure.Task):
        for wrong, error in ((object(), TypeError), ("x" * 2**21, PayloadTooLarge)):
            with pytest.raises(error):
                await task.at_end("sandbox", world.undone, wrong)
        await world.sandbox(task)

    assert await world.run(review) == "done"
    assert world.log == ["launch", "destroy"]


async def test_a_release_has_releases_of_its_own(world):
    log = []

    async def handle(task: tenure.Task):
        log.append(task.payload)
        if len(task.payload) < 3:
            await task.at_end("inner", payload=task.payload + "x")

    task_id = await world.queue.put("x")
    await work_off(world.queue, Worker(world.queue, handle))
    assert log == ["x", "xx", "xxx"]
    assert (await world.queue.get(task_id)).state == "done"
