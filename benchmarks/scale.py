"""How long others wait for a Redis server that has very much to keep, and how large its keys grow.

A private server gets 200,000 tasks in a hundred queues, twenty thousand limiters, locks and delayed tasks each, and
one lock with twenty thousand waiters; with TENURE_LONG=1 five times as much of all but the waiters. Then all of it is
used: listed, taken, handed on, purged, and given back by the end of sessions. Meanwhile another process pings the
server all the time. A figure stands beside its goal.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from statistics import median
from typing import Any, NamedTuple, cast

import anyio
import redis

from benchmarks._measure import LONG, Figure, Row, Size, row as beside
from benchmarks._redis_server import server
from tenure import engine as e
from tenure.engines.redis import RedisEngine
from tenure.engines.redis._scripts import SCRIPTS, script

TTL = 600.0
TOGETHER = 32  # small operations on the wire; of others, one is
SESSIONS = 50


class Amounts(NamedTuple):
    """How much there is of everything."""

    tasks: int = 1_000_000
    queues: int = 100
    limiters: int = 100_000
    locks: int = 100_000
    waiters: int = 20_000
    delayed: int = 100_000


SMALL = Amounts(600, 2, 50, 50, 50, 300)
MEDIUM = Amounts(20_000, 20, 2_000, 2_000, 1_000, 2_000)
LARGE = Amounts(200_000, 100, 20_000, 20_000, 20_000, 20_000)


class Load:
    """Fills a server, and uses what is there, by operations of the engine."""

    def __init__(self, engine: RedisEngine, size: Amounts) -> None:
        self._engine = engine
        self._size = size
        self._numbers = count(1)
        self._queues = [f"tenure:queue:work {n}" for n in range(size.queues)]
        self._sessions = [f"process/{n}" for n in range(SESSIONS)]

    async def ask(self, operations: Iterable[e.Operation[Any]], together: int = 1) -> list[Any]:
        """The final answers, of so many at a time."""
        answers: list[Any] = []
        left = list(operations)
        while left:
            some = left[:together]
            for operation, answer in zip(some, await self._engine.execute(some), strict=True):
                if isinstance(answer, Exception):
                    raise answer
                if answer is not e.Reply.MORE:
                    left.remove(operation)
                    answers.append(answer)
        return answers

    async def open(self) -> None:
        """Open the sessions that everything belongs to."""
        await self.ask(e.OpenSession(session, "process", TTL) for session in self._sessions)

    async def put_tasks(self) -> None:
        """The same number of tasks in each queue."""
        each = self._size.tasks // self._size.queues
        for queue in self._queues:
            await self.ask(self._puts(queue, each, 0.0))

    async def make_the_rest(self) -> None:
        """Limiters, locks, waiters and delayed tasks."""
        size, sessions = self._size, self._sessions
        spent = (e.SpendRequest((1.0,)),)
        spending = (
            e.Spend(sessions[n % SESSIONS], n, f"tenure:rate:user {n}", spent, (e.RateLimit("", 0.001, 1.0),))
            for n in range(size.limiters)
        )
        await self.ask(spending, TOGETHER)
        for key, number in (("tenure:lock:item {}", size.locks), ("tenure:lock:all", size.waiters)):
            acquiring = (
                e.Acquire(sessions[n % SESSIONS], key.format(n), f"holder {n}", 1) for n in range(number)
            )
            await self.ask(acquiring, TOGETHER)
        await self.ask(self._puts("tenure:queue:later", size.delayed, 20.0))

    def _puts(self, queue: str, tasks: int, delay: float) -> Iterator[e.Operation[Any]]:
        for start in range(0, tasks, e.CAP):
            n = next(self._numbers)
            some = (e.NewTask(b"x" * 55, delay=delay),) * min(e.CAP, tasks - start)
            yield e.Put(self._sessions[0], n, queue, (e.PutRequest(f"producer {n}", some),))

    async def use(self) -> None:
        """Look at everything, work some tasks off, hand on, and clear up."""
        looks = [
            e.Scan(e.TASKS[state], queue)
            for queue in self._queues
            for state in ("waiting", "delayed", "leased")
        ]
        await self.ask([*looks, *map(e.Count, self._queues), e.Scan(e.HOLDERS, "tenure:lock:all")])
        for kind in ("holds", "queues", "sessions"):
            await self.ask([e.Scan(e.NAMES[kind])])
        for queue in self._queues:
            (taken,) = await self.ask([self._exchange(queue, want=e.CAP)])
            done = tuple(e.Settle(task.id, task.token, e.Verdict.DONE, b"well") for task in taken.tasks)
            await self.ask([self._exchange(queue, done)])
        await self.ask(
            e.Release("tenure:lock:all", f"holder {n}") for n in range(min(1000, self._size.waiters))
        )
        await self._purge(self._queues[-1], "waiting")
        # those that come due all at once
        await anyio.sleep(20.0 if self._size.delayed > 10_000 else 0.0)
        await self.ask([self._exchange("tenure:queue:later", want=1), e.Count("tenure:queue:later")])
        await self._purge("tenure:queue:later", "delayed", "waiting")
        await self.ask(map(e.CloseSession, self._sessions))

    async def _purge(self, queue: str, *states: str) -> None:
        for state in states:
            while rows := (await self.ask([e.Scan(e.TASKS[state], queue)]))[0].rows:
                await self.ask([e.Move(queue, tuple(row.id for row in rows), "purged")])

    def _exchange(self, queue: str, settle: tuple[e.Settle, ...] = (), *, want: int = 0) -> e.Exchange:
        return e.Exchange(self._sessions[0], next(self._numbers), queue, settle, want)


@asynccontextmanager
async def serving(engine: RedisEngine) -> AsyncGenerator[None]:
    """The engine is connected."""

    def forget(_: e.Hint) -> None:
        pass

    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "process", forget)
        yield
        group.cancel_scope.cancel()


@contextmanager
def pinged(path: str) -> Generator[Callable[[], float]]:
    """Another process pings the server; returns a function that ends it and returns the longest delay, in seconds."""
    command = [sys.executable, "-m", "benchmarks.scale", path]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    output: list[bytes] = []
    yield lambda: json.loads(output[0])
    output.append(process.communicate(b"end")[0])


def ping(path: str) -> None:
    """Ping every two milliseconds until the input ends, and print the longest delay."""
    import threading

    client = redis.Redis(unix_socket_path=path)
    client.ping()  # pyright: ignore[reportUnknownMemberType]
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    print(flush=True)
    worst = 0.0
    while not ended.wait(0.002):
        began = time.perf_counter()
        client.ping()  # pyright: ignore[reportUnknownMemberType]
        worst = max(worst, time.perf_counter() - began)
    print(json.dumps(worst))


class Looks:
    """What an operator would look at."""

    def __init__(self, path: str) -> None:
        # no types: the client's own are incomplete
        self._client = cast(Any, redis.Redis(unix_socket_path=path))
        self._client.config_set("slowlog-log-slower-than", 1000)
        self._client.config_set("slowlog-max-len", 100_000)

    def slowest(self, when: str) -> list[dict[str, Any]]:
        """Rows about the scripts since the last look that took more than a millisecond.

        Most that take long have lost the processor meanwhile, so the median of each kind says more than the longest.
        """
        kinds: dict[tuple[bytes, bytes], list[float]] = {}
        for entry in self._client.slowlog_get(100_000):
            words = entry["command"].split(b" ", 7)
            if words[0] == b"EVALSHA":
                # a script, and the name of the operation if it has several
                kind = words[1], words[6] if words[6:] and words[6].isalpha() else b""
                kinds.setdefault(kind, []).append(entry["duration"] / 1e3)
        self._client.slowlog_reset()
        medians = {kind: median(seen) for kind, seen in kinds.items()} or {(b"", b""): 1.0}
        names = {one.sha: name for name in SCRIPTS if (one := script(name))}
        for kind, figure in sorted(medians.items(), key=lambda one: -one[1]):
            seen = kinds.get(kind, [1.0])
            name = f"{names.get(kind[0], '')} {kind[1].decode()}"
            print(f"  {name:20} {figure:.1f} ms in {len(seen)}, longest {max(seen):.1f}", file=sys.stderr)
        longest = max((max(seen) for seen in kinds.values()), default=1.0)
        return [
            row(f"{when}: the slowest kind of script, median", max(medians.values()), 5, "ms"),
            row(f"{when}: the longest script", longest, 5, "ms"),
        ]

    def largest(self) -> tuple[int, str]:
        """How many bytes the largest key takes, and its name."""
        found: tuple[int, str] = (0, "")
        some: list[bytes] = []
        for name in self._client.scan_iter(count=1000):
            some.append(name)
            if len(some) == 1000:
                found = max(found, self._largest_of(some))
                some.clear()
        return max(found, self._largest_of(some))

    def _largest_of(self, names: list[bytes]) -> tuple[int, str]:
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.memory_usage(name)
        sizes = pipe.execute()
        return max(
            ((size or 0, name.decode()) for size, name in zip(sizes, names, strict=True)), default=(0, "")
        )

    def memory(self) -> float:
        """How many bytes the server uses."""
        return self._client.info("memory")["used_memory"]


def row(work: str, figure: float, goal: float, unit: str) -> Row:
    """A figure beside its goal."""
    figures = {"ours": Figure([figure]), "goal": Figure([goal])}
    return beside(
        f"Redis: {work}",
        "asyncio",
        figures,
        "goal",
        unit=unit,
        less_is_better=True,
        goal=f"<= {goal:g} {unit}",
    )


async def measure(path: str, size: Amounts) -> list[Row]:
    """Fill the server, and use it."""
    rows: list[Row] = []
    engine, looks = RedisEngine(f"unix://{path}"), Looks(path)
    load = Load(engine, size)
    async with serving(engine):
        with pinged(path) as worst:
            await load.open()
            await load.put_tasks()
            largest = looks.largest()
            await load.make_the_rest()
        rows += looks.slowest("filling it")
        rows.append(row("filling it: the longest delay of another's PING", worst() * 1e3, 25, "ms"))
        work = f"the largest key, with {size.tasks:,} tasks in {size.queues} queues"
        rows.append(row(work, largest[0] / 1e6, 4, "MB"))
        for size_of, name in (largest, looks.largest()):
            print(f"  the largest key: {name}, {size_of / 1e6:.1f} MB", file=sys.stderr)
        print(f"  {looks.memory() / 1e6:.0f} MB in all", file=sys.stderr)
        with pinged(path) as worst:
            await load.use()
        rows += looks.slowest("using it")
        rows.append(row("using it: the longest delay of another's PING", worst() * 1e3, 25, "ms"))
    return rows


def run(size: Size) -> Iterator[Row]:
    """Measure everything."""
    with server() as path:
        yield from anyio.run(measure, path, size.of(SMALL, MEDIUM, Amounts() if LONG else LARGE))


if __name__ == "__main__":
    ping(sys.argv[1])
