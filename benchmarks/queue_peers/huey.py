# /// script
# dependencies = ["huey==3.5.4", "redis==8.1.0"]
#
# [tool.tenure-benchmarks]
# contests = ["redis_queue"]
# loops = ["32 threads"]
# counts = { drain = 4000, put = 7500, idle = 15 }
# ///
"""huey: threads, tasks are popped, no results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
from huey import RedisHuey

from benchmarks.queue_peers._works import Contestant, main


@asynccontextmanager
async def opened(path: str, called: Callable[[], object], threads: int) -> AsyncGenerator[Contestant]:
    huey = RedisHuey(url=f"unix://{path}", results=False)

    @huey.task()
    def noop(_: int) -> None:
        called()

    async def put(number: int) -> None:
        noop(number)

    async def work() -> None:
        consumer = huey.create_consumer(workers=threads, periodic=False, check_worker_health=False)
        consumer.start()
        try:
            await anyio.sleep_forever()
        finally:
            consumer.stop(graceful=True)

    yield Contestant(put, work)


if __name__ == "__main__":
    main(opened, "huey")
