"""What ends a handler, and what of it goes beyond its task: cancellations that were requested, and signals."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import threading
from itertools import product

import anyio
import pytest

import tenure
from tenure import Retry, Worker, WorkQueue
from tenure.engines.memory import MemoryEngine
from tenure.processor import Context, Processor
from tenure.testing import VirtualClock

LOOPS = ("asyncio", "uvloop", "trio")
TWICE = Retry(attempts=2, backoff=0)


class Odd(BaseException):
    """Neither an Exception nor one of Python's own."""


POISON = {
    "SystemExit: 5": lambda: SystemExit(5),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "Odd: odd": lambda: Odd("odd"),
    "BaseExceptionGroup: two (2 sub-exceptions) [SystemExit: 5; KeyError: 'k']": lambda: BaseExceptionGroup(
        "two", [SystemExit(5), KeyError("k")]
    ),
    "BaseExceptionGroup: deep (1 sub-exception) [BaseExceptionGroup: one (1 sub-exception) [KeyboardInterrupt]]": (
        lambda: BaseExceptionGroup("deep", [BaseExceptionGroup("one", [KeyboardInterrupt()])])
    ),
}


def handlers(made):
    def in_a_thread(task: tenure.Task):
        if task.payload == "poison":
            raise made()
        return "fine"

    async def on_the_loop(task: tenure.Task):
        await anyio.lowlevel.checkpoint()
        return in_a_thread(task)

    async def late(task: tenure.Task):
        try:
            await anyio.sleep(0.001)
        finally:
            await anyio.lowlevel.checkpoint()
            in_a_thread(task)

    return {"sync": in_a_thread, "async": on_the_loop, "late": late}


async def queue_with_poison(store):
    queue = WorkQueue(store, "jobs", retry=TWICE)
    return queue, await queue.put_many(["poison", "good", "good"])


async def dead_and_done(queue):
    statistics = await queue.statistics()
    assert (statistics.done, statistics.dead, statistics.leased) == (2, 1, 0)
    (record,) = (await queue.tasks("dead").page()).records
    assert record.attempts == 2
    return record.error


@pytest.mark.parametrize("kind", ["sync", "async", "late"])
@pytest.mark.parametrize("error", POISON)
@pytest.mark.backends(*LOOPS)
async def test_what_a_handler_raises_is_a_failed_try_whatever_it_is(kind, error):
    async with tenure.open_store("memory:") as store:
        queue, _ = await queue_with_poison(store)
        worker = Worker(queue, handlers(POISON[error])[kind], concurrency=2)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                await queue.join()
                await worker.drain()
        assert await dead_and_done(queue) == error.removesuffix(": ")
        assert (worker.statistics().retried, worker.statistics().given_back) == (1, 0)


@pytest.mark.parametrize("error", POISON)
@pytest.mark.parametrize("timeout", [None, 5.0])
async def test_a_processor_takes_it_as_a_failed_try_too(virtual_clock, error, timeout):
    async with tenure.open_store("memory:") as store:
        handler = handlers(POISON[error])["async"]
        async with Processor(store, "p", handler, timeout=timeout, retry=TWICE) as processor:
            await processor.submit_many(["poison", "good", "good"])
            await processor.join()
            assert await dead_and_done(processor.queue()) == error
            totals = processor.metrics().totals
            assert (totals["retried"], totals["failures"], totals["given_back"]) == (1, 2, 0)


async def test_a_processor_does_not_count_what_is_postponed_as_a_failure(virtual_clock, caplog):
    seen = []

    async def handler(task: tenure.Task, context: Context):
        seen.append(task.attempt)
        if len(seen) < 5:
            raise tenure.RetryLater(1, counts=False)

    async with tenure.open_store("memory:") as store:
        async with Processor(store, "p", handler, retry=TWICE) as processor:
            await processor.submit(1)
            await processor.join()
            totals = processor.metrics().totals
            assert [totals[name] for name in ("postponed", "done", "retried", "failures")] == [4, 1, 0, 0]
    assert seen == [1] * 5
    assert not [record for record in caplog.records if "failures" in record.getMessage()]


# cancellations


async def test_errors_beside_a_requested_cancellation_fail_the_try_and_the_cancellation_goes_on(
    virtual_clock,
):
    """As an error alone does, that is raised while a handler cleans up."""

    async def fails_at_its_end():
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("while cleaning up")

    async def handler(task: tenure.Task):
        async with anyio.create_task_group() as group:
            group.start_soon(fails_at_its_end)
            await anyio.sleep_forever()

    async with tenure.open_store("memory:") as store:
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=2, backoff=1000))
        await queue.put(1)
        with anyio.move_on_after(1) as scope:
            await Worker(queue, handler).run()
        assert scope.cancelled_caught
        (record,) = (await queue.tasks("delayed").page()).records
        assert (record.attempts, record.deliveries) == (1, 1)


