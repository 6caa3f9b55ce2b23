"""What a transaction that is held open does to the work queue on PostgreSQL: a backup, a report, a forgotten session.

No row that dies after its snapshot can be removed. So each statement that begins at the dead end of an index gets
slower and slower. A producer and a worker run at full speed in one process, first without such a transaction and then
beside a REPEATABLE READ snapshot. The figure is the throughput at the end of the hold, beside the throughput before it;
then the same at 800 tasks a second, by the 95th percentile of the time that a task waits: what was done in a minute at
full speed is as much as in ten minutes at that pace. The server has its default settings, and `keep.results` is 5
seconds. Peers, in environments of their own, do plain tasks: what part of their throughput is left at the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from statistics import quantiles

import anyio
import psycopg

import tenure
from benchmarks._contests import compared, contest
from benchmarks._measure import Figure, Row, Size, on_loop, row
from benchmarks._postgres_server import NewDatabase, server

KINDS = ("plain", "eight priorities", "delayed", "with expires", "20 groups", "put and result")
Queue = tenure.WorkQueue[float]
BATCH = 100
CONCURRENCY = 32
CALLERS = 64
PACE = 800


class Load:
    """A producer and a worker of one kind of tasks; `put` and `done` count them, `waits` are seconds."""

    def __init__(self, kind: str, queue: Queue, worked: Queue) -> None:
        self.put = 0
        self.done = 0
        self.waits: list[float] = []
        self.paced = False
        self._kind = kind
        self._queue = queue
        self._worked = worked
        self._numbers = count()

    async def produce(self) -> None:
        """Put tasks as fast as the queue takes them, or at the pace."""
        if self._kind == "put and result":
            async with anyio.create_task_group() as group:
                for _ in range(CALLERS):
                    group.start_soon(self._call)
            return
        due = time.monotonic()
        while True:
            items = [self._item() for _ in range(PACE // 10 if self.paced else BATCH)]
            await self._queue.put_many(items)
            self.put += len(items)
            if self.paced:
                due = max(due, time.monotonic() - 1) + 0.1
                await anyio.sleep(max(0.0, due - time.monotonic()))

    async def _call(self) -> None:
        while True:
            await self._queue.result(await self._queue.put(time.time()))

    def _item(self) -> tenure.Item[float]:
        number = next(self._numbers)
        match self._kind:
            case "eight priorities":
                return tenure.Item(time.time(), priority=random.randrange(8))
            case "delayed":
                delay = 0.2 if number % 10 < 3 else 0.0
                return tenure.Item(time.time() + delay, delay=delay)
            case "with expires":
                return tenure.Item(time.time(), expires=10.0)
            case "20 groups":
                return tenure.Item(time.time(), group=f"group {number % 20}")
            case _:
                return tenure.Item(time.time())

    async def work(self) -> None:
        """Work the tasks off."""
        await tenure.Worker(self._worked, self._handle, concurrency=CONCURRENCY).run()

    async def _handle(self, put_at: float) -> None:
        self.done += 1
        self.waits.append(time.time() - put_at)


async def measured(url: str, kind: str, free: float, held: float, window: float) -> dict[str, float]:
    """The figures of one kind: tasks a second, and the 95th percentile of waiting at the pace, in milliseconds."""
    figures: dict[str, float] = {}
    async with tenure.open_store(url) as store, tenure.open_store(url) as other:
        queue, worked = (
            Queue(place, "jobs", keep=tenure.Keep(results=5.0), max_size=5_000) for place in (store, other)
        )
        load = Load(kind, queue, worked)

        async def throughput(seconds: float) -> float:
            await anyio.sleep(seconds - window)
            before, began = load.done, time.monotonic()
            await anyio.sleep(window)
            return (load.done - before) / (time.monotonic() - began)

        async def waiting() -> float:
            load.paced = True
            await anyio.sleep(min(window, 2))
            with anyio.move_on_after(30):
                while load.put - load.done > PACE / 4:  # noqa: ASYNC110 what was put at full speed is worked off first
                    await anyio.sleep(0.05)
            load.waits.clear()
            await anyio.sleep(window)
            load.paced = False
            return 1000 * quantiles(load.waits, n=20)[-1]

        with ExitStack() as stack:
            async with anyio.create_task_group() as group:
                group.start_soon(load.work)
                group.start_soon(load.produce)
                if kind != "put and result":
                    figures["waits free"] = await waiting()
                figures["free"] = await throughput(free)
                snapshot = stack.enter_context(psycopg.connect(url))
                snapshot.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                snapshot.execute("SELECT FROM tenure.queue")
                figures["held"] = await throughput(held)
                if kind != "put and result":
                    figures["waits held"] = await waiting()
                group.cancel_scope.cancel()
        assert not (await queue.verify()).problems
    return figures


def rows(database: NewDatabase, kind: str, size: Size) -> Iterator[Row]:
    """The rows of one kind."""
    free, held, window = size.of((0.4, 0.4, 0.4), (8.0, 20.0, 5.0), (20.0, 60.0, 10.0))
    with database() as url:
        seen = on_loop("asyncio", measured, url, kind, free, held, window)
    work = f"tasks/s while a transaction is held for {held:g} s: {kind}"
    yield row(
        work,
        "asyncio",
        {"ours": Figure([seen["held"]]), "free": Figure([seen["free"]])},
        "free",
        goal=">= 0.9",
    )
    if "waits held" in seen:
        figures = {"ours": Figure([seen["waits held"]]), "free": Figure([seen["waits free"]])}
        work = f"p95 of waiting at {PACE} tasks/s after {held:g} s of full speed held: {kind}"
        yield row(work, "asyncio", figures, "free", unit="ms", less_is_better=True, goal=">= 0.67")


def run(size: Size) -> Iterator[Row]:
    """Measure all kinds."""
    with server() as database:
        for kind in size.of(("plain",), KINDS, KINDS):
            yield from rows(database, kind, size)
        beside = contest(
            "held_transaction", "held", {"ours": 60}, database, size, once=True, one_loop=True, timeout=200
        )
        yield from compared(
            "part of the tasks/s that is left while a transaction is held",
            beside,
            "kept",
            "",
            more_is_better=True,
        )
        yield from compared("tasks/s while a transaction is held", beside, "held")
