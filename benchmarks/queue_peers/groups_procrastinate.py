# /// script
# dependencies = ["procrastinate==3.10.0"]
#
# [tool.tenure-benchmarks]
# contests = ["groups_postgresql"]
# loops = ["asyncio"]
# counts = { accounts = 100 }
# ///
"""procrastinate: `lock=`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from procrastinate import App, PsycopgConnector

from benchmarks.queue_peers._groups import CONCURRENCY, Contestant, Handler, main, named


@asynccontextmanager
async def opened(path: str, handle: Handler) -> AsyncGenerator[Contestant]:
    app = App(connector=PsycopgConnector(conninfo=path))

    @app.task
    async def limited(account: str) -> None:
        await handle(account)

    async def put(account: str) -> None:
        await limited.configure(lock=account).defer_async(account=account)

    async def work() -> None:
        await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield Contestant(put, work)


if __name__ == "__main__":
    main(opened, named("procrastinate"))
