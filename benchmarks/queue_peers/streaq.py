# /// script
# dependencies = ["streaq==7.2.0"]
#
# [tool.tenure-benchmarks]
# contests = ["redis_queue"]
# loops = ["asyncio", "uvloop", "trio"]
# redis = 7
# counts = { drain = 1000, put = 1000, put_many = 2500, idle = 15 }
# ///
"""streaq: a worker can be entered once, so that those who put have one of their own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from streaq import Worker

from benchmarks.queue_peers._works import CONCURRENCY, Contestant, main


@asynccontextmanager
async def opened(path: str, called: Callable[[], object]) -> AsyncGenerator[Contestant]:
    def made() -> tuple[Worker[Any], Any]:
        worker = Worker(f"unix://{path}", concurrency=CONCURRENCY, handle_signals=False)

        async def noop(_: int) -> None:
            called()

        return worker, worker.task()(noop)

    (putting, noop), (working, _) = made(), made()

    async def put(number: int) -> None:
        await noop.enqueue(number)

    async def put_many(numbers: Sequence[int]) -> None:
        await putting.enqueue_many([noop.enqueue(number) for number in numbers])

    async with putting:
        yield Contestant(put, working.run_async, put_many)


if __name__ == "__main__":
    main(opened, "streaq")
