# /// script
# dependencies = ["pyrate-limiter==4.5.1", "redis==8.1.0"]
#
# [tool.tenure-benchmarks]
# contests = ["limiters"]
# loops = ["asyncio", "uvloop"]
# counts = { admit = 2000, wait = 20, keep = 2000 }
# ///
"""pyrate-limiter: its sliding log on Redis, which waits itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from pyrate_limiter import Duration, Limiter, Rate, RedisBucket
from redis.asyncio import Redis

from benchmarks.limiter_peers._works import Acquire, main


@asynccontextmanager
async def opened(path: str) -> AsyncGenerator[Callable[[str, int, int], Acquire]]:
    """A bucket for each name, as it needs them."""
    client = Redis.from_url(f"unix://{path}")

    def of(name: str, rate: int, per: int) -> Acquire:
        limiter: Limiter | None = None

        async def acquire() -> None:
            nonlocal limiter
            if limiter is None:
                made = await RedisBucket.init([Rate(rate, per * Duration.SECOND)], client, name)
                limiter = limiter or Limiter(made)
            await limiter.try_acquire_async(name, blocking=True)

        return acquire

    yield of
    await client.aclose()


if __name__ == "__main__":
    main(opened, "pyrate-limiter", "redis")
