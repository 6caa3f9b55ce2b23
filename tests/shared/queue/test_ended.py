"""Children as they end: their parent passes them in the order of their ends, and holds nothing until the next end."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from workers import work_off, working

import tenure
from tenure import Retry, TaskFailed, Worker, WorkQueue
from tenure.engine import ENTRIES, PutChildren
from tenure.testing import FaultyEngine


@pytest.fixture(autouse=True)
def families(engine):
    """Leave an engine out that has no families yet."""
    if not engine.families:
        pytest.skip(f"{engine.url} has no families of tasks")


class World:
    """A queue with one runner. It does the children in the order of their names, and before each their parent, if it
    goes on: the parent is older. `given` has the names of the children that each delivery of the parent was given.
    """

    def __init__(self, store, **block):
        self.queue = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=0, jitter=0))
        self.block = block
        self.given, self.steps = [], []

    async def run(self):
        """The state and the result of the parent."""
        task_id = await self.queue.put("parent", priority=99)
        worker = Worker(self.queue, self.handle, concurrency=1, prefetch=0)
        await work_off(self.queue, worker)
        record = await self.queue.get(task_id)
        assert record.attempts == (record.state == "dead")
        return record.state, worker.statistics().suspended

    async def handle(self, task: tenure.Task):
        if task.payload == "parent":
            self.given.append("")
            async with task.children(**self.block) as children:
                await self.parent(task, children)
            self.children = list(children)
        elif task.payload == "fails":
            raise tenure.Dead("bad page")
        elif task.payload == "waits":
            await anyio.sleep_forever()

    async def parent(self, task, children):
        """Put c, b and a, and pass them."""
        for name in "cba":
            await self.put(children, name)
        async for child in children.ended():
            await self.step(task, child)

    async def put(self, children, name, payload="works"):
        return await children.put(payload, name=name, priority=ord("z") - ord(name))

    async def step(self, task, child):
        self.given[-1] += child.name
        assert child.ended
        await task.step(child.name, partial(self.steps.append, child.name))


async def test_a_delivery_gives_what_earlier_ones_gave_and_then_the_next_end(store):
    world = World(store)
    assert await world.run() == ("done", 3)
    assert world.given == ["", "a", "ab", "abc"]
    assert world.steps == ["a", "b", "c"]
    assert [child.name for child in world.children] == ["c", "b", "a"]


async def test_children_that_are_put_meanwhile_are_given_too(store):
    class Crawl(World):
        async def parent(self, task, children):
            await self.put(children, "a")
            async for child in children.ended():
                await self.step(task, child)
                if child.name < "c":
                    await self.put(children, chr(ord(child.name) + 1))

    world = Crawl(store)
    assert await world.run() == ("done", 3)
    assert world.given == ["", "a", "ab", "abc"]


async def test_a_loop_that_is_left_leaves_the_others_to_the_end_of_the_block(store):
    class First(World):
        async def parent(self, task, children):
            await self.put(children, "b")
            await self.put(children, "a")
            async for child in children.ended():
                await self.step(task, child)
                break

    world = First(store)
    assert await world.run() == ("done", 2)
    assert world.given == ["", "a", "a"]
    assert [child.state for child in world.children] == ["done", "done"]


class Fails(World):
    """A parent whose second child fails."""

    third = "works"

    async def parent(self, task, children):
        for name, payload in (("a", "works"), ("b", "fails"), ("c", self.third)):
            await self.put(children, name, payload=payload)
        async for child in children.ended():
            await self.step(task, child)


async def test_a_failed_child_ends_the_loop_as_it_ends_the_block(store):
    class Caught(Fails):
        third = "waits"

        async def handle(self, task: tenure.Task):
            try:
                await super().handle(task)
            except* TaskFailed as group:
                (self.error,) = group.exceptions

    world = Caught(store)
    assert await world.run() == ("done", 3)
    assert world.given == ["", "a", "a", "a"]
    assert "bad page" in world.error.error
    statistics = await world.queue.statistics()
    assert (statistics.done, statistics.dead, statistics.cancelled) == (2, 1, 1)


async def test_with_collect_a_failed_child_is_given(store):
    world = Fails(store, on_failure="collect")
    assert await world.run() == ("done", 3)
    assert world.given == ["", "a", "ab", "abc"]
    assert [child.state for child in world.children] == ["done", "dead", "done"]


async def test_each_end_of_another_block_wakes_the_task_once(store):
    class Nested(World):
        async def parent(self, task, children):
            await self.put(children, "a")
            await self.put(children, "b")
            async with task.children(name="inner") as inner:
                await self.put(inner, "c")
                async for child in inner.ended():
                    await self.step(task, child)

    world = Nested(store)
    assert await world.run() == ("done", 3)
    assert world.given == ["", "", "", "c"]


async def test_an_end_that_the_delivery_did_not_see_is_given_by_the_next(store):
    class Slow(World):
        async def parent(self, task, children):
            await self.put(children, "a")
            await self.put(children, "b")
            if len(self.given) == 1:
                # another worker does them
                for _ in range(2):
                    async with self.queue.take(timeout=5):
                        pass
            async for child in children.ended():
                await self.step(task, child)

    world = Slow(store)
    assert await world.run() == ("done", 1)
    assert world.given == ["", "ab"]


async def test_a_block_without_children_gives_none(store):
    class Empty(World):
        async def parent(self, task, children):
            assert [child async for child in children.ended()] == []

    assert await Empty(store).run() == ("done", 0)


async def test_outside_of_the_block_nothing_is_given(store):
    class Outside(World):
        async def parent(self, task, children):
            self.ended = children.ended()
            self.outside = children

    world = Outside(store)
    assert await world.run() == ("done", 0)
    for ended in (world.ended, world.outside.ended()):
        with pytest.raises(RuntimeError, match="within the block"):
            await anext(ended)


async def test_a_delivery_after_a_loss_gives_the_same(store, virtual_clock, freeze):
    class Frozen(World):
        async def step(self, task, child):
            await super().step(task, child)
            if child.name == "b" and len(self.given) == 3:
                freeze(100)
                await anyio.sleep(1)

    world = Frozen(store)
    assert await world.run() == ("done", 3)
    assert world.given == ["", "a", "ab", "ab", "abc"]
    assert world.steps == ["a", "b", "c"]


async def test_a_task_that_is_cancelled_between_two_ends_ends_after_its_children(store):
    world = World(store)

    async def cancel(task, child):
        await world.queue.cancel(task_id)
        await anyio.sleep_forever()

    world.step = cancel
    task_id = await world.queue.put("parent", priority=99)
    async with working(world.queue, Worker(world.queue, world.handle, concurrency=1, prefetch=0)):
        pass
    assert (await world.queue.get(task_id)).state == "cancelled"
    statistics = await world.queue.statistics()
    assert (statistics.done, statistics.cancelled) == (1, 3)


class Paged(FaultyEngine):
    """An engine that has something happen before the second page of a task's entries is read."""

    meanwhile = None

    async def execute(self, operations):
        if self.meanwhile and any(
            getattr(o, "index", None) is ENTRIES and "/2" in o.after for o in operations
        ):
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super().execute(operations)


