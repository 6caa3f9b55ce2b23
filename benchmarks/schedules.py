"""How late the tasks of a schedule are that many processes run: from the tick until a worker has the task.

Twenty processes run one schedule with four ticks a second, on a private Redis server or on a file; another takes the
tasks. The figures stand beside a goal of 50 ms, and none of these may be missing or there twice.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

import tenure
from benchmarks._measure import Figure, Row, Size, on_loop, row
from benchmarks._redis_server import server

EVERY = 0.25
GOAL = 0.05


async def run_schedule(url: str) -> None:
    """One of the processes, until it is killed."""
    async with tenure.open_store(url) as store:
        schedule = tenure.Schedule(tenure.WorkQueue(store, "jobs"), "often", every=EVERY, missed="all")
        await schedule.next()
        print("ready", flush=True)
        await schedule.run()


async def lateness(url: str, ticks: int) -> list[float]:
    """For how many seconds each tick was late, from the next one on."""
    late: list[float] = []
    times: list[float] = []
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "jobs")
        await queue.purge("waiting")
        while len(late) < ticks:
            async with queue.take() as task:
                moment = time.time()
                times.append(datetime.fromisoformat(task.meta["scheduled_for"]).timestamp())
                late.append(moment - times[-1])
    if times != [times[0] + EVERY * n for n in range(ticks)]:
        raise AssertionError(f"ticks are missing or twice: {times}")
    return late


@contextmanager
def place(engine: str) -> Generator[str]:
    """A fresh store."""
    with ExitStack() as stack:
        if engine == "redis":
            yield f"unix://{stack.enter_context(server())}"
        else:
            yield f"sqlite:///{Path(stack.enter_context(TemporaryDirectory())) / 'jobs.db'}"


def measured(engine: str, loop: str, processes: int, ticks: int) -> list[float]:
    """How late each tick was, with so many processes on this loop."""
    with place(engine) as url, ExitStack() as stack:
        command = [sys.executable, "-m", "benchmarks.schedules", loop, url]
        children = [
            stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE)) for _ in range(processes)
        ]
        for child in children:
            stack.callback(child.kill)
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        return on_loop(loop, lateness, url, ticks)


def run(size: Size) -> Iterator[Row]:
    """The rows of the table."""
    processes, ticks = size.of((1, 2), (4, 6), (20, 24))
    for engine in ("redis", "sqlite"):
        # the lateness on a file depends on the file
        for loop in size.loops if engine == "redis" else ["asyncio"]:
            late = sorted(measured(engine, loop, processes, ticks))
            shares = quantiles(late, n=100, method="inclusive")
            for share, value in (("median", shares[49]), ("p99", shares[98])):
                work = f"{share} lateness of a tick, {processes} processes, {engine}"
                figures = {"ours": Figure([1000 * value]), "goal": Figure([1000 * GOAL])}
                yield row(work, loop, figures, "goal", unit="ms", less_is_better=True, goal="<= 50")


if __name__ == "__main__":
    on_loop(sys.argv[1], run_schedule, sys.argv[2])
