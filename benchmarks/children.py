"""Children: a fan-out of 1,000 no-op children that is gathered, and what the cancellation of a tree costs others.

The figure is children a second, from the put of the parent to its result; each contestant is one process. A Celery
chord runs on the same Redis, DBOS workflows on the same PostgreSQL, in environments of their own. Celery works in
threads, and is compared with each loop of ours. Then a tree of 100 times 100 tasks is cancelled; meanwhile another
store of the same process reads a record without pause, and the figures are the times of these reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from tempfile import TemporaryDirectory

import anyio

import tenure
from benchmarks._contests import compared, contest
from benchmarks._measure import Row, Size, alone, on_loop
from benchmarks._postgres_server import server as postgres
from benchmarks._redis_server import server as redis
from benchmarks.queue_peers.ours_children import fan_out

CHILDREN = 1_000


async def pings(url: str, width: int) -> list[float]:
    """The milliseconds of another client's reads while a tree of `width` times `width` tasks is cancelled.

    A tree of 3 times 3 tasks is cancelled before, because each session of PostgreSQL compiles a function at its first
    call.
    """
    seen: list[float] = []
    is_over = False
    async with tenure.open_store(url) as store, tenure.open_store(url) as other:
        inner = tenure.WorkQueue[int](store, "inner")
        leaves = tenure.WorkQueue[int](store, "leaves")
        beside = tenure.WorkQueue[int](other, "beside")
        record = await beside.put(0)

        async def grow(task: tenure.Task[int]) -> None:
            size = abs(task.payload)
            async with task.children(inner if task.payload > 0 else leaves) as children:
                await children.put_many([tenure.Item(-size, name=str(number)) for number in range(size)])

        async def ping() -> None:
            while not is_over:
                began = time.perf_counter()
                await beside.get(record)
                seen.append(1000 * (time.perf_counter() - began))

        async with anyio.create_task_group() as group:
            group.start_soon(tenure.Worker(inner, grow, concurrency=10).run)
            group.start_soon(ping)
            for size in (3, width):
                root = await inner.put(size)
                while (await leaves.statistics()).waiting < size * size:  # noqa: ASYNC110 nothing tells of a put
                    await anyio.sleep(0.05)
                seen.clear()
                await inner.cancel(root)
                with suppress(tenure.TaskCancelled):
                    await inner.result(root)
            is_over = True
            group.cancel_scope.cancel()
    return sorted(seen)


def run(size: Size) -> Iterator[Row]:
    """Measure everything."""
    n = size.of(5, CHILDREN // 4, CHILDREN)
    work = f"a fan-out of {n:,} no-op children"
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        files = iter(range(1_000))
        for loop in size.loops:
            for engine in ("memory", "SQLite"):
                values: list[float] = []
                for _ in range(size.rounds):
                    url = "memory:" if engine == "memory" else f"sqlite:///{folder}/{next(files)}.db"
                    values.append(n / on_loop(loop, fan_out, url, n)[0])
                yield alone(f"{engine}: {work}", loop, values, unit="1/s")

        database = stack.enter_context(postgres())
        hold = partial(contest, work="fan_out", ours={"ours_children": CHILDREN}, size=size)
        goals = {"": ">= 5x"}
        beside = hold("children_redis", place=redis, timeout=60)
        yield from compared(f"Redis: {work}", beside, "children", goals=goals, who="ours_children")
        beside = hold("children_postgresql", place=database, timeout=60)
        yield from compared(f"PostgreSQL: {work}", beside, "children", goals=goals, who="ours_children")

        width = size.of(2, 30, 100)
        urls = {
            "SQLite": f"sqlite:///{folder}/tree.db",
            "Redis": f"unix://{stack.enter_context(redis())}",
            "PostgreSQL": stack.enter_context(database()),
        }
        for engine, url in urls.items():
            times = on_loop("asyncio", pings, url, width)
            tree = f"{engine}: another's read while a tree of {width} x {width} tasks is cancelled"
            p99 = times[int(0.99 * (len(times) - 1))]
            yield alone(f"{tree}, p99", "asyncio", [p99], unit="ms", goal="<= 25 ms")
            yield alone(f"{tree}, longest", "asyncio", [times[-1]], unit="ms", goal="<= 25 ms")
