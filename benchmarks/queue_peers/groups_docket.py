# /// script
# dependencies = ["pydocket==0.27.0"]
#
# [tool.tenure-benchmarks]
# contests = ["groups_redis"]
# loops = ["asyncio"]
# counts = { accounts = 100 }
# ///
"""docket: `ConcurrencyLimit` by an argument."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from docket import ConcurrencyLimit, Docket, Worker

from benchmarks.queue_peers._groups import CONCURRENCY, Contestant, Handler, main, named


@asynccontextmanager
async def opened(path: str, handle: Handler) -> AsyncGenerator[Contestant]:
    async def limited(
        account: str,
        concurrency: ConcurrencyLimit = ConcurrencyLimit("account", max_concurrent=1),  # noqa: B008 docket's way
    ) -> None:
        del concurrency
        await handle(account)

    async with Docket(name="bench", url=f"unix://{path}") as docket:
        docket.register(limited)

        async def put(account: str) -> None:
            await docket.add(limited)(account)

        async def work() -> None:
            async with Worker(
                docket, concurrency=CONCURRENCY, minimum_check_interval=timedelta(milliseconds=10)
            ) as worker:
                await worker.run_forever()

        yield Contestant(put, work)


if __name__ == "__main__":
    main(opened, named("pydocket"))
