"""Groups of tasks: what they cost on each engine, how fair they are, and what others do instead.

"one account at a time": one account has put 100 tasks, then ten others put one each; of each account one task may run
at a time, ten at a time in all, and each takes 5 ms. The figures are the seconds until the ten are done, and until all
are. A handler that waits for a lock keeps its place while it waits. Peers run in processes and environments of their
own, in turn with ours. With TENURE_LONG=1, the long group has 1,000,000 tasks.

"beside groups that wait for their time": of each group one task has started, and the next may start in a day; the same
beside groups at their `per_group`. [What costs what](COSTS.md) has these in instructions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count as counting
from tempfile import TemporaryDirectory
from typing import Any

import anyio

import tenure
from benchmarks._contests import compared, contest
from benchmarks._measure import LONG, Row, Size, alone, interleaved, on_loop, row
from benchmarks._postgres_server import NewDatabase, server as postgres
from benchmarks._redis_server import server as redis
from tenure import Item, Limit
from tenure.engine import Exchange, Exchanged, OpenSession

BACKLOG = 1_000_000 if LONG else 20_000
MANY = 1_000_000


@contextmanager
def stores(size: Size, database: NewDatabase) -> Generator[dict[str, Callable[[], str]]]:
    """By engine, a function that returns the URL of a fresh store."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        numbers = iter(range(10_000))
        urls: dict[str, Callable[[], str]] = {
            "memory": lambda: "memory:",
            "SQLite": lambda: f"sqlite:///{folder}/{next(numbers)}.db",
        }
        if not size.smoke:
            path = stack.enter_context(redis())
            urls["Redis"] = lambda: f"unix://{path}"
            urls["PostgreSQL"] = lambda: stack.enter_context(database())
        yield urls


async def no_ops(url: str, n: int, in_groups: bool) -> float:
    """Tasks a second: put in batches of 100, each with a group of its own or none, and worked off by one worker."""
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, f"no-ops {time.time_ns()}", max_size=MANY * 2)
        began = time.perf_counter()
        for start in range(0, n, 100):
            await queue.put_many(
                [Item(i, group=f"g{i}" if in_groups else None) for i in range(start, min(start + 100, n))]
            )
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


async def takes(
    url: str,
    groups: int,
    n: int,
    *,
    each: int = 1,
    beside: bool = False,
    settings: tenure.Groups | None = None,
) -> float:
    """Microseconds a take, of `n` single ones, from a queue with so many groups of `each` tasks (0: no groups).

    `beside` them: a task of each group has started, no other one may, and tasks without a group are taken.
    """
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, f"takes {time.time_ns()}", max_size=MANY * 2, groups=settings)
        size = groups or n
        for start in range(0, size, 500):
            some = range(start, min(start + 500, size))
            await queue.put_many(
                [Item(i, group=f"g{i}" if groups else None) for i in some for _ in range(each)]
            )
        if beside:
            await store._handle.call(OpenSession("them", "them", 86_400))
            numbers, left = counting(1), groups
            while left:
                answer = await store._handle.call(
                    Exchange("them", next(numbers), queue.key, want=min(250, left), wait=False)
                )
                assert isinstance(answer, Exchanged)
                left -= len(answer.tasks)
            await queue.put_many(range(n))
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
        queue = tenure.WorkQueue(
            store, f"weights {time.time_ns()}", max_size=MANY * 2, groups=tenure.Groups(weights=weights)
        )
        for start in range(0, n, 250):
            some = range(start, min(start + 250, n))
            await queue.put_many([Item(i, group=g) for i in some for g in weights])
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


def ours(urls: dict[str, Callable[[], str]], size: Size) -> Iterator[Row]:
    """What groups cost beside the same without them, and how fair they are; on asyncio."""
    n, long, groups = size.of((4, 20, 5), (500, 2_000, 1_000), (8_000, BACKLOG, 5_000))
    plain = "ours without groups"
    for engine, url in urls.items():

        def on(work: Callable[..., Any], *args: Any, url: Callable[[], str] = url) -> Callable[[], float]:
            return lambda: on_loop("asyncio", work, url(), *args)

        contestants = {
            plain: on(no_ops, n, False),
            "ours": on(no_ops, n, True),
        }
        work = f"{engine}: no-op tasks, put and done, one group each"
        yield row(
            work, "asyncio", interleaved(contestants, size), plain, goal=">= 0.77x", shown="without groups"
        )

        count, many = size.of(2, 200, 500), size.of(4, 2_000, 100_000)
        some = {"groups": many, "each": 2}
        rows: tuple[tuple[str, str, str, dict[str, Any], dict[str, Any]], ...] = (
            (f"{groups:,} groups", "without groups", ">= 0.5x", {"groups": 0}, {"groups": groups}),
            (
                f"beside {many:,} groups that wait for their time",
                *("beside groups at their per_group", ">= 0.91x"),
                {**some, "beside": True, "settings": tenure.Groups(limit=1)},
                {**some, "beside": True, "settings": tenure.Groups(rate=Limit(1, per=86_400))},
            ),
            (
                f"of {many:,} groups with a rate",
                *("without a rate", ">= 0.91x"),
                some,
                {**some, "settings": tenure.Groups(rate=Limit(50, burst=5))},
            ),
        )
        for where, other, goal, theirs, mine in rows:
            contestants = {
                other: on(partial(takes, n=count, **theirs)),
                "ours": on(partial(takes, n=count, **mine)),
            }
            yield row(
                f"{engine}: a take and its end, {where}",
                "asyncio",
                interleaved(contestants, size, rounds=1),
                other,
                unit="us",
                less_is_better=True,
                goal=goal,
                shown=other,
            )

        taken = on(beside_a_long_one, long)()
        work = f"{engine}: takes until 100 groups of one are done, beside one of {long:,}"
        yield alone(work, "asyncio", [taken], goal="<= 300")
        off = on(off_by, size.of(10, 250, 1000))()
        work = f"{engine}: weights 1 to 4, off by at most, in windows of 1,000"
        yield alone(work, "asyncio", [off], goal="<= 1")


def run(size: Size) -> Iterator[Row]:
    """Measure everything."""
    with postgres() as database:
        with stores(size, database) as urls:
            yield from ours(urls, size)
        # a quick run leaves out PostgreSQL, where the peers take seconds
        for engine, place in (("Redis", redis), ("PostgreSQL", database))[: size.of(2, 1, 2)]:
            results = contest(
                f"groups_{engine.lower()}",
                "accounts",
                {"ours_groups": 100},
                place,
                size,
                timeout=size.of(10, 4, 10),
            )
            for figure, what in (("others", "the ten others are done"), ("all", "all are done")):
                work = f"{engine}: one account at a time: {what}"
                yield from compared(work, results, figure, "s", who="ours_groups")