async def test_a_requested_cancellation_alone_gives_it_back(virtual_clock):
    async def handler(task: tenure.Task):
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            await anyio.sleep_forever()

    async with tenure.open_store("memory:") as store:
        queue = WorkQueue(store, "jobs", retry=TWICE)
        await queue.put(1)
        with anyio.move_on_after(1) as scope:
            await Worker(queue, handler).run()
        assert scope.cancelled_caught
        (record,) = (await queue.tasks("waiting").page()).records
        assert (record.attempts, record.deliveries) == (0, 0)


@pytest.mark.backends("asyncio")
async def test_a_stray_cancellation_in_a_group_fails_the_try(virtual_clock):
    async def handler(task: tenure.Task):
        raise BaseExceptionGroup("stray", [asyncio.CancelledError()])

    async with tenure.open_store("memory:") as store:
        queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
        await queue.put(1)
        worker = Worker(queue, handler, concurrency=1)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                await queue.join()
                await worker.drain()
        assert "CancelledError" in (await queue.tasks("dead").page()).records[0].error


@pytest.mark.backends("asyncio")
async def test_a_native_cancellation_gives_it_back(virtual_clock):
    async def handler(payload):
        await anyio.sleep_forever()

    async with tenure.open_store("memory:") as store:
        queue = WorkQueue(store, "jobs")
        await queue.put(1)
        running = asyncio.get_running_loop().create_task(Worker(queue, handler).run())
        await anyio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        (record,) = (await queue.tasks("waiting").page()).records
        assert (record.attempts, record.deliveries) == (0, 0)


# signals


def interrupted_by(number, backend, *, busy, expected, block=False):
    """Run a worker whose handler, or a block that, gets a real signal; what is left in the store."""
    clock = VirtualClock()
    engine = MemoryEngine(clock=clock.now)
    loop = "trio" if backend == "trio" else "asyncio"

    async def handler(task: tenure.Task):
        if not busy:
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
            await anyio.sleep(20)
            return
        os.kill(os.getpid(), number)
        for _ in range(1_000_000):
            pass
        await anyio.sleep(20)

    async def work():
        async with tenure.open_store(engine, ttl=300) as store:
            queue = WorkQueue(store, "jobs", retry=Retry(attempts=1))
            await queue.put(1)
            if not block:
                await Worker(queue, handler, concurrency=2).run()
            async with queue.take() as task:
                await handler(task)

    async def look():
        async with tenure.open_store(engine, ttl=300) as store:
            return await WorkQueue(store, "jobs").statistics()

    with pytest.raises(BaseException) as raised:
        anyio.run(work, backend=loop, backend_options={"use_uvloop": True} if backend == "uvloop" else {})
    error = raised.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, expected)
    left = anyio.run(look, backend=loop)
    # Asyncio logs the interrupted task when it is freed. On Python 3.11 that must not happen within `ast.parse`
    # (CPython gh-106905).
    del error, raised
    gc.collect()
    return left


@pytest.mark.parametrize("backend", LOOPS)
@pytest.mark.parametrize(("busy", "block"), list(product((True, False), repeat=2)))
def test_a_real_interrupt_ends_the_worker_or_block_and_gives_the_task_back(backend, busy, block):
    left = interrupted_by(signal.SIGINT, backend, busy=busy, expected=KeyboardInterrupt, block=block)
    assert (left.waiting, left.dead) == (1, 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_so_does_the_exit_that_a_signal_handler_raises(backend, wrapped):
    """The idiom of programs that end by SIGTERM."""

    def leave(number, frame, code=0):
        raise SystemExit(code)

    before = signal.signal(signal.SIGTERM, functools.partial(leave, code=3) if wrapped else leave)
    try:
        left = interrupted_by(signal.SIGTERM, backend, busy=True, expected=SystemExit)
    finally:
        signal.signal(signal.SIGTERM, before)
    # asyncio stops its loop on the spot when a task raises this: then the session ends the delivery
    assert left.waiting + left.leased == 1
    assert left.dead == 0


def test_a_loop_without_a_signal_handler_of_its_own():
    """Python's handler has no frame: then it matters whether the innermost frame stands at a raise."""
    from tenure.handlers import split_failure

    async def part(handler):
        try:
            handler()
        except BaseException as error:
            return [part and type(part) for part in split_failure(error)]

    def raises():
        raise KeyboardInterrupt

    def gets_the_signal():
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1_000_000):
            pass

    def parts(handler):
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(part(handler))
        finally:
            loop.close()

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert parts(raises) == [KeyboardInterrupt, None]
    assert parts(gets_the_signal) == [None, KeyboardInterrupt]
