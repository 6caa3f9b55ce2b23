"""Standing costs: memory of a task and of a session, and commands of an idle store; and a blocked event loop.

On a private Redis server. The tasks have payloads of 100 characters. The last row is a handler that computes for three
ttl and so blocks its event loop, while another worker waits for its task: how many tasks were delivered again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import anyio
import redis

import tenure
from benchmarks._measure import Row, Size, alone, on_loop
from benchmarks._redis_server import server
from benchmarks.scale import serving
from tenure import engine as e
from tenure.engines.redis import RedisEngine

PAYLOAD = "x" * 100


class Looks:
    """The server's own figures."""

    def __init__(self, path: str) -> None:
        self._client = cast(Any, redis.Redis(unix_socket_path=path))

    def memory(self) -> int:
        """Bytes in use."""
        return self._client.info("memory")["used_memory"]

    def commands(self) -> int:
        """Commands so far."""
        return self._client.info("stats")["total_commands_processed"]


async def bytes_of_a_task(path: str, tasks: int) -> float:
    """The memory of each of so many tasks that wait."""
    looks = Looks(path)
    async with tenure.open_store(f"unix://{path}") as store:
        queue = tenure.WorkQueue[str](store, "jobs", max_size=2 * tasks)
        await queue.put_many([PAYLOAD])  # the scripts and the queue are there
        before = looks.memory()
        await queue.put_many([PAYLOAD] * tasks)
        return (looks.memory() - before) / tasks


async def bytes_of_a_session(path: str, sessions: int) -> float:
    """The memory of each of so many sessions, without connections."""
    looks = Looks(path)
    async with serving(engine := RedisEngine(f"unix://{path}")):
        await engine.execute([e.OpenSession("process/first", "process", 30.0)])
        before = looks.memory()
        for n in range(sessions):
            await engine.execute([e.OpenSession(f"process/{n}", "process", 30.0)])
        return (looks.memory() - before) / sessions


async def commands_when_idle(path: str, seconds: float) -> float:
    """The commands of a minute of a store that holds a lock and does nothing else."""
    looks = Looks(path)
    async with tenure.open_store(f"unix://{path}") as store, tenure.Lock(store, "lock").hold():
        before = looks.commands()
        await anyio.sleep(seconds)
        return 60 * (looks.commands() - before - 1) / seconds


async def delivered_again(path: str, tasks: int, *, ttl: float) -> float:
    """How many of so many tasks another worker got, while a handler blocked the loop of the first for three ttl."""
    got: list[object] = []
    taken = threading.Event()

    async def other() -> None:
        async with tenure.open_store(f"unix://{path}", ttl=ttl) as store:
            with anyio.move_on_after(4 * ttl):
                async with tenure.WorkQueue[int](store, "jobs").take() as task:
                    got.append(task.payload)

    def beside() -> None:
        taken.wait()
        anyio.run(other)

    async with tenure.open_store(f"unix://{path}", ttl=ttl) as store:
        queue = tenure.WorkQueue[int](store, "jobs")
        for n in range(tasks):
            taken.clear()
            await queue.put(n)
            thread = threading.Thread(target=beside)
            thread.start()
            async with queue.take():
                taken.set()
                time.sleep(3 * ttl)  # noqa: ASYNC251 this is what is measured
            await anyio.to_thread.run_sync(thread.join)
    return len(got)


def run(size: Size) -> Iterator[Row]:
    """Measure everything, each on a server of its own."""
    blocked = partial(delivered_again, ttl=size.of(0.5, 1.0, 1.0))
    works = (
        ("Redis: memory of a waiting task", "B", bytes_of_a_task, size.of(100, 5_000, 20_000)),
        ("Redis: memory of a session", "B", bytes_of_a_session, size.of(10, 500, 2_000)),
        ("Redis: commands a minute of an idle store", "", commands_when_idle, size.of(0.2, 12.0, 31.0)),
        ("Redis: tasks delivered again, loop blocked for 3 ttl", "", blocked, size.of(1, 2, 5)),
    )
    for work, unit, measure, n in works:
        with server() as path:
            yield alone(work, "asyncio", [on_loop("asyncio", measure, path, n)], unit=unit)
