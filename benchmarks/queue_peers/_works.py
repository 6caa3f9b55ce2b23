"""What each contestant has to do, and what it costs: seconds, CPU seconds here and on the server, commands, reads."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import count
from math import ceil
from typing import Any, NoReturn

import anyio
import psycopg

from benchmarks.queue_peers._server import PostgresServer, Server

CONCURRENCY = 32
_LOOPS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}


@dataclass
class Contestant:
    """A queue: `put` puts one task, `put_many` several at once, `work` runs one worker process until cancelled."""

    put: Callable[[int], Coroutine[Any, Any, object]]
    work: Callable[[], Coroutine[Any, Any, object]]
    put_many: Callable[[Sequence[int]], Coroutine[Any, Any, object]] | None = None


Opened = Callable[[str, Callable[[], object]], AbstractAsyncContextManager[Contestant]]
"""Opens a contestant on a server's socket or URL; its handler calls the function that is given, and does no more."""

Tell = Callable[[dict[str, float]], NoReturn]
"""Says what came out, and ends the process."""


class Gauge:
    """What happened since it was made."""

    def __init__(self, path: str) -> None:
        self._server = PostgresServer(path) if "://" in path else Server(path)
        self._before = self._server.counters()
        self._cpu = time.process_time()
        self._began = time.perf_counter()

    def read(self, tasks: float) -> dict[str, float]:
        """A second, and for each task (or each second, of a worker that is idle)."""
        seconds, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        after = self._server.counters()
        spent = {name: after[name] - self._before[name] for name in after}
        return {
            "tasks": tasks / seconds,
            "cpu": cpu / tasks,
            "server_cpu": spent["cpu"] / tasks,
            "commands": spent["commands"] / tasks,
            "reads": spent.get("reads", 0) / tasks,
            "connections": after["connections"],
        }


async def several(n: int, call: Callable[[int], Coroutine[Any, Any, object]]) -> None:
    """Let 32 callers share the numbers."""
    numbers = iter(range(n))

    async def caller() -> None:
        for number in numbers:
            await call(number)

    async with anyio.create_task_group() as group:
        for _ in range(CONCURRENCY):
            group.start_soon(caller)


async def drain(opened: Opened, path: str, n: int, tell: Tell) -> None:
    """Put no-op tasks, then work them off with one worker, 32 at a time."""
    calls: list[None] = []
    async with opened(path, partial(calls.append, None)) as queue:
        if queue.put_many is None:
            await several(n, queue.put)
        else:
            for start in range(0, n, 100):
                await queue.put_many(range(start, min(start + 100, n)))
        gauge = Gauge(path)
        async with anyio.create_task_group() as group:
            group.start_soon(queue.work)
            while len(calls) < n:  # noqa: ASYNC110 some handlers run in threads
                await anyio.sleep(0.002)
            tell(gauge.read(n))


async def put(opened: Opened, path: str, n: int, tell: Tell) -> None:
    """Let 32 callers put tasks, one at a time each."""
    async with opened(path, _nothing) as queue:
        await queue.put(0)
        gauge = Gauge(path)
        await several(n, queue.put)
        tell(gauge.read(n))


async def put_many(opened: Opened, path: str, n: int, tell: Tell) -> None:
    """Let one caller put tasks in batches of 100."""
    async with opened(path, _nothing) as queue:
        assert queue.put_many is not None
        await queue.put(0)
        gauge = Gauge(path)
        for start in range(0, n, 100):
            await queue.put_many(range(start, min(start + 100, n)))
        tell(gauge.read(n))


async def wake(opened: Opened, path: str, n: int, tell: Tell) -> None:
    """Wake a worker that has nothing to do, again and again: ms from the call of put until the handler runs.

    The first time is a figure of its own: it includes opening what is opened late, and what a server's new connections
    compile and look up. Among a few hundred it would be the 99th percentile.
    """
    started: list[float] = []
    seconds: list[float] = []
    async with opened(path, partial(_note, started)) as queue, anyio.create_task_group() as group:
        group.start_soon(queue.work)
        await anyio.sleep(0.5 if n > 1 else 0.1)
        for number in range(n + 1):
            began = time.perf_counter()
            await queue.put(number)
            while len(started) == number:  # noqa: ASYNC110 as above
                await anyio.sleep(0.01)
            seconds.append(started[number] - began)
        first, *others = seconds
        others.sort()
        p50, p99 = (others[ceil(part * n) - 1] for part in (0.5, 0.99))
        tell({"first": 1000 * first, "p50": 1000 * p50, "p99": 1000 * p99})


async def idle(opened: Opened, path: str, n: int, tell: Tell) -> None:
    """Let a worker have nothing to do for so many tenths of a second, long after its start.

    A session of ours renews once before it rests, and its connection asks for signs of life until 15 s after that.
    """
    async with opened(path, _nothing) as queue, anyio.create_task_group() as group:
        group.start_soon(queue.work)
        await anyio.sleep(30.0 if n > 1 else 0.1)
        gauge = Gauge(path)
        await anyio.sleep(n / 10)
        tell(gauge.read(n / 10))


async def held(opened: Opened, path: str, n: int, tell: Tell) -> None:
    """Put and work off tasks while a transaction is held open for `n` seconds: tasks/s in the last of them, and before.

    A second of six is looked at, at the end of each part; there are never more than 2,000 tasks at once.
    """
    calls: list[None] = []
    async with opened(path, partial(calls.append, None)) as queue:
        put_many = queue.put_many
        assert put_many is not None

        async def produce() -> None:
            for start in count(0, 100):
                await put_many(range(start, start + 100))
                while start - len(calls) > 2000:  # noqa: ASYNC110 some handlers run in threads
                    await anyio.sleep(0.002)

        async def throughput(seconds: float) -> float:
            await anyio.sleep(5 / 6 * seconds)
            before, began = len(calls), time.perf_counter()
            await anyio.sleep(seconds / 6)
            return (len(calls) - before) / (time.perf_counter() - began)

        async with anyio.create_task_group() as group:
            group.start_soon(queue.work)
            group.start_soon(produce)
            free = await throughput(max(1.0, n / 3))
            with psycopg.connect(path) as snapshot:
                snapshot.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                snapshot.execute("SELECT count(*) FROM pg_class")
                last = await throughput(n)
            tell({"free": free, "held": last, "kept": last / free})


def main(opened: Callable[..., AbstractAsyncContextManager[Contestant]], *releases: str) -> None:
    """Do the work that the command line names. What runs in threads is given "8 threads" in place of a loop."""
    logging.disable(logging.CRITICAL)
    path, loop, work, n = sys.argv[1:]
    if loop not in _LOOPS:
        opened = partial(opened, threads=int(loop.split()[0]))
    works = {"drain": drain, "put": put, "put_many": put_many, "wake": wake, "idle": idle, "held": held}
    name = " + ".join(f"{release} {version(release)}" for release in releases)

    def tell(result: dict[str, float]) -> NoReturn:
        print(json.dumps({**result, "name": name}), flush=True)
        os._exit(0)  # not every peer's worker can be stopped

    anyio.run(works[work], opened, path, int(n), tell, **_LOOPS.get(loop, {}))


def _note(times: list[float]) -> None:
    times.append(time.perf_counter())


def _nothing() -> None:
    pass
