"""Several limits at once: how much of each is used, in the process and over four processes on a private Redis server.

In the process a hundred tasks call. Each call costs something in three limits, which allow the same number of calls.
On Redis each of four processes books more tokens than a call then costs, and corrects that when the call ends, so that
the tokens are used up only if what was given back is spent again. The requests of an hour are a third limit there. The
figure is the share of each limit that was used in some seconds, burst included; the goal is 0.99 to 1.01. Last comes
how many operations a call takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio

import tenure
from benchmarks._measure import LOOPS, Figure, Row, Size, interleaved, on_loop, row
from benchmarks.redis_locks import server
from tenure import Limit, RateLimiter
from tenure.local import TokenBucket

GOAL = "0.99 to 1.01"
BOOKED, REALLY = 80, 60
"""Tokens of a call on Redis: as booked, and as corrected."""
CALLS = 800.0
"""A second, over all processes."""
PROCESSES = 4
TASKS = 40
"""In each process."""
CALL = 0.02
"""Seconds that a call takes."""


def in_process(rate: float) -> list[Limit]:
    """Limits that allow so many calls of `{"tokens": 3, "bytes": 20}`."""
    return [
        Limit(rate),
        Limit(3 * rate, unit="tokens"),
        Limit(200 * rate, per=10, burst=2 * rate, unit="bytes"),
    ]


async def share_in_process(rate: float, tasks: int, seconds: float) -> float:
    """How much of the limits so many tasks get; it is the same share of each."""
    limits = in_process(rate)
    bucket = TokenBucket.of(*limits)
    cost = {"tokens": 3, "bytes": 20}
    done = 0

    async def work() -> None:
        nonlocal done
        while True:
            await bucket.acquire(cost)
            done += 1

    # the burst is spent before the clock runs
    await bucket.acquire({"requests": rate, "tokens": 3 * rate, "bytes": 0})
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as group:
            for _ in range(tasks):
                group.start_soon(work)
    return done / (rate * seconds)


def on_redis() -> list[Limit]:
    """Limits that allow `CALLS` a second, if each call costs what it really costs."""
    return [
        Limit(CALLS, burst=CALLS),
        Limit(CALLS * REALLY, burst=CALLS * REALLY, unit="tokens"),
        Limit(CALLS * 3600, per=3600, burst=CALLS),
    ]


async def call_for(url: str, seconds: float) -> None:
    """One of the processes: prints when its calls began."""
    began: list[float] = []
    async with tenure.open_store(url) as store:
        limiter = RateLimiter(store, "api", *on_redis())
        await limiter.state()
        print("ready", flush=True)

        async def work() -> None:
            while True:
                async with limiter.spend({"tokens": BOOKED}) as spending:
                    began.append(time.time())
                    spending.correct({"tokens": REALLY})
                    await anyio.sleep(CALL)

        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as group:
                for _ in range(TASKS):
                    group.start_soon(work)
    print(json.dumps(began), flush=True)


def share_on_redis(loop: str, seconds: float, pause: float, number: int) -> float:
    """How much of each limit processes use after a pause, which spends the burst; a call costs as much of each."""
    with server() as socket:
        command = [
            sys.executable,
            "-m",
            "benchmarks.limits",
            f"unix://{socket}",
            loop,
            str(seconds + pause + 0.5),
        ]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(number)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        start = time.time() + pause
        calls = [when for process in processes for when in json.loads(process.communicate()[0])]
    return sum(start <= when < start + seconds for when in calls) / (CALLS * seconds)


def run(size: Size) -> Iterator[Row]:
    """The shares, and how many operations a call takes."""
    seconds = size.of(0.02, 0.2, 1.0)
    for loop in LOOPS:
        for rate in (1_000.0, 10_000.0, 100_000.0)[: size.of(1, 3, 3)]:
            figures = interleaved(
                {
                    "ours": partial(on_loop, loop, share_in_process, rate, 100, seconds),
                    "each limit": lambda: 1.0,
                },
                size,
            )
            work = f"TokenBucket, three limits, {rate:,.0f} calls/s"
            yield row(work, loop, figures, "each limit", unit="share", goal=GOAL)
    for loop in size.loops:
        contestants = {
            "ours": partial(
                share_on_redis, loop, *size.of((0.1, 0.1, 1), (0.5, 2.0, PROCESSES), (2.0, 2.0, PROCESSES))
            ),
            "each limit": lambda: 1.0,
        }
        figures = interleaved(contestants, size, rounds=1)
        work = f"RateLimiter on Redis, three limits, {PROCESSES} processes, corrected"
        yield row(work, loop, figures, "each limit", unit="share", goal=GOAL)
    counted = Figure([on_loop("asyncio", operations_of_a_call)])
    figures = {"ours": counted, "a booking and a correction": Figure([2.0])}
    work = "RateLimiter, three limits: operations of a call that waits and is corrected"
    yield row(work, "asyncio", figures, "a booking and a correction", unit="operations", less_is_better=True)


async def operations_of_a_call() -> float:
    """How many operations reach the engine for a call that has to wait, and is corrected."""
    from tenure.engines.memory import MemoryEngine

    class Counting(MemoryEngine):
        count = 0

        def apply(self, operation: Any, /) -> Any:
            self.count += 1
            return super().apply(operation)

    engine = Counting()
    async with tenure.open_store(engine) as store:
        limiter = RateLimiter(store, "api", Limit(20, burst=1), Limit(100, unit="tokens"))
        await limiter.acquire()
        before = engine.count
        async with limiter.spend({"tokens": 10}) as spending:
            spending.correct({"tokens": 5})
        await anyio.sleep(0.01)
        return engine.count - before


if __name__ == "__main__":
    on_loop(sys.argv[2], call_for, sys.argv[1], float(sys.argv[3]))
