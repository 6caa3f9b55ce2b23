"""Synchronous code: a lock, a put and a limiter of `tenure.blocking`, in one thread and in eight.

Each call goes to the event loop in its own thread and back. What that costs shows beside the same calls on the loop, in
as many tasks. The least that synchronous code can do stands there too: on Redis, redis-py with its own lock, an LPUSH,
and a counter of a fixed window; on SQLite, statements of `sqlite3` that do the same. These neither renew nor fence a
lock, keep no record of a task, and do not spread calls evenly.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import anyio
import redis

import tenure
from benchmarks._measure import Row, Size, interleaved, on_loop, row
from benchmarks._redis_server import server
from tenure import blocking

LOOP = "on the loop"
WORKS = {"lock": "lock cycles", "put": "puts", "limit": "acquisitions of a limiter"}
RATE = 1_000_000
"""Per second: nothing waits for the limit."""

_fresh = count()


def in_threads(work: Callable[[int], None], threads: int, times: int) -> float:
    """How often a second `work(number of the thread)` can be called, once each has called it."""
    with ThreadPoolExecutor(threads) as pool:

        def repeat(number: int) -> None:
            for _ in range(times):
                work(number)

        list(pool.map(work, range(threads)))
        began = perf_counter()
        list(pool.map(repeat, range(threads)))
        return threads * times / (perf_counter() - began)


def ours(url: str, work: str, threads: int, times: int) -> float:
    """Calls a second of `tenure.blocking`."""
    with blocking.open_store(url) as store:
        locks = [blocking.Lock(store, f"lock {number}") for number in range(threads)]
        queue = blocking.WorkQueue[int](store, f"queue {next(_fresh)}", max_size=10**6)
        limiter = blocking.RateLimiter(store, "limit", tenure.Limit(RATE, burst=RATE))

        def lock(number: int) -> None:
            with locks[number]:
                pass

        works: dict[str, Callable[[int], Any]] = {
            "lock": lock,
            "put": queue.put,
            "limit": lambda _: limiter.acquire(),
        }
        return in_threads(works[work], threads, times)


async def on_the_loop(url: str, work: str, tasks: int, times: int) -> float:
    """The same from tasks on the loop."""
    async with tenure.open_store(url) as store:
        locks = [tenure.Lock(store, f"lock {number}") for number in range(tasks)]
        queue = tenure.WorkQueue[int](store, f"queue {next(_fresh)}", max_size=10**6)
        limiter = tenure.RateLimiter(store, "limit", tenure.Limit(RATE, burst=RATE))

        async def lock(number: int) -> None:
            async with locks[number]:
                pass

        works: dict[str, Callable[[int], Any]] = {
            "lock": lock,
            "put": queue.put,
            "limit": lambda _: limiter.acquire(),
        }

        async def repeat(number: int) -> None:
            for _ in range(times):
                await works[work](number)

        await works[work](0)
        began = perf_counter()
        async with anyio.create_task_group() as group:
            for number in range(tasks):
                group.start_soon(repeat, number)
        return tasks * times / (perf_counter() - began)


def with_redis_py(path: str, work: str, threads: int, times: int) -> float:
    """The same with redis-py, which takes a connection from its pool for each call."""
    with redis.Redis(unix_socket_path=path) as client:
        queue = f"list {next(_fresh)}"

        def lock(number: int) -> None:
            with client.lock(f"peer {number}", timeout=30):
                pass

        def limit(_: int) -> None:
            key = f"window {int(time.time())}"
            if client.incr(key) == 1:
                client.expire(key, 2)

        works: dict[str, Callable[[int], Any]] = {
            "lock": lock,
            "put": lambda number: client.lpush(queue, number),
            "limit": limit,
        }
        return in_threads(works[work], threads, times)


def with_sqlite3(folder: str, work: str, threads: int, times: int) -> float:
    """The same with statements on a connection for each thread."""
    path = f"{folder}/{next(_fresh)}.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "PRAGMA journal_mode=WAL; CREATE TABLE lock (name TEXT PRIMARY KEY); CREATE TABLE task (payload);"
            "CREATE TABLE taken (second INTEGER PRIMARY KEY, number INTEGER)"
        )
    steps = {
        "lock": ["INSERT INTO lock VALUES (:thread)", "DELETE FROM lock WHERE name = :thread"],
        "put": ["INSERT INTO task VALUES (:thread)"],
        "limit": ["INSERT INTO taken VALUES (:now, 1) ON CONFLICT DO UPDATE SET number = number + 1"],
    }[work]
    connections = [
        sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
        for _ in range(threads)
    ]
    for db in connections:
        db.execute("PRAGMA synchronous=NORMAL")

    def call(number: int) -> None:
        for step in steps:
            connections[number].execute(step, {"thread": number, "now": int(time.time())})

    try:
        return in_threads(call, threads, times)
    finally:
        for db in connections:
            db.close()


@contextmanager
def places() -> Generator[dict[str, tuple[str, str, Callable[[str, int, int], float]]]]:
    """By engine: the URL of a store, the name of the peer, and the peer."""
    with TemporaryDirectory() as folder, server() as path:
        yield {
            "Redis": (f"unix://{path}", "redis-py", partial(with_redis_py, path)),
            "SQLite": (f"sqlite:///{Path(folder) / 'store.db'}", "sqlite3", partial(with_sqlite3, folder)),
        }


def run(size: Size) -> Iterator[Row]:
    """Each work on each engine, in one thread and in eight."""
    times = size.of(1, 100, 500)
    with places() as engines:
        for engine, (url, peer, do) in engines.items():
            for work, name in WORKS.items():
                for threads in (1, 8):
                    each = max(1, times // threads)
                    contestants: dict[str, Callable[[], float]] = {
                        "ours": partial(ours, url, work, threads, each),
                        peer: partial(do, work, threads, each),
                        LOOP: partial(on_loop, "asyncio", on_the_loop, url, work, threads, each),
                    }
                    figures = interleaved(contestants, size)
                    title = f"{name}, {threads} threads, {engine}" if threads > 1 else f"{name}, {engine}"
                    yield from [row(title, "asyncio", figures, other) for other in (peer, LOOP)]
