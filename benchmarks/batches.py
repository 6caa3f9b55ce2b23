"""Tasks whose rows are inserted in the transaction that completes them: in batches, and one by one.

On a private PostgreSQL server with fsync on. The handlers are sync functions in threads, each with a connection of its
own; `task.complete_in` or `queue.complete_in` puts the end of the tasks into the transaction that inserts their rows.
"one bad in a hundred": that many are marked with `task.fail`, and must fail alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from functools import partial
from threading import local

import anyio
import psycopg

import tenure
from benchmarks._measure import Row, Size, interleaved, on_loop, row
from benchmarks._postgres_server import server

TASKS = 3_000
BATCH = 100
SINGLE = "one by one"
WORKS = {SINGLE: (500, 0), "batches": (TASKS, 0), "one bad in a hundred": (TASKS, 100)}
"""By what is done: how many tasks, and each how-manieth is bad."""


class Handlers:
    """Insert a row for each task, in the transaction that completes it."""

    def __init__(self, url: str, queue: tenure.WorkQueue[int], bad: int) -> None:
        self._url = url
        self._queue = queue
        self._bad = bad
        self._own = local()
        self._connections: list[psycopg.Connection] = []

    def one(self, task: tenure.Task[int]) -> None:
        """Handle one task."""
        db = self._connection()
        with db.transaction():
            db.execute("INSERT INTO booking VALUES (%s)", (task.payload,))
            task.complete_in_sync(db)

    def batch(self, tasks: list[tenure.Task[int]]) -> None:
        """Handle a batch."""
        for task in tasks:
            if self._bad and task.payload % self._bad == 0:
                task.fail(ValueError("it is bad"))
        db = self._connection()
        with db.transaction():
            done = self._queue.complete_in_sync(db, tasks)
            payloads = [task.payload for task in done]
            db.execute("INSERT INTO booking SELECT unnest(%s::bigint[])", (payloads,))

    def _connection(self) -> psycopg.Connection:
        if not hasattr(self._own, "db"):
            self._own.db = psycopg.connect(self._url, autocommit=True)
            self._connections.append(self._own.db)
        return self._own.db

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()


async def rate(url: str, n: int, bad: int, *, batch: bool) -> float:
    """Tasks a second."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE booking (payment bigint)")
        async with tenure.open_store(url) as store:
            queue = tenure.WorkQueue[int](store, "payments", max_size=n, retry=tenure.Retry(attempts=1))
            for start in range(0, n, 250):
                await queue.put_many(range(start, min(start + 250, n)))
            handlers = Handlers(url, queue, bad)
            if batch:
                worker = tenure.BatchWorker(queue, handlers.batch, size=BATCH, concurrency=2)
            else:
                worker = tenure.Worker(queue, handlers.one, concurrency=10)
            began = time.perf_counter()
            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                await queue.join()
                took = time.perf_counter() - began
                await worker.drain()
            handlers.close()
            statistics = await queue.statistics()
        failed = len(range(0, n, bad)) if bad else 0
        assert (statistics.done, statistics.dead) == (n - failed, failed)
        assert (
            db.execute("SELECT count(*), count(DISTINCT payment) FROM booking").fetchone()
            == (n - failed,) * 2
        )
    return n / took


def run(size: Size) -> Iterator[Row]:
    """Measure everything."""
    logging.getLogger("tenure").setLevel(logging.ERROR)  # it names each dead letter
    with server() as database:

        def on_a_new_database(work: str, loop: str) -> float:
            n, bad = WORKS[work]
            with database() as url:
                return on_loop(loop, rate, url, size.of(2, n // 5, n), bad, batch=work != SINGLE)

        for loop in size.loops:
            figures = interleaved(
                {f"ours {work}": partial(on_a_new_database, work, loop) for work in WORKS}, size
            )
            for work in WORKS:
                if work != SINGLE:
                    pair = {"ours": figures[f"ours {work}"], SINGLE: figures[f"ours {SINGLE}"]}
                    title = f"PostgreSQL: tasks with a row each, {work}, at most {BATCH} each"
                    yield row(title, loop, pair, SINGLE, goal=">= 10x")
