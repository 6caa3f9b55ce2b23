"""A handler that blocks the event loop for as long as leases can hardly stand is named in a warning."""

from __future__ import annotations

import threading
import time

import anyio
import pytest

import tenure
from tenure import Worker, WorkQueue
from tenure.processor import Processor


async def blocks(task: tenure.Task):
    if task.deliveries == 1:
        time.sleep(0.6)


async def behaves(task: tenure.Task):
    await anyio.sleep(0.1)


async def work_off(store, handler):
    queue = WorkQueue(store, "jobs", retry=tenure.Retry(attempts=1))
    await queue.put(1)
    worker = Worker(queue, handler)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await queue.join()
        await worker.drain()


async def process(store, handler):
    async with Processor(store, "p", handler, preset="small") as processor:
        await processor.submit(1)
        await processor.join()


def warnings(caplog):
    return [
        record.getMessage() for record in caplog.records if "event loop is blocked" in record.getMessage()
    ]


@pytest.mark.parametrize("work", [work_off, process])
@pytest.mark.backends("asyncio", "uvloop", "trio")
async def test_a_handler_that_blocks_the_loop_is_named(caplog, work):
    async with tenure.open_store("memory:", ttl=0.6) as store:
        await work(store, blocks)
    (warning,) = warnings(caplog)
    line = blocks.__code__.co_firstlineno + 2
    assert f"{__file__}:{line}, in blocks: time.sleep(0.6)" in warning
    assert "(ttl 0.6 s)" in warning
    (record,) = [record for record in caplog.records if record.getMessage() == warning]
    assert (record.name, record.levelname) == ("tenure", "WARNING")


@pytest.mark.parametrize("work", [work_off, process])
async def test_one_that_does_not_is_not_and_the_watch_ends_with_the_worker(caplog, work):
    async with tenure.open_store("memory:", ttl=10) as store:
        await work(store, behaves)
        assert not [thread for thread in threading.enumerate() if "watch of" in thread.name]
    assert warnings(caplog) == []
