"""Locks on Redis, and the connection under them, against redis-py, on a private server.

redis-py's lock is neither fair nor fenced nor renewed, and its waiters ask again every 0.1 s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import perf_counter

import anyio
import redis.asyncio

import tenure
from benchmarks._measure import Row, Size, interleaved, on_loop, row
from benchmarks._redis_server import server
from tenure.engines.redis._connection import Connection
from tenure.engines.redis._endpoint import address
from tenure.engines.redis._resp import pack

PEER = "redis-py"


async def cycles(path: str, tasks: int, locks: int, times: int) -> float:
    """Lock cycles a second of ours."""
    async with tenure.open_store(f"unix://{path}") as store:

        async def work(n: int) -> None:
            lock = tenure.Lock(store, f"lock {n % locks}")
            for _ in range(times):
                async with lock:
                    pass

        return await together(work, tasks, times)


async def cycles_of_redis_py(path: str, tasks: int, locks: int, times: int) -> float:
    """Lock cycles a second of redis-py."""
    async with redis.asyncio.Redis(unix_socket_path=path) as client:

        async def work(n: int) -> None:
            for _ in range(times):
                async with client.lock(f"lock {n % locks}", timeout=30):
                    pass

        return await together(work, tasks, times)


async def together(work: Callable[[int], Awaitable[None]], tasks: int, times: int) -> float:
    start = perf_counter()
    async with anyio.create_task_group() as group:
        for n in range(tasks):
            group.start_soon(work, n)
    return tasks * times / (perf_counter() - start)


async def evaluations(path: str, tasks: int, times: int) -> float:
    """EVALSHA a second on our connection."""
    connection = Connection(address(f"unix://{path}"), lambda _, __: None, lambda: None, lost=lambda: None)
    async with anyio.create_task_group() as group:
        ready = anyio.Event()
        group.start_soon(connection.run, ready.set)
        await ready.wait()
        (sha,) = await connection.execute([pack([("SCRIPT", "LOAD", "return 1")])])

        async def work(_: int) -> None:
            for _ in range(times):
                await connection.execute([pack([("EVALSHA", sha, "0")])])

        figure = await together(work, tasks, times)
        group.cancel_scope.cancel()
    return figure


async def evaluations_of_redis_py(path: str, tasks: int, times: int) -> float:
    """EVALSHA a second through redis-py."""
    async with redis.asyncio.Redis(unix_socket_path=path) as client:
        sha = await client.script_load("return 1")

        async def work(_: int) -> None:
            for _ in range(times):
                await client.evalsha(sha, 0)

        return await together(work, tasks, times)


WORKS = (
    # work, tasks, locks (0: the connection alone), times, times of redis-py, goal
    ("Redis: EVALSHA, one task", 1, 0, 5_000, 5_000, ">= 1.3x the peer"),
    ("Redis: EVALSHA, 100 tasks", 100, 0, 200, 50, ">= 6x the peer"),
    ("Redis: lock cycle, one task", 1, 1, 3_000, 2_000, ">= 1.5x the peer"),
    ("Redis: lock cycle, 100 tasks on 100 locks", 100, 100, 100, 30, ">= 4x the peer"),
    ("Redis: lock cycle, 20 tasks on one lock", 20, 1, 100, 5, ">= 100x the peer"),
)


def run(size: Size) -> Iterator[Row]:
    with server() as path:
        for loop in size.loops:
            for work, tasks, locks, times, peer_times, goal in WORKS:
                ours = partial(cycles, locks=locks) if locks else evaluations
                theirs = partial(cycles_of_redis_py, locks=locks) if locks else evaluations_of_redis_py
                # redis-py runs on asyncio alone: on trio it is the same figure
                peer_loop = "asyncio" if loop == "trio" else loop
                counts = size.of((1, 1), (times // 5, max(2, peer_times // 5)), (times, peer_times))
                figures = interleaved(
                    {
                        "ours": partial(on_loop, loop, ours, path, tasks=tasks, times=counts[0]),
                        PEER: partial(on_loop, peer_loop, theirs, path, tasks=tasks, times=counts[1]),
                    },
                    size,
                )
                yield row(work, loop, figures, PEER, goal=goal)
