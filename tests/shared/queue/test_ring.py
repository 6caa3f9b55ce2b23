"""Runners that wait to put into queues that only they empty: a warning, and a worker that is not ready."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

import tenure
from tenure import Worker, WorkQueue
from tenure.processor import Context, Processor

WARNING = "queue.waits_for_itself"


@pytest.fixture
def warnings(caplog):
    return lambda: [line for line in caplog.messages if line.startswith(WARNING)]


@asynccontextmanager
async def working(*workers):
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(worker.run)
        yield
        group.cancel_scope.cancel()


async def one_by_one(queue):
    for n in range(3):
        await queue.put(n)


async def side_by_side(queue):
    async with anyio.create_task_group() as group:
        for n in range(3):
            group.start_soon(queue.put, n)


async def in_portions(queue):
    await queue.put_many(range(3))


@pytest.mark.parametrize("crawl", [one_by_one, side_by_side, in_portions])
async def test_handlers_that_put_into_their_own_full_queue(store, virtual_clock, warnings, crawl):
    queue = WorkQueue(store, "pages", max_size=5)

    async def visit(page):
        await crawl(queue)

    worker = Worker(queue, visit, concurrency=2)
    await queue.put_many(range(4))
    async with working(worker):
        await anyio.sleep(10)
        assert worker.unready is not None
        assert worker.unready == (
            "its 2 runners all wait to put into what they empty themselves: pages is full"
        )
        assert warnings() == [f"{WARNING} queue=pages runners=2 full=pages"]
        await anyio.sleep(300)
        assert len(warnings()) == 1
        await anyio.sleep(600)
        assert len(warnings()) == 2
        await WorkQueue(store, "pages", max_size=1000).put(0)
        await anyio.sleep(1)
        assert worker.unready is None


async def test_a_ring_of_two_queues(store, virtual_clock, warnings):
    a, b = WorkQueue(store, "a", max_size=2), WorkQueue(store, "b", max_size=2)

    async def put_twice(queue, _):
        for n in range(2):
            await queue.put(n)

    workers = [
        Worker(a, partial(put_twice, b), concurrency=1),
        Worker(b, partial(put_twice, a), concurrency=2),
    ]
    await a.put_many(range(2))
    async with working(*workers):
        await anyio.sleep(30)
        assert all(worker.unready for worker in workers)
        assert sorted(warnings()) == [
            f"{WARNING} queue=a runners=1 full=b",
            f"{WARNING} queue=b runners=2 full=a",
        ]
        await a.purge("waiting")
        await anyio.sleep(0.1)
        assert workers[1].unready is None


async def test_workers_that_come_to_an_end_are_ready(store, virtual_clock, warnings):
    """A queue that is emptied slowly, or by nobody here, and a runner that works, are no reason for a warning."""
    slow, nobody = WorkQueue(store, "slow", max_size=1), WorkQueue(store, "nobody", max_size=1)
    own, alone = WorkQueue(store, "own", max_size=4), WorkQueue(store, "alone", max_size=4)

    async def last(_):
        await anyio.sleep(20)

    async def put_or_work(name):
        await (own.put("sleep") if name == "put" else anyio.sleep(1000))

    workers = [
        Worker(slow, last, concurrency=1),
        Worker(own, put_or_work, concurrency=2),
        Worker(alone, nobody.put, concurrency=2),
    ]
    for name in ("put", "sleep", "sleep", "sleep"):
        await own.put(name)
    await alone.put_many(range(4))
    async with working(*workers), anyio.create_task_group() as group:
        for n in range(5):
            group.start_soon(slow.put, n)
        for _ in range(20):
            await anyio.sleep(5)
            assert all(worker.unready is None for worker in workers)
        assert (await nobody.statistics()).producers == 2
        assert warnings() == []


async def test_puts_that_a_handler_has_left_behind_do_not_hold_its_worker(store, virtual_clock, warnings):
    queue = WorkQueue(store, "pages", max_size=2)

    async with anyio.create_task_group() as behind:

        async def visit(page):
            behind.start_soon(queue.put, page + 1)
            await anyio.sleep(1)

        worker = Worker(queue, visit, concurrency=2)
        await queue.put_many(range(2))
        async with working(worker):
            for _ in range(30):
                await anyio.sleep(1)
                assert worker.unready is None
        behind.cancel_scope.cancel()
    assert warnings() == []


async def test_a_processor_says_so(store, virtual_clock, warnings):
    async def visit(task: tenure.Task, _context: Context):
        for n in range(3):
            await processor.submit(n)

    processor = Processor(store, "flow", visit, workers=2)
    await processor.queue().configure(max_size=4)
    with anyio.move_on_after(60):
        async with processor:
            for n in range(3):
                await processor.submit(n)
            await anyio.sleep(30)
            assert "put into what they empty themselves: flow is full" in processor.unready
            assert warnings() == [f"{WARNING} queue=flow runners=2 full=flow"]
            await processor.queue().purge("waiting")
            await anyio.sleep(0.1)
            assert processor.unready is None


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_synchronous_handlers_that_put_by_blocking_calls(store, monkeypatch, warnings):
    monkeypatch.setattr("tenure.shared.queue._ring._PERIOD", 0.05)
    queue = WorkQueue(store, "pages", max_size=3)
    with tenure.blocking.open_store(store.url) as threads:

        def visit(page):
            pages = tenure.blocking.WorkQueue(threads, "pages", max_size=3)
            pages.put(page)
            pages.put(page)

        worker = Worker(queue, visit, concurrency=2)
        await queue.put_many(range(3))
        async with working(worker):
            with anyio.fail_after(20):
                while worker.unready is None:
                    await anyio.sleep(0.05)
            assert "put into what they empty themselves: pages is full" in worker.unready
            assert len(warnings()) == 1
            await queue.purge("waiting")
            await WorkQueue(store, "pages", max_size=1000).put(0)
