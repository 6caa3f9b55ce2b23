"""Taking tasks, one block at a time."""

from __future__ import annotations

from contextlib import contextmanager

import anyio
import anyio.lowlevel
from explored.catalogue import on_every_engine
from explored.scenarios.queues import all_is_done
from explored.world import pause

from tenure import AcquireTimeout, Discard, Retry, RetryLater, TaskCancelled, WorkQueue
from tenure.testing import cancellable, newcomer


class Work:
    """Who is at work on what: nobody on the same task as another, and no token is given twice."""

    def __init__(self):
        self.done = []
        self._at_work = {}
        self._tokens = set()

    @contextmanager
    def on(self, task):
        """Note that somebody is at work on it until the end of the block, and did it unless that raises."""
        assert task.id not in self._at_work, f"two are at work on {task}"
        assert task.token not in self._tokens, f"{task} was given before"
        task.check()
        self._tokens.add(task.token)
        self._at_work[task.id] = task
        try:
            yield
            self.done.append(task.payload)
        finally:
            del self._at_work[task.id]


async def do_one(queue, work, timeout=None):
    async with queue.take(timeout) as task:
        with work.on(task):
            assert task.attempt == 1, "a try that was cancelled does not count"
            await pause()
            task.set_result(task.payload)


async def do_the_rest(queue, work, patience):
    try:
        while True:
            await do_one(queue, work, patience)
    except AcquireTimeout:
        pass


@on_every_engine("shared.WorkQueue.take")
async def what_is_taken_is_done_or_given_back(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, work = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), Work()

        async def taker(queue, arrival=anyio.lowlevel.checkpoint):
            await arrival()
            await do_one(queue, work)

        async def victim():
            with cancellable():
                await do_one(queue, work)

        async def giver():
            for name in "abcdef":
                await queue.put(name)
                await pause()

        async with world.group() as group:
            group.start_soon(victim)
            group.start_soon(taker, queue)
            group.start_soon(taker, other)
            group.start_soon(victim)
            group.start_soon(taker, queue, newcomer)
            group.start_soon(giver)
        await do_the_rest(queue, work, world.patience)
        # one that was cancelled after its work may have been too late to give it back
        assert set(work.done) == set("abcdef")
        await all_is_done(queue, store, elsewhere, done=6, put=6)


@on_every_engine("shared.WorkQueue.take")
async def takers_give_up_in_time(world):
    """Tasks come while some are just giving up: each is taken by somebody who is still there."""
    async with world.open() as store:
        queue, work, timeouts = WorkQueue(store, "q"), Work(), []

        async def impatient(timeout):
            start = anyio.current_time()
            try:
                await do_one(queue, work, timeout)
            except AcquireTimeout:
                assert anyio.current_time() - start >= timeout - 1e-9
                timeouts.append(timeout)

        async def victim(timeout):
            with cancellable():
                await impatient(timeout)

        async def giver():
            for name in "abc":
                await pause()
                await queue.put(name, priority=ord(name))

        async with world.group() as group:
            group.start_soon(impatient, 0.01)
            group.start_soon(victim, 0.03)
            group.start_soon(impatient, 0)
            group.start_soon(victim, 0)
            group.start_soon(do_one, queue, work)
            group.start_soon(giver)
        await do_the_rest(queue, work, world.patience)
        assert sorted(set(work.done)) == ["a", "b", "c"]
        await all_is_done(queue, store, done=3, put=3)


@on_every_engine("shared.WorkQueue.take")
async def tasks_go_out_in_their_order(world):
    """A single taker, cancelled again and again, gets them by priority and age."""
    async with world.open() as store:
        queue, work = WorkQueue(store, "q"), Work()
        for name, priority in [("c", 0), ("a", 2), ("d", 0), ("b", 1)]:
            await queue.put(name, priority=priority)
        with cancellable():
            await do_one(queue, work)
        with cancellable():
            await do_one(queue, work)
        await do_the_rest(queue, work, world.patience)
        order = [name for i, name in enumerate(work.done) if name not in work.done[:i]]
        assert order == ["a", "b", "c", "d"]
        await all_is_done(queue, store, done=4, put=4)


