"""Puts of fifty processes into a full queue: how long the longest of them waits, beside the median.

Each process puts one task after another, as fast as it can, into a queue of 20 tasks. Two worker processes take at most
some 400 tasks a second. Puts that still wait at the end count for as long as they have waited, so a process that others
pass shows. In the end, each task that was put has been handled.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import anyio

import tenure
from benchmarks._measure import Row, Size, alone
from benchmarks._postgres_server import server as postgres_server
from benchmarks._redis_server import server as redis_server

PRODUCERS = 50
MOST = 20
WORKERS = 2
CONCURRENCY = 2
PAUSE = 0.01
GOAL = 10


async def _produce(url: str, number: int, seconds: float, pipe: Connection) -> None:
    """Put one task after another; send how long each put took."""
    waits: list[float] = []
    began = time.monotonic()
    async with tenure.open_store(url, retry=60) as store:
        queue = tenure.WorkQueue[Any](store, "full", max_size=MOST)
        await queue.statistics()
        pipe.send("ready")
        pipe.recv()
        put = 0
        with anyio.move_on_after(seconds):
            while True:
                began = time.monotonic()
                await queue.put([number, put])
                waits.append(time.monotonic() - began)
                put += 1
        waits.append(time.monotonic() - began)
        pipe.send((put, waits))


async def _work(url: str, pipe: Connection) -> None:
    """Work until the queue is empty and nobody puts; send what was handled."""
    handled: list[tuple[int, int]] = []

    async def handle(payload: list[int]) -> None:
        await anyio.sleep(PAUSE)
        handled.append((payload[0], payload[1]))

    async with tenure.open_store(url, retry=60) as store:
        queue = tenure.WorkQueue[Any](store, "full", max_size=MOST)
        await queue.statistics()
        pipe.send("ready")
        pipe.recv()
        async with anyio.create_task_group() as group:
            worker = tenure.Worker(queue, handle, concurrency=CONCURRENCY)
            group.start_soon(worker.run)
            await anyio.to_thread.run_sync(pipe.recv)
            await queue.join()
            group.cancel_scope.cancel()
        pipe.send(handled)


async def _open(url: str) -> None:
    async with tenure.open_store(url) as store:
        await tenure.WorkQueue[Any](store, "full", max_size=MOST).statistics()


def measured(url: str, seconds: float, producers: int, consumers: int) -> dict[str, float]:
    """The figures of a run: the longest and the median wait in seconds, and tasks a second."""
    fork = multiprocessing.get_context("fork")

    def started(run: Any, *args: Any) -> Connection:
        here, there = fork.Pipe()
        process = fork.Process(target=anyio.run, args=(run, *args, there), daemon=True)
        process.start()
        there.close()
        return here

    anyio.run(_open, url)  # what this imports, the processes need not
    workers = [started(_work, url) for _ in range(consumers)]
    makers = [started(_produce, url, number, seconds) for number in range(producers)]
    for pipe in (*workers, *makers):
        assert pipe.recv() == "ready"
    for pipe in (*workers, *makers):
        pipe.send("go")
    made = [pipe.recv() for pipe in makers]
    for pipe in workers:
        pipe.send("end")
    handled = Counter(task for pipe in workers for task in pipe.recv())
    for process in multiprocessing.active_children():
        process.join()  # it closes its store while the server is there
    # a put that was cancelled at the end may have been applied
    put = {(number, n) for number, (count, _) in enumerate(made) for n in range(count)}
    maybe = {(number, count) for number, (count, _) in enumerate(made)}
    assert not put - handled.keys(), "a task is lost"
    assert not handled.keys() - put - maybe, "a task came from nowhere"
    waits = [wait for _, each in made for wait in each]
    return {"longest": max(waits), "median": median(waits), "rate": sum(count for count, _ in made) / seconds}


def run(size: Size) -> Iterator[Row]:
    """Measure on each engine that processes share."""
    seconds, producers, workers = size.of((0.2, 2, 1), (15.0, PRODUCERS, WORKERS), (60.0, PRODUCERS, WORKERS))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        urls = {
            "SQLite": f"sqlite:///{folder}/full.db",
            "Redis": f"unix://{stack.enter_context(redis_server())}",
            "PostgreSQL": stack.enter_context(
                stack.enter_context(postgres_server("-c", "max_connections=200"))()
            ),
        }
        for name, url in urls.items():
            seen = measured(url, seconds, producers, workers)
            work = f"{name}: {producers} processes put into a full queue"
            yield alone(
                f"{work}: longest wait / median",
                "asyncio",
                [seen["longest"] / seen["median"]],
                goal=f"<= {GOAL}",
            )
            yield alone(f"{work}: tasks", "asyncio", [seen["rate"]], unit="1/s")
