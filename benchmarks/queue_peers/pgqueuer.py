# /// script
# dependencies = ["pgqueuer[asyncpg]==1.6.0"]
#
# [tool.tenure-benchmarks]
# contests = ["postgres", "held_transaction"]
# loops = ["asyncio", "uvloop"]
# counts = { drain = 4000, put = 750, put_many = 10000, wake = 100, idle = 15, held = 60 }
# ///
"""pgqueuer on asyncpg: leased by heartbeat, no fence, a row of its log for each task and no results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.queue_peers._works import CONCURRENCY, Contestant, main


@asynccontextmanager
async def opened(path: str, called: Callable[[], object]) -> AsyncGenerator[Contestant]:
    """Two connections, since those who put are usually in another process than those who work."""
    working, putting = await asyncpg.connect(path), await asyncpg.connect(path)
    driver = AsyncpgDriver(putting)
    queries = Queries(driver)
    await queries.install()
    pgq = PgQueuer(AsyncpgDriver(working))

    @pgq.entrypoint("noop")
    async def noop(_: Job) -> None:
        called()

    async def put(_: int) -> None:
        await queries.enqueue("noop", b"0")

    async def put_many(numbers: Sequence[int]) -> None:
        n = len(numbers)
        await queries.enqueue(["noop"] * n, [b"0"] * n, [0] * n)

    async def work() -> None:
        # batches as large as its concurrency, which is faster than the 10 that it has by default
        await pgq.run(batch_size=CONCURRENCY)

    try:
        yield Contestant(put, work, put_many)
    finally:
        await working.close()
        await putting.close()


if __name__ == "__main__":
    main(opened, "pgqueuer")
