"""A rated worker starts no faster than its rate, whatever came before."""

from __future__ import annotations

import anyio

import tenure
from tenure import Limit, RateLimiter, WorkQueue
from tenure.cli.run._crew import Workers
from tenure.engine import Spend


def crew(queue, call, limiter, workers):
    return Workers(queue, call, workers=workers, in_threads=False, limiter=limiter)


async def test_those_that_were_idle_do_not_start_all_at_once(virtual_clock):
    starts = []

    async def stamp(task, threads):
        starts.append(anyio.current_time())

    async with tenure.open_store("memory:") as store:
        queue = WorkQueue(store, "slow")
        worker = crew(queue, stamp, RateLimiter(store, "slow", Limit(2, burst=2)), 10)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await anyio.sleep(30)
            await queue.put_many(range(10))
            await queue.join()
            await worker.drain()
    assert len(starts) == 10
    assert all(later - earlier >= 1 - 1e-6 for earlier, later in zip(starts, starts[3:], strict=False))


async def test_a_drain_gives_back_what_waits_for_the_rate(virtual_clock):
    started = []

    async def note(task, threads):
        started.append(task.payload)

    async with tenure.open_store("memory:") as store:
        queue = WorkQueue(store, "slower")
        worker = crew(queue, note, RateLimiter(store, "slower", Limit(1, per=3600, burst=1)), 2)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await anyio.sleep(8000)
            await queue.put_many(["a", "b"])
            await anyio.sleep(1)
            with anyio.fail_after(1):
                await worker.drain()
        left = (await queue.tasks("waiting").page()).records
        assert sorted([*started, *(task.payload for task in left)]) == ["a", "b"]
        assert [task.attempts for task in left] == [0]


async def test_an_outage_longer_than_the_ttl_does_not_end_it(engine, virtual_clock):
    done = []

    async def note(task, threads):
        done.append(task.payload)

    async with tenure.open_store(engine, ttl=3.0) as store:
        queue = WorkQueue(store, "q")
        await queue.put_many(range(8))
        worker = crew(queue, note, RateLimiter(store, "q", Limit(1)), 2)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await anyio.sleep(2.5)
            engine.down_at = Spend
            await anyio.sleep(10)
            assert engine.down
            engine.down, engine.down_at = False, ()
            await queue.join()
            await worker.drain()
    assert set(done) == set(range(8))
