"""Children: a task ends after its children, and holds nothing while it waits for them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import anyio
import pytest
import workers

import tenure
from tenure import BatchWorker, Groups, Item, Job, Key, Retry, TaskCancelled, TaskFailed, Worker, WorkQueue
from tenure.errors import TooManyChildren

AT_ONCE = Retry(attempts=3, backoff=0, jitter=0)
ONCE = Retry(attempts=1)


async def run_all(*workers_, until):
    """Run the workers until the tasks named (a queue and an id) have ended."""
    async with anyio.create_task_group() as group:
        for worker in workers_:
            group.start_soon(worker.run)
        for queue, task_id in until:
            async with queue.follow(task_id) as changes:
                async for _ in changes:
                    pass
        group.cancel_scope.cancel()


async def test_a_task_gathers_the_results_of_its_children(store):
    sites, pages = WorkQueue(store, "sites"), WorkQueue(store, "pages")
    runs = Counter()

    async def crawl(site: tenure.Task):
        runs["crawl"] += 1
        urls = await site.step("list", lambda: [1, 2, 3])
        async with site.children(pages) as children:
            for url in urls:
                await children.put(url)
        assert [child.state for child in children] == ["done"] * 3
        return sum(child.result for child in children)

    async def page(task: tenure.Task):
        runs[task.payload] += 1
        return 10 * task.payload

    task_id = await sites.put("example.org")
    crawlers = Worker(sites, crawl, concurrency=1)
    await run_all(crawlers, Worker(pages, page), until=[(sites, task_id)])
    assert await sites.result(task_id) == 60
    assert runs == {"crawl": 2, 1: 1, 2: 1, 3: 1}
    assert crawlers.statistics().suspended == 1
    record = await sites.get(task_id)
    assert (record.attempts, record.state) == (0, "done")
    assert await sites.verify() and await pages.verify()


async def test_parents_and_children_of_one_queue_need_one_runner(store):
    queue = WorkQueue(store, "jobs")

    async def handler(task: tenure.Task):
        depth = task.payload
        if depth == 0:
            return 1
        async with task.children() as children:
            await children.put_many([depth - 1, Item(depth - 1, name="second")])
        return sum(child.result for child in children)

    ids = await queue.put_many([3, 3])
    await workers.work_off(queue, Worker(queue, handler, concurrency=1))
    assert [await queue.result(task_id) for task_id in ids] == [8, 8]


async def test_a_failed_child_cancels_the_others_and_is_raised(store):
    queue, seen = WorkQueue(store, "jobs", retry=ONCE), []

    async def handler(task: tenure.Task):
        if task.payload == "parent":
            try:
                async with task.children() as children:
                    await children.put_many(["fails", Item("late", delay=3600)])
            except* TaskFailed as group:
                seen.extend(group.exceptions)
            return [child.state for child in children]
        raise ValueError("bad page")

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == ["dead", "cancelled"]
    (error,) = seen
    assert error.state == "dead" and "bad page" in error.error


async def test_a_failure_that_is_not_caught_fails_the_try_and_the_next_try_puts_the_child_anew(store):
    queue, runs = WorkQueue(store, "jobs", retry=AT_ONCE), Counter()

    async def handler(task: tenure.Task):
        runs[task.payload] += 1
        if task.payload == "parent":
            async with task.children() as children:
                await children.put_many(["flaky", "steady"])
            return [child.result for child in children]
        if task.payload == "flaky" and runs["flaky"] <= 3:
            raise ValueError("not yet")
        return task.payload

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == ["flaky", "steady"]
    assert runs["flaky"] == 4
    assert (await queue.get(task_id)).attempts == 1


async def test_failures_are_collected(store):
    queue = WorkQueue(store, "jobs", retry=ONCE)

    async def handler(task: tenure.Task):
        if task.payload == "parent":
            async with task.children(on_failure="collect") as children:
                one, two, three = await children.put_many([0, 1, 2])
            with pytest.raises(TaskFailed, match="division"):
                _ = one.result
            assert "division" in one.error and two.error is None
            return [child.state for child in children] + [two.result, three.result]
        return 10 / task.payload

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == ["dead", "done", "done", 10.0, 5.0]


async def test_cancelling_a_task_cancels_its_children_before_it_ends(store):
    queue, ended = WorkQueue(store, "jobs"), []

    async def handler(task: tenure.Task):
        if task.payload == "parent":
            async with task.children() as children:
                await children.put("child")
            return
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(task.payload)

    task_id = await queue.put("parent")
    async with anyio.create_task_group() as group:
        group.start_soon(Worker(queue, handler).run)
        while (await queue.statistics()).leased != 1 or (await queue.statistics()).suspended != 1:
            await anyio.sleep(0.01)
        await queue.cancel(task_id)
        with pytest.raises(TaskCancelled):
            await queue.result(task_id)
        assert ended == ["child"]
        group.cancel_scope.cancel()
    assert (await queue.statistics()).cancelled == 2


async def test_a_block_that_is_left_by_an_exception_waits_at_the_end(store):
    queue, runs = WorkQueue(store, "jobs"), Counter()

    async def handler(task: tenure.Task):
        runs[task.payload] += 1
        if task.payload == "parent":
            try:
                async with task.children() as children:
                    await children.put("child")
                    if runs["parent"] == 1:
                        raise KeyError
            except KeyError:
                return "left"
            return [child.result for child in children]
        return "child"

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == ["child"]
    assert runs == {"parent": 2, "child": 1}


async def test_a_handler_that_swallows_the_interruption_is_suspended_all_the_same(store):
    queue, runs = WorkQueue(store, "jobs"), Counter()

    async def handler(task: tenure.Task):
        runs[task.payload] += 1
        if task.payload == "parent":
            with anyio.CancelScope() as scope:
                async with task.children() as children:
                    await children.put("child")
                    if runs["parent"] == 1:
                        scope.cancel()
            return "parent"
        return "child"

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == "parent"
    assert runs == {"parent": 2, "child": 1}


async def test_a_job_is_called(store):
    async def add(a: int, b: int = 1) -> int:
        return a + b

    queue, job = WorkQueue(store, "jobs"), Job(WorkQueue(store, "sums"), add)

    async def handler(task: tenure.Task):
        async with task.children(job.options(priority=7)) as children:
            one = await children.put(1)
            two = await children.put(job.item(1, b=5), "five")
            with pytest.raises(TypeError, match="a must be int"):
                await children.put(job)
        return [one.result, two.result]

    with pytest.raises(TypeError, match="cannot be called"):
        job.item(1, c=2)
    task_id = await queue.put(1)
    await run_all(Worker(queue, handler), Worker(job), until=[(queue, task_id)])
    assert await queue.result(task_id) == [2, 6]


async def test_a_child_has_the_options_of_a_put(store):
    queue, places = WorkQueue(store, "jobs"), WorkQueue(store, "places")
    now = datetime.now(UTC)
    own = {"priority": 7, "at": now + timedelta(hours=1), "deadline": timedelta(hours=2), "timeout": 5}

    async def handler(task: tenure.Task):
        async with task.children(places) as children:
            await children.put("one", name="a", **own, group="ann", meta={"tenant": "ann"})
            await children.put_many(
                [Item("two", name="b", delay=timedelta(minutes=1)), Item("three", at=now)]
            )

    worker = Worker(queue, handler)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await queue.put(1, priority=3)
        with anyio.fail_after(50):
            while (await places.statistics()).unfinished < 3:
                await anyio.sleep(0.01)
        late, ready = [(await places.tasks(state).page()).records for state in ("delayed", "waiting")]
        group.cancel_scope.cancel()
    assert [(record.payload, record.priority) for record in late] == [("two", 3), ("one", 7)]
    assert [(record.payload, record.priority) for record in ready] == [("three", 3)]
    (one,) = late[1:]
    assert (one.timeout, one.meta, 7000 < one.deadline <= 7200) == (5, {"tenant": "ann"}, True)


async def test_children_have_groups_of_their_own(store):
    queue, running, most = WorkQueue(store, "jobs", groups=Groups(limit=1)), Counter(), Counter()

    async def handler(task: tenure.Task):
        if task.payload == "parent":
            assert task.group == "ann"
            async with task.children() as children:
                await children.put_many([Item(n, group=group) for n in range(4) for group in ("ann", "bob")])
            return [child.result for child in children]
        running[task.group] += 1
        most[task.group] = max(most[task.group], running[task.group])
        await anyio.sleep(0.01)
        running[task.group] -= 1
        return task.group

    task_id = await queue.put("parent", group="ann")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == ["ann", "bob"] * 4
    assert most == {"ann": 1, "bob": 1}


async def test_equal_payloads_are_children_of_their_own_and_names_are_used_once(store):
    queue, runs = WorkQueue(store, "jobs"), Counter()

    async def handler(task: tenure.Task):
        if task.payload == "parent":
            async with task.children() as children:
                first = await children.put(1)
                second = await children.put(1)
                assert first.name != second.name
                await children.put(2, "named")
                with pytest.raises(RuntimeError, match="'named' was used before"):
                    await children.put(3, "named")
            with pytest.raises(RuntimeError, match="within the block"):
                await children.put(4)
            with pytest.raises(RuntimeError, match="'children' was used before"):
                async with task.children():
                    pass
            async with task.children(name="more") as more:
                await more.put(5)
            return [child.result for child in (*children, *more)]
        runs[task.payload] += 1
        return task.payload

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == [1, 1, 2, 5]
    assert runs == {1: 2, 2: 1, 5: 1}


async def test_a_body_that_names_other_children_each_time_meets_the_limit(store):
    queue, numbers = WorkQueue(store, "jobs", retry=ONCE), iter(range(100))

    async def handler(task: tenure.Task):
        if task.payload == "parent":
            async with task.children(max_children=3) as children:
                await children.put(next(numbers))

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    record = await queue.get(task_id)
    assert record.state == "dead" and TooManyChildren.__name__ in record.error


async def test_a_child_is_put_once_however_the_parent_is_interrupted(store):
    queue, runs = WorkQueue(store, "jobs"), Counter()

    async def handler(task: tenure.Task):
        runs[task.payload] += 1
        if task.payload == "parent":
            async with task.children() as children:
                await children.put("a")
                if runs["parent"] == 1:
                    raise tenure.RetryLater(0, counts=False)
                await children.put("b")
            return len(children)
        return task.payload

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == 2
    assert runs["a"] == runs["b"] == 1


async def test_wrong_places_and_arguments(store, open_store_on):
    queue = WorkQueue(store, "jobs", retry=ONCE)
    problems = []

    async def handler(task: tenure.Task):
        with pytest.raises(TypeError, match="queue must be a WorkQueue or a Job, not str"):
            task.children("pages")
        with pytest.raises(ValueError, match="name must have no '/'"):
            task.children(name="a/b")
        with pytest.raises(ValueError, match="on_failure must be"):
            task.children(on_failure="ignore")
        with pytest.raises(ValueError, match="max_children must be at most 10000"):
            task.children(max_children=10_001)
        with pytest.raises(TypeError, match="write `async with`"), task.children(name="sync"):
            pass
        async with anyio.create_task_group() as group:
            group.start_soon(elsewhere, task)
        async with open_store_on() as other:
            with pytest.raises(ValueError, match="of the task's own store"):
                task.children(WorkQueue(other, "jobs"))
        async with task.children() as children:
            with pytest.raises(TypeError):
                await children.put_many([1, object()])
            with pytest.raises(ValueError, match="priority"):
                await children.put(1, priority=2**40)
            for wrong in ({"key": "a"}, {"key": Key("a")}, {"expires": timedelta(hours=1)}):
                with pytest.raises(ValueError, match=f"^a child has no {next(iter(wrong))}:"):
                    await children.put(1, **wrong)
                with pytest.raises(ValueError, match=f"^a child has no {next(iter(wrong))}:"):
                    await children.put_many([0, Item(1, **wrong)])
            with pytest.raises(TypeError, match="unexpected keyword argument 'prioriti'"):
                await children.put(1, prioriti=1)
            assert len(children) == 0

    async def elsewhere(task):
        for method in (task.children, lambda: task.wait_for("x")):
            with pytest.raises(RuntimeError, match="in the handler's own task") as problem:
                made = method()
                await made
            problems.append(problem)

    task_id = await queue.put(1)
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) is None
    assert len(problems) == 2


async def test_children_in_the_thread_of_a_handler_are_refused_with_the_reason(store):
    queue = WorkQueue(store, "jobs")

    def handler(task: tenure.Task):
        task.children()

    task_id = await queue.put(1)
    await workers.work_off(queue, Worker(queue, handler, retry=Retry(attempts=1)))
    assert "call task.children in the handler's own task: an asynch" in (await queue.get(task_id)).error


async def test_no_children_in_batches_and_take_blocks(store):
    queue, problems = WorkQueue(store, "jobs"), []

    async def batch(tasks: list[tenure.Task]):
        with pytest.raises(RuntimeError, match="not in one of batches") as problem:
            tasks[0].children()
        problems.append(problem)

    await queue.put_many([1, 2])
    async with queue.take() as task:
        with pytest.raises(RuntimeError, match="take\\(\\) block"):
            task.children()
        with pytest.raises(RuntimeError, match="take\\(\\) block"):
            await task.wait_for("x")
    await workers.work_off(queue, BatchWorker(queue, batch, size=2))
    assert problems
    with pytest.raises(tenure.LeaseLost, match="released"):
        task.children()


async def test_a_shield_keeps_a_task_from_being_suspended(store):
    queue = WorkQueue(store, "jobs", retry=ONCE)

    async def handler(task: tenure.Task):
        if task.payload == "parent":
            with anyio.CancelScope(shield=True):
                async with task.children() as children:
                    await children.put("child")

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    record = await queue.get(task_id)
    assert record.state == "dead" and "shielded" in record.error


async def test_a_handler_that_leaves_its_shield_is_suspended_all_the_same(store):
    queue, runs = WorkQueue(store, "jobs", retry=ONCE), Counter()

    async def handler(task: tenure.Task):
        runs[task.payload] += 1
        if task.payload == "parent":
            with anyio.CancelScope(shield=True):
                try:
                    async with task.children() as children:
                        await children.put("child")
                except RuntimeError:
                    pass
            await anyio.sleep(1)
        return runs[task.payload]

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) == 2
    assert runs == {"parent": 2, "child": 1}


async def test_long_names_are_listed_in_pages(store):
    queue = WorkQueue(store, "jobs")
    names = [f"{n}{'x' * 511}" for n in range(3)]

    async def handler(task: tenure.Task):
        if task.payload == "parent":
            async with task.children(name="b" * 512) as children:
                await children.put_many(Item(n, name=name) for n, name in enumerate(names))
                first = await queue.children(task.id).page(limit=2)
                second = await queue.children(task.id).page(first.next, 2)
                found = [child.name for page in (first, second) for child in page.records]
                assert found == [f"{'b' * 512}/{name}" for name in names] and second.next is None

    task_id = await queue.put("parent")
    await workers.work_off(queue, Worker(queue, handler))
    assert await queue.result(task_id) is None


# signals


async def test_a_task_waits_for_a_signal_and_holds_nothing(store):
    queue, runs = WorkQueue(store, "jobs"), Counter()

    async def handler(task: tenure.Task):
        runs[task.payload] += 1
        if task.payload == "other":
            return None
        return await task.wait_for("approved")

    task_id = await queue.put("run", key="order-1")
    async with anyio.create_task_group() as group:
        group.start_soon(Worker(queue, handler, concurrency=1).run)
        await queue.result(await queue.put("other"))
        while (await queue.statistics()).suspended != 1:
            await anyio.sleep(0.01)
        assert await queue.signal(key="order-1", name="approved", value={"by": "ann"})
        assert await queue.result(task_id) == {"by": "ann"}
        group.cancel_scope.cancel()
    assert runs == {"run": 2, "other": 1}
    assert not await queue.signal(task_id, "approved")
    assert not await queue.signal(key="order-2", name="approved")


async def test_a_signal_that_came_before_is_found_and_the_first_counts(store):
    queue = WorkQueue(store, "jobs")

    async def handler(task: tenure.Task):
        return [await task.wait_for("go"), await task.wait_for("go")]

    task_id = await queue.put(1)
    assert await queue.signal(task_id, "go", 1)
    assert await queue.signal(task_id, "go", 1)
    assert not await queue.signal(task_id, "go", 2)
    worker = Worker(queue, handler)
    await workers.work_off(queue, worker)
    assert await queue.result(task_id) == [1, 1]
    assert worker.statistics().suspended == 0


async def test_a_signal_that_comes_too_late_is_refused(store, virtual_clock):
    queue = WorkQueue(store, "jobs")

    async def handler(task: tenure.Task):
        try:
            return await task.wait_for("go", timeout=5)
        except TimeoutError as problem:
            if task.deliveries and not await queue.signal(task.id, "go", 1):
                return str(problem)
            raise

    task_id = await queue.put(1)
    start = anyio.current_time()
    await workers.work_off(queue, Worker(queue, handler))
    assert "'go' has not come in time" in await queue.result(task_id)
    assert 4.9 < anyio.current_time() - start < 7


async def test_bad_signals(store):
    queue = WorkQueue(store, "jobs", max_payload=20)
    task_id = await queue.put(1)
    with pytest.raises(TypeError, match="task_id or a key"):
        await queue.signal(name="go")
    with pytest.raises(ValueError, match="name must not be empty"):
        await queue.signal(task_id)
    with pytest.raises(tenure.errors.PayloadTooLarge, match="the signal has"):
        await queue.signal(task_id, "go", "x" * 30)
    with pytest.raises(TypeError):
        await queue.signal(task_id, "go", object())
    assert not await queue.signal(task_id + 1, "go")
