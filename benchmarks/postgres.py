"""The work queue and a lock on PostgreSQL, with fsync on, on a private server over a unix socket.

Each contestant runs in a process and an environment of its own, and takes turns with the others, each in a fresh
database of one server with default settings. Ours leases, fences and stores a result for each task; SAQ stores results
and does not fence; pgqueuer and procrastinate do neither. They have no trio: ours on trio is compared with their figure
on asyncio, and so is ours on uvloop for SAQ and procrastinate, to save time. SAQ only works off no-op tasks. The lock
is one that 1,000 tasks of a process wait for: the time from leaving the block to entering the next.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise
from math import nan
from statistics import median, quantiles
from typing import Any

import anyio
import psycopg

import tenure
from benchmarks._measure import LOOPS, ROUNDS, on_loop
from benchmarks._postgres_server import NewDatabase, server
from benchmarks.queue_peers._environments import POSTGRES_PEERS
from benchmarks.queue_peers._server import PostgresServer
from benchmarks.redis_queue import AHEAD, OURS, Contestant, Result, compared, measured, medians

WORKS: dict[str, dict[str, int]] = {
    # how many tasks, by module: about a second each
    "drain": {OURS: 10_000, AHEAD: 15_000, "pgqueuer": 7_500, "procrastinate": 250, "saq_postgres": 500},
    "put": {OURS: 5_000, "pgqueuer": 750, "procrastinate": 750},
    "put_many": {OURS: 20_000, "pgqueuer": 20_000, "procrastinate": 7_500},
    "wake": {OURS: 200, "pgqueuer": 200, "procrastinate": 200},
    "idle": {OURS: 20, "pgqueuer": 20, "procrastinate": 20},  # tenths of a second
}
WAITERS = 1_000


def rounds(database: NewDatabase, work: str, *, smoke: bool) -> dict[Contestant, Result]:
    """The contestants take turns; the median of each figure."""
    own = [module for module in (OURS, AHEAD) if module in WORKS[work]]
    contestants: list[Contestant] = [(module, "asyncio") for module in own]
    if not smoke:
        contestants = [(module, loop) for module in own for loop in LOOPS]
        peers = {peer: loops for peer, (_, loops) in POSTGRES_PEERS.items() if peer in WORKS[work]}
        contestants += [(peer, loop) for peer, loops in peers.items() for loop in loops]
    seen: dict[Contestant, list[Result]] = {contestant: [] for contestant in contestants}
    for _ in range(1 if smoke or work == "idle" else ROUNDS):
        for contestant, results in seen.items():
            if not any("missing" in result for result in results):
                n = 1 if smoke else WORKS[work][contestant[0]]
                with database() as url:
                    results.append(measured(url, work, contestant, n))
    return {contestant: medians(results) for contestant, results in seen.items()}


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


def handing_over(database: NewDatabase, *, smoke: bool) -> list[dict[str, Any]]:
    """Hand a lock on, on each loop."""
    waiters = 10 if smoke else WAITERS
    seen: dict[str, list[Result]] = {loop: [] for loop in (["asyncio"] if smoke else LOOPS)}
    for _ in range(1 if smoke else ROUNDS):
        for loop, results in seen.items():
            with database() as url:
                results.append(on_loop(loop, hand_over, url, waiters))
    figures = {loop: medians(results) for loop, results in seen.items()}
    goals = {"median": ("ms", "<= 1.5 ms"), "p99": ("ms", ""), "connections": ("", "<= 3")}
    return [
        {
            "work": f"PostgreSQL: hand-over, {waiters:,} waiters, 1 process: {figure}",
            "loop": loop,
            "ours": figures[loop][figure],
            "peer": nan,
            "peer_name": "no peer",
            "ratio": nan,
            "unit": unit,
            "goal": goal,
        }
        for figure, (unit, goal) in goals.items()
        for loop in figures
    ]


def run(smoke: bool) -> list[dict[str, Any]]:
    """Measure everything."""
    with server() as database:
        measure = partial(rounds, database, smoke=smoke)
        rows = partial(compared, store="PostgreSQL")
        drain = measure("drain")
        found = [
            *rows("no-op tasks", drain, "tasks", "1/s", {"pgqueuer": ">= 1.5x"}),
            *rows("no-op tasks, fetched ahead", drain, "tasks", "1/s", {"pgqueuer": ">= 1.5x"}, who=AHEAD),
            *rows("client CPU for a task", drain, "cpu", "us", {}, 1e6),
            *rows("server CPU for a task", drain, "server_cpu", "us", {}, 1e6),
            *rows("writing transactions for a task", drain, "commands", "", {}),
            *handing_over(database, smoke=smoke),
        ]
        if not smoke:
            put, many, wake, idle = map(measure, ("put", "put_many", "wake", "idle"))
            found += [
                *rows("put by 32 callers", put, "tasks", "1/s", {}),
                *rows("put in batches of 100", many, "tasks", "1/s", {}),
                *rows("idle wake-up, the first", wake, "first", "ms", {}),
                *rows("idle wake-up, p50", wake, "p50", "ms", {"": "<= 2.5"}),
                *rows("idle wake-up, p99", wake, "p99", "ms", {"": "<= 6"}),
                *rows("writing transactions a second when idle", idle, "commands", "", {}),
                *rows("connections, worker and producer", idle, "connections", "", {"": "4 (2 each)"}),
            ]
    return found
