"""Each try runs in a context of its own: a copy of the context in which its worker was started."""

from __future__ import annotations

import decimal
from contextvars import ContextVar
from functools import partial

import anyio
import anyio.to_thread
import pytest
from workers import work_off, working

import tenure
from tenure import BatchWorker, Lock, Retry, Worker, WorkQueue
from tenure.processor import Processor
from tenure.waiting import this_task_end

pytestmark = pytest.mark.backends("asyncio", "uvloop", "trio")

tenant = ContextVar("tenant", default="nobody")


def look(seen):
    seen.append((tenant.get(), str(decimal.Decimal(1) / 3)[:9]))


def leave(who):
    tenant.set(who)
    decimal.getcontext().prec = 4


FRESH = ("the worker", "0.3333333")


async def run(queue, worker):
    tenant.set("the worker")
    decimal.getcontext()  # an object that all inherit
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await anyio.wait_all_tasks_blocked()
        tenant.set("later")
        await queue.join()
        await worker.drain()


@pytest.mark.parametrize("make", [Worker, partial(BatchWorker, size=1)])
async def test_what_a_handler_sets_is_not_there_in_later_tries(store, make):
    queue, seen, inside = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=0)), [], []

    async def handler(payload):
        look(seen)
        leave("set at once")
        await anyio.sleep(0)
        inside.append(tenant.get())
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        tenant.set("set behind an await")
        async with anyio.create_task_group() as group:
            group.start_soon(child)
        await anyio.to_thread.run_sync(lambda: inside.append(tenant.get()))
        if payload in ("fails", ["fails"]):
            raise OSError(payload)

    async def child():
        await anyio.sleep(0)
        inside.append(tenant.get())
        tenant.set("of a child")

    await queue.put_many(["a", "fails", "b"])
    await run(queue, make(queue, handler, concurrency=1))
    assert seen == [FRESH] * 4
    assert inside == ["set at once", "set behind an await", "set behind an await"] * 4


async def test_what_a_thread_sets_is_not_there_in_later_tries(store):
    queue, seen = WorkQueue(store, "jobs"), []

    def handler(_):
        look(seen)
        leave("a thread")

    await queue.put_many(range(3))
    await run(queue, Worker(queue, handler, concurrency=1))
    assert seen == [FRESH] * 3


async def test_each_delivery_of_a_task_with_steps_and_children_has_a_context_of_its_own(store):
    queue, seen, in_step = WorkQueue(store, "jobs"), [], []

    async def handler(task: tenure.Task):
        look(seen)
        leave(f"{task.payload} {len(seen)}")
        if task.payload == "parent":
            await task.step("look", lambda: in_step.append(tenant.get()))
            async with task.children() as children:
                await children.put("child")

    await queue.put("parent")
    await run(queue, Worker(queue, handler, concurrency=1))
    assert seen == [FRESH] * 3
    assert in_step == ["parent 1"]


async def test_what_a_handler_sets_is_not_there_in_observers_and_handlers_of_dead_letters(open_store_on):
    seen, handled = [], anyio.Event()

    class Observer:
        def notice(self, event, **_):
            if event.startswith("task."):
                seen.append((event, tenant.get()))

    async def handler(_):
        tenant.set("leaked")
        raise OSError

    async def on_dead(_):
        seen.append(("on_dead", tenant.get()))
        handled.set()

    async with open_store_on(observer=Observer()) as store:
        tenant.set("the worker")
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
        await queue.put(1)
        async with working(queue, Worker(queue, handler, on_dead=on_dead)):
            await handled.wait()  # else a worker that drains leaves it to the next
    assert {name for name, _ in seen} >= {"task.dead", "task.done", "on_dead"}
    assert "leaked" not in {value for _, value in seen}
    assert ("on_dead", "the worker") in seen


async def test_what_the_handler_of_a_processor_sets_is_not_there_in_later_tries(store):
    seen = []

    async def handler(_):
        look(seen)
        leave("a processor")

    tenant.set("the worker")
    async with Processor(store, "jobs", handler, workers=1) as processor:
        await processor.submit_many(range(3))
        await processor.join()
    assert seen == [FRESH] * 3


async def test_tries_share_the_end_of_their_task_and_may_hold_locks(store):
    queue, ends = WorkQueue(store, "jobs"), set()

    async def handler(n):
        ends.add(this_task_end())
        async with Lock(store, "k"):
            await anyio.sleep(0)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep_forever()
        assert scope.cancelled_caught

    await queue.put_many(range(5))
    worker = Worker(queue, handler, concurrency=1)
    await work_off(queue, worker)
    assert worker.statistics().done == 5
    assert len(ends) == 1
