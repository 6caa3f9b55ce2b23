# /// script
# dependencies = ["saq[redis]==0.26.4", "redis==7.4.1", "typing_extensions==4.16.0"]
#
# [tool.tenure-benchmarks]
# contests = ["redis_queue"]
# loops = ["asyncio", "uvloop"]
# counts = { drain = 1250, put = 2000, idle = 15 }
# ///
"""SAQ."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from saq.queue.redis import RedisQueue
from saq.worker import Worker

from benchmarks.queue_peers._works import CONCURRENCY, Contestant, main


@asynccontextmanager
async def opened(path: str, called: Callable[[], object]) -> AsyncGenerator[Contestant]:
    queue = RedisQueue(Redis(unix_socket_path=path))

    async def noop(_: Any, *, number: int) -> None:
        del number
        called()

    async def put(number: int) -> None:
        await queue.enqueue("noop", number=number)

    worker = Worker(queue, [("noop", noop)], concurrency=CONCURRENCY)
    await queue.connect()
    try:
        yield Contestant(put, worker.start)
    finally:
        await queue.disconnect()


if __name__ == "__main__":
    main(opened, "saq")
