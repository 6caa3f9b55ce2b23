# /// script
# dependencies = ["saq[postgres]==0.26.4", "typing_extensions==4.16.0"]
#
# [tool.tenure-benchmarks]
# contests = ["postgres"]
# loops = ["asyncio"]  # it spends its time elsewhere than in the loop
# counts = { drain = 500 }
# ///
"""SAQ on PostgreSQL: its heartbeat is off by default, no fence, a result for each task that expires."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from saq.queue.postgres import PostgresQueue
from saq.worker import Worker

from benchmarks.queue_peers._works import CONCURRENCY, Contestant, main


@asynccontextmanager
async def opened(path: str, called: Callable[[], object]) -> AsyncGenerator[Contestant]:
    queue = PostgresQueue(url=path)

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
