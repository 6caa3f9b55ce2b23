"""Ours: `per_group=1`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import tenure
from benchmarks.queue_peers._groups import CONCURRENCY, Contestant, Handler, main, named


@asynccontextmanager
async def opened(path: str, handle: Handler) -> AsyncGenerator[Contestant]:
    url = path if "://" in path else f"unix://{path}"
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "bench", max_size=1_000_000, groups=tenure.Groups(limit=1))

        async def put(account: str) -> None:
            await queue.put(account, group=account)

        yield Contestant(put, tenure.Worker(queue, handle, concurrency=CONCURRENCY).run)


if __name__ == "__main__":
    main(opened, named("tenure"))
