"""What each limiter has to do: admit at once, keep a rate for many waiters, serve all alike, keep little for a key."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any

import anyio

from benchmarks.queue_peers._server import Server

CALLERS = 32
WAITERS = 50
RATE = 200
"""A second, with as many at once after a pause."""
PLENTY = 10_000_000
LOOPS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}

Acquire = Callable[[], Coroutine[Any, Any, object]]
Opened = Callable[[str], AbstractAsyncContextManager[Callable[[str, int, int], Acquire]]]
"""Opens a library on a server's socket, for a function that makes limiters.

It takes a name, how many, and in how many seconds; what it returns waits for one permit.
"""


async def admit(opened: Opened, path: str, n: int) -> dict[str, float]:
    """Let 32 callers acquire what is there at once."""
    server = Server(path)
    async with opened(path) as limiter:
        acquire = limiter("plenty", PLENTY, 1)
        await acquire()
        before, cpu, began = server.counters(), time.process_time(), time.perf_counter()
        numbers = iter(range(n))

        async def caller() -> None:
            for _ in numbers:
                await acquire()

        async with anyio.create_task_group() as group:
            for _ in range(CALLERS):
                group.start_soon(caller)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        after = server.counters()
    return {
        "calls": n / seconds,
        "cpu": cpu / n,
        "server_cpu": (after["cpu"] - before["cpu"]) / n,
        "commands": (after["commands"] - before["commands"]) / n,
        "reads": (after["reads"] - before["reads"]) / n,
    }


async def wait(opened: Opened, path: str, n: int) -> dict[str, float]:
    """Let 50 tasks wait, for a second and n tenths: how many permits come after it, when, and to which tasks.

    In the first second a full bucket is emptied too, where there is one. What comes after it lasts a second at least.
    """
    counted = max(1.0, n / 10) if n > 1 else 0.1
    served = [0] * WAITERS
    times: list[float] = []
    server = Server(path)
    async with opened(path) as limiter:
        acquire = limiter("scarce", RATE, 1)
        await acquire()
        before, began = server.counters(), time.perf_counter()

        async def waiter(number: int) -> None:
            while True:
                await acquire()
                times.append(time.perf_counter())
                served[number] += 1

        with anyio.move_on_after(1 + counted):
            async with anyio.create_task_group() as group:
                for number in range(WAITERS):
                    group.start_soon(waiter, number)
        after = server.counters()
    late = [moment for moment in times if moment - began > 1]
    return {
        "share": len(late) / (RATE * counted),
        "overshoot": _most_within_a_second(late) / RATE,
        "fair": min(served) / (sum(served) / WAITERS),
        "commands": (after["commands"] - before["commands"]) / max(1, len(times)),
    }


def _most_within_a_second(times: list[float]) -> float:
    most = end = 0
    for start, first in enumerate(times):
        while end < len(times) and times[end] - first < 1:
            end += 1
        most = max(most, end - start)
    return most


async def keep(opened: Opened, path: str, n: int) -> dict[str, float]:
    """Use so many names once: bytes on the server for each."""
    server = Server(path)
    async with opened(path) as limiter:

        async def use(names: range) -> None:
            numbers = iter(names)

            async def caller() -> None:
                for number in numbers:
                    await limiter(f"user-{number:06}", 5, 3600)()

            async with anyio.create_task_group() as group:
                for _ in range(CALLERS):
                    group.start_soon(caller)

        await use(range(n, n + CALLERS))  # opens the connections
        before = server.counters()["memory"]
        await use(range(n))
        return {"bytes": (server.counters()["memory"] - before) / n}


def main(opened: Opened, *releases: str, title: str = "") -> None:
    """Do the work that the command line names, and print its figures."""
    logging.disable(logging.CRITICAL)
    path, loop, work, n = sys.argv[1:]
    works = {"admit": admit, "wait": wait, "keep": keep}
    name = " + ".join([title] * bool(title) + [f"{release} {version(release)}" for release in releases])
    result = anyio.run(works[work], opened, path, int(n), **LOOPS[loop])
    print(json.dumps({**result, "name": name}))
