"""Families: trees of tasks whose workers and watchers are cancelled at any time."""

from __future__ import annotations

from collections import Counter

import anyio
import anyio.lowlevel
from explored.catalogue import on_every_engine
from explored.scenarios.queues import all_is_done
from explored.world import pause

from benchmarks.soak.referees import History, structured
from tenure import Item, Retry, Task, TaskCancelled, TaskFailed, Worker, WorkQueue
from tenure.engine import ENTRIES, Scan
from tenure.testing import cancellable

RETRY = Retry(attempts=2, backoff=0.05, jitter=0)


class Tree:
    """Handlers of a tree: each payload is a name, its tasks a part of it longer."""

    def __init__(self, shape, fails=(), *, passes=False):
        self.shape = shape
        self.fails = fails
        self.passes = passes
        self.passed = []
        self.history = History(clock=anyio.current_time)
        self.done = Counter()

    async def handle(self, task: Task):
        name = task.payload
        parent = name.rpartition("/")[0] or None
        with self.history.trying(name, parent=parent):
            await pause()
            async with task.children() as children:
                names = [f"{name}/{part}" for part in self.shape.get(name, ())]
                if names:
                    await children.put(names[0], "first")
                    await children.put_many([Item(other) for other in names[1:]])
                if self.passes:
                    self.passed.append([child.result[0] async for child in children.ended()])
            if name in self.fails:
                raise KeyError(name)
            self.done[name] += 1
            return [name, *(child.result for child in children)]

    async def watch(self, queue, task_id, name):
        try:
            result = await queue.result(task_id)
            self.history.ended(name, "done")
            return result
        except TaskFailed as failed:
            self.history.ended(name, failed.state)
        except TaskCancelled:
            self.history.ended(name, "cancelled")
        return None


