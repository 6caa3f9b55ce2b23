"""Groups of tasks: what they cost on each engine, how fair they are, and what others do instead.

"one account at a time": one account has put `BIG` tasks, then ten others put one each; of each account one task may run
at a time, ten at a time in all, and each takes 5 ms. The figures are the seconds until the ten are done, and until all
are. A handler that waits for a lock keeps its place while it waits. Peers run in processes and environments of their
own, in turn with ours. With TENURE_LONG=1, the long group has 1,000,000 tasks, as the goal says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import nan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import anyio

import tenure
from benchmarks._measure import LOOPS, ROUNDS, on_loop
from benchmarks._postgres_server import server as postgres
from benchmarks.queue_peers._environments import python_with
from benchmarks.redis_locks import server as redis
from tenure import Item

ROOT = Path(__file__).parents[1]
BIG = 300
LONG = 1_000_000 if os.environ.get("TENURE_LONG") else 50_000
GROUPS = 100_000
NO_OPS = 5_000
MANY = 1_000_000


@contextmanager
def stores(*, smoke: bool) -> Iterator[dict[str, Callable[[], str]]]:
    """By engine, a function that returns the URL of a fresh store."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        numbers = iter(range(10_000))
        urls: dict[str, Callable[[], str]] = {
            "memory": lambda: "memory:",
            "SQLite": lambda: f"sqlite:///{folder}/{next(numbers)}.db",
        }
        if not smoke:
            database = stack.enter_context(postgres())
            path = stack.enter_context(redis())
            urls["Redis"] = lambda: f"unix://{path}"
            urls["PostgreSQL"] = lambda: stack.enter_context(database())
        yield urls


async def no_ops(url: str, n: int, group: Callable[[int], str | None]) -> float:
    """Tasks a second: put in batches of 100, and worked off by one worker."""
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, f"no-ops {time.time_ns()}", max_size=MANY * 2)
        began = time.perf_counter()
        for start in range(0, n, 100):
            await queue.put_many([Item(i, group=group(i)) for i in range(start, min(start + 100, n))])
        await work_off(queue)
        return n / (time.perf_counter() - began)


async def work_off(queue: tenure.WorkQueue[Any]) -> None:
    """Let one worker do all tasks."""

    async def handler(task: tenure.Task[Any]) -> None:
        pass

    worker = tenure.Worker(queue, handler, concurrency=32)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await queue.join()
        await worker.drain()


async def takes(url: str, groups: int, n: int) -> float:
    """Microseconds a take, of `n` single ones, from a queue with so many groups of one task (0: no groups)."""
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, f"takes {time.time_ns()}", max_size=MANY * 2)
        size = groups or GROUPS
        for start in range(0, size, 1000):
            items = (
                Item(i, group=f"g{i}" if groups else None) for i in range(start, min(start + 1000, size))
            )
            await queue.put_many(items)
        began = time.perf_counter()
        for _ in range(n):
            async with queue.take():
                pass
        return 1e6 * (time.perf_counter() - began) / n


async def beside_a_long_one(url: str, size: int) -> float:
    """How many tasks are taken until a hundred groups of one are done, beside a group of `size`."""
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, f"long {time.time_ns()}", max_size=MANY * 2)
        for start in range(0, size, 1000):
            await queue.put_many([Item(i, group="long") for i in range(start, min(start + 1000, size))])
        await queue.put_many([Item(i, group=f"g{i}") for i in range(100)])
        count = found = 0
        while found < 100:
            async with queue.take() as task:
                count += 1
                found += task.group != "long"
        return count


async def off_by(url: str, n: int) -> float:
    """By how many tasks at most a share of groups with the weights 1 to 4 is off, in any window of 1,000."""
    weights = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, f"weights {time.time_ns()}", max_size=MANY * 2, weights=weights)
        for start in range(0, n, 250):
            await queue.put_many([Item(i, group=g) for i in range(start, start + 250) for g in weights])
        taken: list[str | None] = []
        for _ in range(2 * n):
            async with queue.take() as task:
                taken.append(task.group)
    window = min(1000, n)
    worst = 0.0
    for start in range(len(taken) - window):
        shares = Counter(taken[start : start + window])
        worst = max(worst, *(abs(shares[g] - window * weight / 10) for g, weight in weights.items()))
    return worst


