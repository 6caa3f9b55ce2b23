# /// script
# dependencies = ["taskiq==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0"]
#
# [tool.tenure-benchmarks]
# contests = ["redis_queue"]
# loops = ["asyncio", "uvloop"]
# counts = { drain = 1250, put = 1500, wake = 100, idle = 15 }
# ///
"""taskiq with taskiq-redis: the stream broker, whose messages are acknowledged, with results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.queue_peers._works import CONCURRENCY, Contestant, main


@asynccontextmanager
async def opened(path: str, called: Callable[[], object]) -> AsyncGenerator[Contestant]:
    url = f"unix://{path}"
    results = RedisAsyncResultBackend[None](url, result_ex_time=3600)
    broker = RedisStreamBroker(url).with_result_backend(results)

    @broker.task
    async def noop(_: int) -> None:
        called()

    async def work() -> None:
        await run_receiver_task(broker, max_async_tasks=CONCURRENCY)

    await broker.startup()
    try:
        yield Contestant(noop.kiq, work)
    finally:
        await broker.shutdown()


if __name__ == "__main__":
    main(opened, "taskiq", "taskiq-redis")
