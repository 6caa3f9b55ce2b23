# /// script
# dependencies = ["dramatiq[redis]==2.2.1", "redis==8.1.0"]
#
# [tool.tenure-benchmarks]
# contests = ["redis_queue"]
# loops = ["8 threads", "32 threads"]
# counts = { drain = 2500, put = 3000, idle = 15 }
# ///
"""dramatiq: threads, no results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.queue_peers._works import Contestant, main


@asynccontextmanager
async def opened(path: str, called: Callable[[], object], threads: int) -> AsyncGenerator[Contestant]:
    broker = RedisBroker(url=f"unix://{path}")

    def noop(_: int) -> None:
        called()

    actor = dramatiq.actor(broker=broker)(noop)

    async def put(number: int) -> None:
        actor.send(number)

    async def work() -> None:
        worker = dramatiq.Worker(broker, worker_threads=threads)
        worker.start()
        try:
            await anyio.sleep_forever()
        finally:
            worker.stop()

    try:
        yield Contestant(put, work)
    finally:
        broker.close()


if __name__ == "__main__":
    main(opened, "dramatiq")
