# /// script
# dependencies = ["limits==5.8.0", "redis==8.1.0"]
#
# [tool.tenure-benchmarks]
# contests = ["limiters"]
# loops = ["asyncio", "uvloop"]
# counts = { admit = 2000, wait = 20, keep = 2000 }
# ///
"""limits: its moving window; it does not wait, so the caller sleeps until the window says that there is room."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter
from redis.asyncio import ConnectionPool

from benchmarks.limiter_peers._works import Acquire, main


@asynccontextmanager
async def opened(path: str) -> AsyncGenerator[Callable[[str, int, int], Acquire]]:
    """One storage with redis-py's pool."""
    pool: Any = ConnectionPool.from_url(f"unix://{path}")
    storage = RedisStorage("async+redis://", implementation="redispy", connection_pool=pool)
    limiter = MovingWindowRateLimiter(storage)

    def of(name: str, rate: int, per: int) -> Acquire:
        item = RateLimitItemPerSecond(rate, per)

        async def acquire() -> None:
            while not await limiter.hit(item, name):
                stats = await limiter.get_window_stats(item, name)
                await anyio.sleep(max(0.001, stats.reset_time - time.time()))

        return acquire

    yield of
    await pool.disconnect()


if __name__ == "__main__":
    main(opened, "limits", "redis")
