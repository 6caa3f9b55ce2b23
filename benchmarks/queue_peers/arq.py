# /// script
# dependencies = ["arq==0.28.0", "redis==5.3.1"]
#
# [tool.tenure-benchmarks]
# contests = ["redis_queue"]
# loops = ["asyncio", "uvloop"]
# counts = { drain = 320, put = 2000, idle = 15 }
# ///
"""arq."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

from benchmarks.queue_peers._works import CONCURRENCY, Contestant, main


@asynccontextmanager
async def opened(path: str, called: Callable[[], object]) -> AsyncGenerator[Contestant]:
    settings = RedisSettings(unix_socket_path=path)
    pool = await create_pool(settings)

    async def noop(_: Any, number: int) -> None:
        del number
        called()

    async def put(number: int) -> None:
        await pool.enqueue_job("noop", number)

    worker = Worker(
        [func(noop, name="noop")], redis_settings=settings, max_jobs=CONCURRENCY, handle_signals=False
    )
    try:
        yield Contestant(put, worker.async_run)
    finally:
        await worker.close()
        await pool.aclose()


if __name__ == "__main__":
    main(opened, "arq")