@on_every_engine(
    "shared.Children.put",
    "shared.Children.put_many",
    "shared.Children.__aenter__",
    "shared.Children.__aexit__",
)
async def a_tree_is_worked_off_whichever_worker_is_cancelled(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other = (WorkQueue(place, "q", retry=RETRY) for place in (store, elsewhere))
        tree, results = Tree({"a": "bc", "a/b": "d"}), []
        workers = [Worker(queue, tree.handle, concurrency=1), Worker(other, tree.handle, concurrency=1)]
        dying = Worker(queue, tree.handle, concurrency=1)

        async def victim():
            with cancellable():
                await dying.run()

        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            for worker in workers:
                group.start_soon(worker.run)
            results.append(await tree.watch(other, await queue.put("a"), "a"))
            for worker in [*workers, dying]:
                group.start_soon(worker.drain)
        assert results == [["a", ["a/b", ["a/b/d"]], ["a/c"]]]
        assert structured(tree.history, whole=False).ended == 1
        await all_is_done(queue, store, elsewhere, done=4, put=4)


@on_every_engine("shared.Children.ended")
async def children_are_passed_as_they_end_whichever_worker_is_cancelled(world):
    async with world.open() as store:
        queue, tree = WorkQueue(store, "q", retry=RETRY), Tree({"a": "bcd"}, passes=True)
        worker, dying = (Worker(queue, tree.handle, concurrency=1) for _ in range(2))

        async def victim():
            with cancellable():
                await dying.run()

        async with anyio.create_task_group() as group:
            group.start_soon(victim)
            group.start_soon(worker.run)
            await tree.watch(queue, await queue.put("a"), "a")
            for running in (worker, dying):
                group.start_soon(running.drain)
        assert sorted(max(tree.passed, key=len)) == ["a/b", "a/c", "a/d"]
        assert structured(tree.history, whole=False).ended == 1
        await all_is_done(queue, store, done=4, put=4)


@on_every_engine("shared.Task.children", "shared.Children.put_many")
async def a_tree_that_is_cancelled_ends_from_below(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other = (WorkQueue(place, "q", retry=RETRY) for place in (store, elsewhere))
        tree = Tree({"a": "bc", "a/b": "d", "a/c": "e"})
        workers = [Worker(queue, tree.handle, concurrency=2), Worker(other, tree.handle, concurrency=1)]

        async def canceller(task_id):
            with cancellable():
                await anyio.sleep(0.025)
            await other.cancel(task_id)

        async with anyio.create_task_group() as group:
            for worker in workers:
                group.start_soon(worker.run)
            task_id = await queue.put("a")
            group.start_soon(canceller, task_id)
            await tree.watch(queue, task_id, "a")
            await pause()
            for worker in workers:
                group.start_soon(worker.drain)
        assert structured(tree.history, whole=False).ended == 1
        await all_is_done(queue, store, elsewhere)


@on_every_engine("shared.Children.__aexit__")
async def a_failed_child_ends_its_siblings_and_its_parents_try(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other = (WorkQueue(place, "q", retry=RETRY) for place in (store, elsewhere))
        tree = Tree({"a": "bc", "a/c": "d"}, fails={"a/b"})
        workers = [Worker(queue, tree.handle, concurrency=2), Worker(other, tree.handle, concurrency=1)]

        async def victim(task_id):
            with cancellable():
                await tree.watch(queue, task_id, "a")

        async with anyio.create_task_group() as group:
            for worker in workers:
                group.start_soon(worker.run)
            task_id = await queue.put("a")
            group.start_soon(victim, task_id)
            await tree.watch(other, task_id, "a")
            for worker in workers:
                group.start_soon(worker.drain)
        structured(tree.history, whole=False)
        assert (await queue.get(task_id)).state == "dead"
        assert (await store._handle.call(Scan(ENTRIES, queue.key, only=str(task_id)))).rows != ()
        await all_is_done(queue, store, elsewhere)


@on_every_engine("shared.Task.wait_for", "shared.WorkQueue.signal")
async def a_signal_and_a_wait_meet(world):
    async with world.open() as store, world.open() as elsewhere:
        queue, other, runs = WorkQueue(store, "q"), WorkQueue(elsewhere, "q"), []

        async def handle(task: Task):
            runs.append(task.deliveries)
            return await task.wait_for("go", timeout=1000)

        async def signaller(task_id, value):
            with cancellable():
                await other.signal(task_id, "go", value)

        workers = [Worker(queue, handle, concurrency=1), Worker(other, handle, concurrency=1)]
        async with anyio.create_task_group() as group:
            for worker in workers:
                group.start_soon(worker.run)
            task_id = await queue.put(1)
            group.start_soon(signaller, task_id, 1)
            group.start_soon(signaller, task_id, 2)
            await pause()
            sent = await queue.signal(task_id, "go", 3)
            result = await queue.result(task_id)
            assert result in (1, 2, 3) and sent is (result == 3)
            for worker in workers:
                group.start_soon(worker.drain)
        await all_is_done(queue, store, elsewhere, done=1, put=1)


class Owners:
    """Handlers of owners and of the releases that they name in the same queue: a release is known by its thing."""

    def __init__(self, *names, together=False):
        self.names = names
        self.together = together
        self.history = History(clock=anyio.current_time)
        self.owner = {}

    async def handle(self, task: Task):
        if task.thing is not None:
            with self.history.trying(task.thing, parent=self.owner[task.thing], undoes=True):
                await pause()
            return
        with self.history.trying(str(task.id)):
            for name in self.names:
                release = await task.at_end(name, unless_done=name == "given", together=self.together)
                self.owner[release.thing] = str(task.id)
                if name == "kept":
                    self.history.ended(release.thing, "kept")
                    assert await task.keep(name)
                elif name == "given":
                    self.given = release.thing
                else:
                    self.history.named(release.thing, parent=str(task.id))
                await pause()
            await self.work(task)

    async def work(self, task):
        async with task.children() as children:
            await children.put("child", "a")

    async def watch(self, queue, task_id):
        try:
            await queue.result(task_id)
            state = "done"
        except TaskCancelled:
            state = "cancelled"
        self.history.ended(str(task_id), state)
        return state


async def owned(world, owners, state):
    """A task that may be cancelled, while one of two workers is: all that it has named is undone, or kept."""
    async with world.open() as store, world.open() as elsewhere:
        queue, other = (WorkQueue(place, "q", retry=RETRY) for place in (store, elsewhere))

        async def handle(task: Task):
            if task.payload == "child":
                with owners.history.trying(str(task.id), parent=owners.root):
                    await pause()
            else:
                await owners.handle(task)

        workers = [Worker(queue, handle, concurrency=2), Worker(other, handle, concurrency=2)]
        dying = Worker(other, handle, concurrency=1)

        async def victim():
            with cancellable():
                await dying.run()

        async def canceller(task_id):
            with cancellable():
                await anyio.sleep(0.025)
            await other.cancel(task_id)

        async with anyio.create_task_group() as group:
            task_id = await queue.put("owner")
            owners.root = str(task_id)
            group.start_soon(victim)
            for worker in workers:
                group.start_soon(worker.run)
            if state == "cancelled":
                group.start_soon(canceller, task_id)
            assert await owners.watch(queue, task_id) in ("done", state)
            for worker in [*workers, dying]:
                group.start_soon(worker.drain)
        assert structured(owners.history, whole=False).ended >= 1
        await all_is_done(queue, store, elsewhere)


@on_every_engine("shared.Task.at_end", "shared.Task.keep")
async def what_a_task_has_named_is_undone_whichever_worker_is_cancelled(world):
    await owned(world, Owners("first", "kept", "given", "last"), "done")


@on_every_engine("shared.Task.at_end")
async def what_a_cancelled_task_has_named_is_undone_after_its_children(world):
    await owned(world, Owners("first", "second", "third", together=True), "cancelled")


@on_every_engine("shared.Task.undo")
async def a_task_undoes_after_its_children_and_goes_on(world):
    class Undoes(Owners):
        async def work(self, task):
            await super().work(task)
            await task.undo("first")

    owners = Undoes("first")
    # it goes on afterwards, which a release that undoes at the end does not allow
    trying = owners.history.trying
    owners.history.trying = lambda name, parent=None, undoes=False: trying(name, parent=parent)
    await owned(world, owners, "done")
