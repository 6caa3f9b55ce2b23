"""aiojobs: a job that is closed while it is pending lets the next one begin beyond the limit."""

from __future__ import annotations

import asyncio

import aiojobs

from tenure.testing import cancellable


async def jobs_within_the_limit() -> None:
    """No more jobs run than the limit says, while those who give up close theirs."""
    running = 0

    async def work() -> None:
        nonlocal running
        running += 1
        assert running <= 1, f"{running} jobs run, and the limit is 1"
        try:
            await asyncio.sleep(1)
        finally:
            running -= 1

    async with aiojobs.Scheduler(limit=1, close_timeout=10) as scheduler:

        async def use() -> None:
            job = await scheduler.spawn(work())
            with cancellable():
                await job.wait()
            await job.close()

        async with asyncio.TaskGroup() as group:
            for task in (use, use, use):
                group.create_task(task())
            await asyncio.sleep(0.5)
            group.create_task(use())