async def test_ends_between_two_pages_of_the_record_are_given_in_their_order(engine, open_store_on):
    given, first = [], {1: 9, 0: 8, 299: 7}
    paged = Paged(engine)
    async with tenure.open_store(paged) as store, open_store_on() as other:
        parents, parts = WorkQueue(store, "parents"), WorkQueue(other, "parts")

        async def handler(task: tenure.Task):
            given.append([])
            async with task.children(WorkQueue(store, "parts")) as children:
                await children.put_many(
                    tenure.Item(n, name=f"{n:03}", priority=first.get(n, 0)) for n in range(300)
                )
                async for child in children.ended():
                    given[-1].append(child.name)

        async def end(number=1):
            for _ in range(number):
                async with parts.take():
                    pass

        task_id = await parents.put(None)
        worker = Worker(parents, handler, concurrency=1)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            while not worker.statistics().suspended:
                await anyio.sleep(0.01)
            paged.meanwhile = partial(end, 2)
            await end()
            with anyio.fail_after(10):
                while max(map(len, given)) < 3 or (await parents.get(task_id)).state != "suspended":
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()
    assert given[-1] == ["001", "000", "299"]
    assert all(earlier == given[-1][: len(earlier)] for earlier in given)


class Late(FaultyEngine):
    """An engine whose answer to a put of children comes after the caller has been cancelled, if there is a scope."""

    scope = None

    async def execute(self, operations):
        answers = await super().execute(operations)
        if self.scope and any(isinstance(o, PutChildren) for o in operations):
            scope, self.scope = self.scope, None
            scope.cancel()
            await anyio.sleep(0.01)
        return answers


async def test_the_next_end_is_given_if_the_put_of_a_child_was_cancelled_and_arrived(engine):
    late = Late(engine)

    class Impatient(World):
        async def parent(self, task, children):
            for name in "ab":
                await self.put(children, name)
            with anyio.CancelScope() as late.scope:
                await self.put(children, "c")
            async for child in children.ended():
                await self.step(task, child)

    async with tenure.open_store(late) as store:
        world = Impatient(store)
        assert await world.run() == ("done", 3)
    assert world.given == ["", "a", "ab", "abc"]
