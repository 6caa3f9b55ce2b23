"""Ours: booked ahead in one round trip, and waited for in the process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import tenure
from benchmarks.limiter_peers._works import Acquire, main


@asynccontextmanager
async def opened(path: str) -> AsyncGenerator[Callable[[str, int, int], Acquire]]:
    """One store."""
    async with tenure.open_store(f"unix://{path}") as store:
        yield lambda name, rate, per: tenure.RateLimiter(store, name, tenure.Limit(rate, per=per)).acquire


if __name__ == "__main__":
    main(opened, "tenure")
