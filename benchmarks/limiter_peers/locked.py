# /// script
# dependencies = ["redis==8.1.0"]
#
# [tool.tenure-benchmarks]
# contests = ["limiters"]
# loops = ["asyncio", "uvloop"]
# counts = { admit = 100, wait = 20, keep = 400 }
# ///
"""The way of openlimit (which needs aioredis, and that no Python after 3.10): a lock around GET and SET; poll."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
from redis.asyncio import Redis

from benchmarks.limiter_peers._works import Acquire, main


@asynccontextmanager
async def opened(path: str) -> AsyncGenerator[Callable[[str, int, int], Acquire]]:
    """Two keys and a lock for each name."""
    client = Redis.from_url(f"unix://{path}")

    def of(name: str, rate: int, per: int) -> Acquire:
        async def is_there() -> bool:
            async with client.lock(f"{name}:lock", sleep=0.01):
                checked, capacity = await client.mget(f"{name}:checked", f"{name}:capacity")
                moment = time.time()
                passed = 0.0 if checked is None else moment - float(checked)
                left = min(rate, (rate if capacity is None else float(capacity)) + passed * rate / per)
                admitted = left >= 1
                await client.mset({f"{name}:checked": moment, f"{name}:capacity": left - admitted})
                return admitted

        async def acquire() -> None:
            while not await is_there():  # noqa: ASYNC110 it asks again and again
                await anyio.sleep(per / rate)

        return acquire

    yield of
    await client.aclose()


if __name__ == "__main__":
    main(opened, "redis", title="openlimit's way")
