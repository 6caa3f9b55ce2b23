"""The work queue on Redis beside others' queues, each in a process and an environment of its own.

Ours leases, fences and stores a result for each task; so do streaq, SAQ, arq and taskiq, but for the fence. dramatiq
acknowledges and keeps no results, huey pops its tasks. All on a private server over a unix socket, logging off; a
worker's tasks are put before its time begins, and it ends when the last handler was called. Peers that have no trio
are compared with ours on trio by their figure on asyncio. The server is a Redis 7 if there is one, since streaq needs
it. No-op tasks are worked off once as they are taken by default, and once with tasks leased ahead, as dramatiq does by
default.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks._contests import compared, contest
from benchmarks._measure import Row, Size
from benchmarks._redis_server import newest, server, usual, version


def run(size: Size) -> Iterator[Row]:
    """Measure everything."""
    program = usual() if size.smoke else newest()
    place = partial(server, program)
    hold = partial(contest, "redis_queue", place=place, size=size, redis=version(program)[0])
    fast = {"dramatiq": ">= 8x on uvloop", "streaq": ">= 15x"}
    no_worse = {"taskiq": "no worse"}

    ours = {"ours": 5_000, "ours_ahead": 7_500}
    drain = hold("drain", size.of({"ours_ahead": 1}, ours, ours))
    yield from compared("Redis: no-op tasks", drain, "tasks", goals=fast)
    yield from compared("Redis: no-op tasks, fetched ahead", drain, "tasks", goals=fast, who="ours_ahead")
    yield from compared("Redis: client CPU for a task", drain, "cpu", "us", scale=1e6)
    yield from compared("Redis: server CPU for a task", drain, "server_cpu", "us", scale=1e6, difference=True)
    yield from compared("Redis: round trips for a task", drain, "reads", "", {"": "<= 0.05"})
    yield from compared("Redis: commands for a task, in scripts too", drain, "commands", "")

    put = hold("put", {"ours": 7_500}, once=True)
    yield from compared("Redis: put by 32 callers", put, "tasks", goals={"": ">= 10,000/s"})
    put_many = hold("put_many", {"ours": 20_000}, once=True)
    yield from compared("Redis: put in batches of 100", put_many, "tasks", goals={"": ">= 60,000/s"})

    wake = hold("wake", {"ours": 100}, once=True)
    yield from compared("Redis: idle wake-up, p50", wake, "p50", "ms", no_worse)
    yield from compared("Redis: idle wake-up, p99", wake, "p99", "ms", no_worse)

    idle = hold("idle", {"ours": 100}, once=True, one_loop=True, timeout=60)
    yield from compared("Redis: commands a second when idle", idle, "commands", "", {"": "<= 1"})
    yield from compared(
        "Redis: connections, worker and producer", idle, "connections", "", {"": "2 (1 each)"}
    )