@on_every_engine("shared.WorkQueue.take", "shared.Task.progress")
async def a_failed_task_is_tried_again_and_progress_is_kept(world):
    async with world.open() as store:
        queue = WorkQueue(store, "q", retry=Retry(attempts=3, backoff=0.1, jitter=0))
        tries, reports = [], []

        async def taker(arrival=anyio.lowlevel.checkpoint):
            await arrival()
            try:
                while True:
                    async with queue.take(world.patience) as task:
                        tries.append((task.payload, task.attempt))
                        if task.payload == "discard":
                            raise Discard("no")
                        assert task.last_progress in reports or task.last_progress is None
                        reports.append(task.attempt)
                        await task.progress(task.attempt)
                        with cancellable():
                            reports.append(10 * task.attempt)
                            await task.progress(10 * task.attempt)
                        if tries.count((task.payload, 1)) == 1:
                            raise RetryLater(0.05, counts=False)
                        if task.payload == "fail" or task.attempt == 1:
                            raise KeyError(task.payload)
            except AcquireTimeout:
                return
            except KeyError:
                await taker()

        async with world.group() as group:
            await queue.put_many(["fail", "succeed", "discard"])
            group.start_soon(taker)
            group.start_soon(taker, newcomer)
        assert sorted(tries) == [
            ("discard", 1),
            *(("fail", n) for n in (1, 1, 2, 3)),
            *(("succeed", n) for n in (1, 1, 2)),
        ]
        await all_is_done(queue, store, done=1, dead=1, discarded=1, put=3)


@on_every_engine("shared.WorkQueue.take", "shared.Task.step")
async def a_step_has_one_value_in_all_deliveries(world):
    async with world.open() as store:
        queue = WorkQueue(store, "q", retry=Retry(attempts=3, backoff=0.1, jitter=0))
        runs, values = [], []

        async def count():
            await anyio.lowlevel.checkpoint()
            runs.append(None)
            return len(runs)

        async def taker(arrival=anyio.lowlevel.checkpoint):
            await arrival()
            try:
                while True:
                    async with queue.take(world.patience) as task:
                        with cancellable():
                            values.append(await task.step("count", count))
                        if task.attempt < 3:
                            raise KeyError(task.payload)
            except AcquireTimeout:
                return
            except KeyError:
                await taker()

        async with world.group() as group:
            await queue.put("a")
            group.start_soon(taker)
            group.start_soon(taker, newcomer)
        assert len(set(values)) <= 1
        await all_is_done(queue, store, done=1, put=1)


@on_every_engine("shared.WorkQueue.cancel", "shared.WorkQueue.take", "shared.Task.progress")
async def a_task_is_cancelled_while_somebody_has_it(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other = WorkQueue(store, "q"), WorkQueue(elsewhere, "q")
        outcomes, begun = [], anyio.Event()
        task_id = await queue.put("a")

        async def taker():
            try:
                async with queue.take() as task:
                    begun.set()
                    while True:
                        await task.progress("still there")
                        await pause()
            except TaskCancelled as error:
                outcomes.append(("cancelled", error.task_id))

        async def victim():
            await begun.wait()
            with cancellable() as scope:
                outcomes.append(await other.cancel(task_id))
            if scope.cancelled_caught:  # it may have worked all the same
                outcomes.append(True)

        async def canceller(arrival=anyio.lowlevel.checkpoint):
            await begun.wait()
            await arrival()
            outcomes.append(await queue.cancel(task_id))

        async with world.group() as group:
            group.start_soon(taker)
            group.start_soon(victim)
            group.start_soon(canceller)
            group.start_soon(canceller, newcomer)
        assert ("cancelled", task_id) in outcomes
        assert True in outcomes or world.faults  # whose answer was lost may hear that it has ended
        assert await queue.cancel(task_id) is False
        await all_is_done(queue, store, elsewhere, cancelled=1, put=1)


@on_every_engine("shared.WorkQueue.take")
async def what_an_ended_task_had_taken_is_given_back(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, work = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), Work()

        async def forgetful():
            await queue.take().__aenter__()

        async def victim():
            with cancellable():
                await do_one(queue, work)

        await other.put_many(["a", "b"])
        try:
            async with world.group() as group:
                group.start_soon(victim)
                group.start_soon(forgetful)
        except* RuntimeError:  # the loops complain of the scope that was not left
            pass
        await do_the_rest(other, work, 1 + world.patience)
        assert set(work.done) == {"a", "b"}
        await all_is_done(queue, store, elsewhere, done=2)
