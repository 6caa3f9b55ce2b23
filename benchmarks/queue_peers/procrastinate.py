# /// script
# dependencies = ["procrastinate==3.10.0"]
#
# [tool.tenure-benchmarks]
# contests = ["postgres", "held_transaction"]
# loops = ["asyncio"]  # it spends its time elsewhere than in the loop
# counts = { drain = 250, put = 750, put_many = 4000, wake = 100, idle = 15, held = 60 }
# ///
"""procrastinate: leased by heartbeat, no fence, no results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from procrastinate import App, PsycopgConnector

from benchmarks.queue_peers._works import CONCURRENCY, Contestant, main


@asynccontextmanager
async def opened(path: str, called: Callable[[], object]) -> AsyncGenerator[Contestant]:
    app = App(connector=PsycopgConnector(conninfo=path))

    @app.task
    async def noop(number: int) -> None:
        del number
        called()

    async def put(number: int) -> None:
        await noop.defer_async(number=number)

    async def put_many(numbers: Sequence[int]) -> None:
        await noop.batch_defer_async(*({"number": number} for number in numbers))

    async def work() -> None:
        await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield Contestant(put, work, put_many)


if __name__ == "__main__":
    main(opened, "procrastinate")