def ours(urls: dict[str, Callable[[], str]], *, smoke: bool) -> list[dict[str, Any]]:
    """What groups cost beside the same without them, and how fair they are; on asyncio."""
    n, size, groups = (20, 200, 50) if smoke else (NO_OPS, LONG, GROUPS)
    rows: list[dict[str, Any]] = []
    for engine, url in urls.items():
        rounds = 1 if smoke else ROUNDS
        plain, grouped = [], []
        for _ in range(rounds):
            plain.append(on_loop("asyncio", no_ops, url(), n, lambda _: None))
            grouped.append(on_loop("asyncio", no_ops, url(), n, lambda i: f"g{i}"))
        rows.append(
            beside(
                f"{engine}: no-op tasks, put and done, one group each",
                median(grouped),
                median(plain),
                ">= 0.77x",
            )
        )
        count = min(500, groups)
        single, of_many = (on_loop("asyncio", takes, url(), each, count) for each in (0, groups))
        row = beside(
            f"{engine}: a take and its end, {groups:,} groups", of_many, single, ">= 0.5x", unit="us"
        )
        rows.append(row)
        taken = on_loop("asyncio", beside_a_long_one, url(), size)
        rows.append(
            alone(
                f"{engine}: takes until 100 groups of one are done, beside one of {size:,}", taken, "<= 300"
            )
        )
        off = on_loop("asyncio", off_by, url(), 250 if smoke else 1000)
        rows.append(alone(f"{engine}: weights 1 to 4, off by at most, in windows of 1,000", off, "<= 1"))
    return rows


def beside(work: str, value: float, plain: float, goal: str, unit: str = "1/s") -> dict[str, Any]:
    """A row of ours with groups beside ours without."""
    ratio = plain / value if unit == "us" else value / plain
    of = {"ours": value, "peer": plain, "ratio": ratio, "unit": unit, "goal": goal}
    return {"work": work, "loop": "asyncio", "peer_name": "without groups", **of}


def alone(work: str, value: float, goal: str) -> dict[str, Any]:
    """A row without a peer."""
    of = {"ours": value, "peer": nan, "ratio": nan, "unit": "", "goal": goal}
    return {"work": work, "loop": "asyncio", "peer_name": "no peer", **of}


def measured(module: str, path: str, loop: str, n: int) -> dict[str, Any]:
    """What a contestant gives; "missing" says why there is nothing."""
    own = module in ("groups_ours", "groups_semaphore")
    python = Path(sys.executable) if own else python_with(module)
    if python is None:
        return {"name": module, "missing": "cannot be installed"}
    command = [python, "-m", f"benchmarks.queue_peers.{module}", path, loop, str(n)]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return {"name": module, "missing": "did not end"}
    if ran.returncode:
        return {"name": module, "missing": ran.stderr.strip().splitlines()[-1][:80]}
    return json.loads(ran.stdout)


def contests(*, smoke: bool) -> Iterator[dict[str, Any]]:
    """One account at a time, ours on each loop beside each peer."""
    n = 3 if smoke else BIG
    stores = {"Redis": ("groups_docket", redis), "PostgreSQL": ("groups_procrastinate", postgres)}
    for name, (peer, server) in stores.items():
        with ExitStack() as stack:
            database = stack.enter_context(postgres()) if server is postgres else redis
            runs: dict[tuple[str, str], dict[str, Any]] = {}
            loops = ["asyncio"] if smoke else list(LOOPS)
            contestants = [("groups_ours", loop) for loop in loops] + [("groups_semaphore", "asyncio")]
            contestants += [] if smoke else [(peer, "asyncio")]
            for module, loop in contestants:
                with database() as path:
                    runs[module, loop] = measured(module, path, loop, n)
        for (module, _), result in runs.items():
            if module == "groups_ours":
                continue
            for loop in loops:
                for figure, what in (("others", "the ten others are done"), ("all", "all are done")):
                    own, value = runs["groups_ours", loop][figure], result.get(figure, nan)
                    missing = f" ({result['missing']})" if "missing" in result else ""
                    yield {
                        "work": f"{name}: one account at a time, {n} + 10 tasks: {what}",
                        "loop": loop,
                        "ours": own,
                        "peer": value,
                        "peer_name": f"{result['name']}{missing}",
                        "ratio": value / own,
                        "unit": "s",
                        "goal": "",
                    }


def run(smoke: bool) -> list[dict[str, Any]]:
    """Measure everything."""
    with stores(smoke=smoke) as urls:
        rows = ours(urls, smoke=smoke)
    return [*rows, *contests(smoke=smoke)]
