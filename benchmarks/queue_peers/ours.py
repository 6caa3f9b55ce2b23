"""Ours: leased, fenced, with a result for each task."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import tenure
from benchmarks.queue_peers._works import CONCURRENCY, Contestant, main


@asynccontextmanager
async def opened(path: str, called: Callable[[], object], **options: Any) -> AsyncGenerator[Contestant]:
    """Two stores, since those who put are usually in another process than those who work."""
    url = path if "://" in path else f"unix://{path}"
    async with tenure.open_store(url) as store, tenure.open_store(url) as putting:
        queue = tenure.WorkQueue(putting, "bench", max_size=1_000_000)

        async def handler(_: tenure.Task) -> None:
            called()

        worker = tenure.Worker(
            tenure.WorkQueue(store, "bench", max_size=1_000_000),
            handler,
            concurrency=CONCURRENCY,
            **options,
        )
        yield Contestant(queue.put, worker.run, queue.put_many)


if __name__ == "__main__":
    main(opened, "tenure")
