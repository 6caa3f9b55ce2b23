# /// script
# dependencies = []
#
# [tool.tenure-benchmarks]
# contests = ["groups_redis", "groups_postgresql"]
# loops = ["asyncio"]
# counts = { accounts = 100 }
# ///
"""A queue without groups, whose handler holds a lock of its account."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

import tenure
from benchmarks.queue_peers._groups import CONCURRENCY, Contestant, Handler, main


@asynccontextmanager
async def opened(path: str, handle: Handler) -> AsyncGenerator[Contestant]:
    url = path if "://" in path else f"unix://{path}"
    locks: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "bench", max_size=1_000_000)

        async def handler(account: str) -> None:
            async with locks[account]:
                await handle(account)

        yield Contestant(queue.put, tenure.Worker(queue, handler, concurrency=CONCURRENCY).run)


if __name__ == "__main__":
    main(opened, "a lock in the handler")
