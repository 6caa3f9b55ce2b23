"""The work queue and a lock on PostgreSQL, with fsync on, on a private server over a unix socket.

Each contestant runs in a process and an environment of its own, and takes turns with the others, each in a fresh
database of one server with default settings. Ours leases, fences and stores a result for each task; SAQ stores results
and does not fence; pgqueuer and procrastinate do neither. They have no trio: ours on trio is compared with their figure
on asyncio, and so is ours on uvloop for SAQ and procrastinate, to save time. SAQ only works off no-op tasks. The lock
is one that 1,000 tasks of a process wait for: the time from leaving the block to entering the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from statistics import median, quantiles

import anyio
import psycopg

import tenure
from benchmarks._contests import compared, contest
from benchmarks._measure import Result, Row, Size, alone, in_turn, on_loop
from benchmarks._postgres_server import NewDatabase, server
from benchmarks.queue_peers._server import PostgresServer


async def hand_over(url: str, waiters: int) -> Result:
    """Let a lock go from hand to hand once through a line."""
    held: list[tuple[float, float]] = []

    async def wait(lock: tenure.Lock) -> None:
        async with lock:
            began = time.perf_counter()
            held.append((began, time.perf_counter()))

    async with tenure.open_store(url) as store:
        waiting = psycopg.connect(url, autocommit=True)
        lock = tenure.Lock(store, "lock")
        async with anyio.create_task_group() as group, lock:
            for _ in range(waiters):
                group.start_soon(wait, lock)
            while waiting.execute("SELECT count(*) FROM tenure.hold").fetchone() != (waiters + 1,):  # noqa: ASYNC110 the server is asked
                await anyio.sleep(0.05)
            waiting.close()
            connections = PostgresServer(url).counters()["connections"]
    times = [1000 * (later[0] - sooner[1]) for sooner, later in pairwise(held)]
    return {"median": median(times), "p99": quantiles(times, n=100)[-1], "connections": connections}


def handing_over(database: NewDatabase, size: Size) -> Iterator[Row]:
    """Hand a lock on, on each loop."""
    waiters = size.of(3, 200, 1_000)

    def measure(_: str, loop: str) -> Result:
        with database() as url:
            return on_loop(loop, hand_over, url, waiters)

    seen = in_turn([("ours", loop) for loop in size.loops], measure, 1)
    for figure, unit, goal in (("median", "ms", "<= 1.5 ms"), ("p99", "ms", ""), ("connections", "", "<= 3")):
        work = f"PostgreSQL: hand-over, {waiters:,} waiters, 1 process: {figure}"
        for (_, loop), results in seen.items():
            yield alone(work, loop, [result[figure] for result in results], unit=unit, goal=goal)


def run(size: Size) -> Iterator[Row]:
    """Measure everything."""
    with server() as database:
        hold = partial(contest, "postgres", place=database, size=size)
        faster = {"pgqueuer": ">= 1.5x"}

        ours = {"ours": 2_500, "ours_ahead": 4_000}
        drain = hold("drain", size.of({"ours": 1}, ours, ours))
        yield from compared("PostgreSQL: no-op tasks", drain, "tasks", goals=faster)
        ahead = "PostgreSQL: no-op tasks, fetched ahead"
        yield from compared(ahead, drain, "tasks", goals=faster, who="ours_ahead")
        yield from compared("PostgreSQL: client CPU for a task", drain, "cpu", "us", scale=1e6)
        yield from compared(
            "PostgreSQL: server CPU for a task", drain, "server_cpu", "us", scale=1e6, difference=True
        )
        yield from compared("PostgreSQL: writing transactions for a task", drain, "commands", "")
        yield from handing_over(database, size)
        if size.smoke:
            return

        put, many = (hold(work, {"ours": n}, once=True) for work, n in (("put", 2_500), ("put_many", 10_000)))
        yield from compared("PostgreSQL: put by 32 callers", put, "tasks")
        yield from compared("PostgreSQL: put in batches of 100", many, "tasks")

        wake = hold("wake", {"ours": 100}, once=True)
        yield from compared("PostgreSQL: idle wake-up, the first", wake, "first", "ms")
        yield from compared("PostgreSQL: idle wake-up, p50", wake, "p50", "ms", {"": "<= 2.5"})
        yield from compared("PostgreSQL: idle wake-up, p99", wake, "p99", "ms", {"": "<= 6"})

        idle = hold("idle", {"ours": 15}, once=True, one_loop=True, timeout=60)
        yield from compared("PostgreSQL: writing transactions a second when idle", idle, "commands", "")
        connections = "PostgreSQL: connections, worker and producer"
        yield from compared(connections, idle, "connections", "", {"": "4 (2 each)"})
