"""A Redis lock from hand to hand: how fast, in which order and at what cost to the server, and what cancelling leaves.

redis-py and coredis (where it is installed) ask again every 0.1 s. A lock goes from one to the next among 1,000 who
wait in four processes, and holding takes no time, so that all there is to see is the handing over: the time from
leaving the block to entering the next, wherever that is. Times are also given in round trips of a PING, by the same
library in a process that does nothing else.

    python -m benchmarks.redis_handover CONTESTANT LOOP PATH WAITERS MOST      # one of those processes
"""

from __future__ import annotations

import importlib
import json
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count, pairwise
from statistics import median
from typing import Any

import anyio
import hiredis

from benchmarks._measure import LONG, MISSING, NOBODY, Figure, Row, Size, alone, in_turn, on_loop, row
from benchmarks._redis_server import server

NAME = "report"
LINE = f"tenure:{{0}}:tenure:lock:{NAME}:waiting"  # where ours keeps those who wait
# coredis may need other versions than the rest: then run this where it is alone
CONTESTANTS = ("ours", "redis-py", *(["coredis"] if find_spec("coredis") else []))
PEER_SECONDS = 1.0  # for which peers hand on: all 1,000 would take them most of a minute
Locks = Callable[[str], AbstractAsyncContextManager[Any]]
Ping = Callable[[], Awaitable[Any]]


# ------------------------------------------------------------------------------------------------------ the server


class Server:
    """What the server says of itself."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, *command: str) -> Any:
        """The reply to a command."""
        reader = hiredis.Reader()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._path)
            connection.sendall(hiredis.pack_command(command))
            while (reply := reader.gets()) is False:
                reader.feed(connection.recv(1 << 16))
        return reply

    def info(self, section: str) -> dict[str, str]:
        """A section of the server's INFO."""
        lines = self("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def cpu(self) -> float:
        """Seconds that it has used so far."""
        info = self.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def calls(self, *commands: str) -> int:
        """How often these were called since the statistics were reset."""
        info = self.info("commandstats")
        counts = (info.get(f"cmdstat_{command}", "calls=0") for command in commands)
        return sum(int(each.split(",")[0].partition("=")[2]) for each in counts)

    def executing(self, *commands: str) -> float:
        """Seconds that these took to execute since then, without reading, writing and waking."""
        info = self.info("commandstats")
        counts = (info.get(f"cmdstat_{command}", "calls=0,usec=0") for command in commands)
        return sum(int(each.split(",")[1].partition("=")[2]) for each in counts) / 1e6

    def clients(self) -> int:
        """How many are connected, besides this."""
        return int(self.info("clients")["connected_clients"]) - 1

    def waiting(self) -> int:
        """How many stand in our line."""
        return int(self("ZCARD", LINE))

    def line(self) -> list[tuple[int, int]]:
        """Who stand in our line, in order: the process, and the how manieth of it."""
        places = self("ZRANGE", LINE, "0", "-1")
        found = [re.search(rb":(\d+):\w+/\d+\.(\d+)$", place) for place in places]
        attempts = [(int(each[1]), int(each[2])) for each in found if each]
        first = {pid: min(n for p, n in attempts if p == pid) for pid in {pid for pid, _ in attempts}}
        return [(pid, n - first[pid]) for pid, n in attempts]


# -------------------------------------------------------------------------------------------------- the contestants


@asynccontextmanager
async def opened(who: str, url: str, ttl: float = 30.0) -> AsyncGenerator[tuple[Locks, Ping]]:
    """A maker of locks, and a round trip to the server."""
    # each process imports what it needs
    if who == "ours":
        import tenure

        async with tenure.open_store(url, ttl=ttl) as store:
            yield (lambda name: tenure.Lock(store, name)), store.ping
    elif who == "redis-py":
        from redis.asyncio import Redis

        # it refuses callers beyond a hundred otherwise
        async with Redis.from_url(url, max_connections=10_000) as client:
            yield (lambda name: client.lock(name, timeout=ttl)), client.ping
    else:
        from coredis import Redis as Coredis
        from coredis.patterns.lock import Lock

        async with Coredis.from_url(url) as other:
            yield (lambda name: Lock(other, name, timeout=ttl)), other.ping


def failures(who: str) -> tuple[type[Exception], ...]:
    """What a peer raises when the link fails, or its lock is not its own any more."""
    if who == "ours":
        return ()
    module = "redis.exceptions" if who == "redis-py" else "coredis.exceptions"
    return (importlib.import_module(module).RedisError,)


async def round_trip(who: str, path: str, times: int) -> float:
    """Seconds of a PING, the median."""
    async with opened(who, f"unix://{path}") as (_, ping):
        took = []
        for _ in range(times):
            start = time.perf_counter()
            await ping()
            took.append(time.perf_counter() - start)
    return median(took)


# ---------------------------------------------------------------------------------------------------- handing over


async def wait_in_line(who: str, path: str, waiters: int, most: int) -> None:
    """The work of one process: so many wait for the lock; reports each holder and its times, until it is asked to end.

    What comes after `most` holds is held for good, so that the others wait on.
    """
    holds: list[tuple[int, float, float]] = []
    numbers = count()
    # so long that no lease is lost while 100,000 tasks take their first step
    async with opened(who, f"unix://{path}", 300.0) as (lock, _), anyio.create_task_group() as group:

        async def wait() -> None:
            number = next(numbers)
            served = False
            while not served:
                # a peer's connection may time out where so many are made
                with suppress(*failures(who)):
                    async with lock(NAME):
                        since = time.monotonic()
                        if len(holds) >= most:
                            await anyio.sleep_forever()
                        holds.append((number, since, time.monotonic()))
                        served = True

        async def end() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                print("ready", flush=True)
                async for _ in signals:
                    print(json.dumps(holds), flush=True)
                    os._exit(0)

        # opens what is opened at the first use
        async with lock(f"{NAME} {random.random()}"):
            pass
        group.start_soon(end)
        for _ in range(waiters):
            group.start_soon(wait)


@dataclass
class Handed:
    """How a lock went from hand to hand.

    `times` in seconds; `overtaken` is how often somebody was served before one who had come earlier; seconds of the
    server's CPU, those of them in commands, commands and messages for each time; sockets of each process.
    """

    times: list[float]
    overtaken: int
    cpu: float
    executing: float
    commands: float
    messages: float
    sockets: float


def hand_over(
    who: str, loop: str, path: str, *, processes: int, waiters: int, most: int, seconds: float = 0
) -> Handed:
    """Let `waiters` in so many processes hand a lock on: `most` times, or for `seconds`."""
    ask = Server(path)
    ask("FLUSHALL")
    ask("CONFIG", "RESETSTAT")
    command = [sys.executable, "-m", "benchmarks.redis_handover", who, loop, path]
    command += [str(waiters // processes), str(most)]
    children: list[subprocess.Popen[str]] = []

    def start() -> None:
        children.extend(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)
        )
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()

    held: list[tuple[float, float, int, int]] = []
    try:
        # who opens the gate is on a loop that all contestants have
        left = max(0, waiters - most - 1)
        line, sockets, cpu, executing = anyio.run(gate, who, path, start, processes, waiters, left, seconds)
        for child in children:
            child.send_signal(signal.SIGTERM)
            holds = json.loads(child.communicate()[0])
            held += [(since, until, child.pid, number) for number, since, until in holds]
    finally:
        for child in children:
            child.kill()
            child.wait()
    held.sort()
    served = max(len(held), 1)
    order = [(pid, number) for *_, pid, number in held]
    # of peers, who came first is known within each process alone
    lines = [line] if line else [[(child.pid, n) for n in range(waiters // processes)] for child in children]
    # those who still wait have sent theirs as well
    commands = ask.calls("evalsha", "set") - (waiters - served if who == "ours" else 0)
    return Handed(
        # longer than that, if it did not happen
        times=[later[0] - sooner[1] for sooner, later in pairwise(held)] or [seconds],
        overtaken=sum(overtakings(order, line) for line in lines),
        cpu=cpu / served,
        executing=executing / served,
        commands=commands / served,
        messages=ask.calls("publish") / served,
        sockets=sockets,
    )


async def gate(
    who: str, path: str, children: Callable[[], None], processes: int, waiters: int, left: int, seconds: float
) -> tuple[list[tuple[int, int]], float, float, float]:
    """Hold the lock until all wait for it, and watch until `left` of them do, or for some seconds.

    Gives the line as the server had it, the sockets of a process, and the seconds of CPU that the server took, in all
    and in commands.
    """
    ask = Server(path)
    async with opened(who, f"unix://{path}", 300.0) as (lock, _):
        async with lock(NAME):
            children()
            if who == "ours":
                while ask.waiting() < waiters:  # noqa: ASYNC110 the server has no event for it
                    await anyio.sleep(0.05)
            else:
                await anyio.sleep(seconds / 4)
            line, sockets = ask.line(), (ask.clients() - 1) / processes
            before, executed = ask.cpu(), ask.executing("evalsha", "set")
        if who == "ours":
            while ask.waiting() > left:  # noqa: ASYNC110 the server has no event for it
                await anyio.sleep(0.02)
        else:
            await anyio.sleep(seconds)
        return line, sockets, ask.cpu() - before, ask.executing("evalsha", "set") - executed


def overtakings(order: list[tuple[int, int]], line: list[tuple[int, int]]) -> int:
    """How many of a line were served before one who stood before them."""
    places = set(line)
    waiting = iter(line)
    head = next(waiting)
    served: set[tuple[int, int]] = set()
    passed = 0
    for one in filter(places.__contains__, order):
        while head in served:
            head = next(waiting)
        passed += one != head
        served.add(one)
    return passed


# ---------------------------------------------------------------------------------------- renewing, cancelling, losing


async def renewal(who: str, path: str, leases: int) -> float:
    """Commands to renew so many leases once."""
    ask, ttl = Server(path), 0.5 if leases <= 100 else 3.0
    async with opened(who, f"unix://{path}", ttl) as (lock, _), AsyncExitStack() as stack:
        locks = [lock(f"lease {n}") for n in range(leases)]
        for one in locks:
            await stack.enter_async_context(one)
        ask("CONFIG", "RESETSTAT")
        if who == "ours":
            # they are renewed three times within a ttl
            await anyio.sleep(ttl)
            return ask.calls("evalsha") / 3
        for one in locks:
            await one.extend(int(ttl * 1000) if who == "coredis" else ttl)
        return ask.calls("evalsha")


async def orphans(who: str, path: str, cancelled: int) -> float:
    """How many of 100,000 cancelled acquires leave something behind, from a sample."""
    ask, tasks, failed = Server(path), 100, failures(who)
    ask("FLUSHALL")
    async with opened(who, f"unix://{path}") as (lock, ping):

        async def work(n: int) -> None:
            times, longest = 0, 0.004
            numbers = count()
            while times < cancelled // tasks:
                with anyio.move_on_after(random.uniform(0, longest)) as scope, suppress(*failed):
                    async with lock(f"lock {n} {next(numbers)}"):
                        scope.deadline = math.inf
                times += scope.cancelled_caught
                # so that about half of them end before they have the lock, however long that takes
                longest *= 1.25 if scope.cancelled_caught else 0.8

        async with anyio.create_task_group() as group:
            for n in range(tasks):
                group.start_soon(work, n)
        # a cancelled caller sends what it gives back without waiting; that goes before this
        await ping()
    left = set(ask("KEYS", "tenure:*" if who == "ours" else "lock *")) - {b"tenure:{0}:state"}
    return len(left) / (cancelled // tasks * tasks) * 100_000


async def lost_reply(who: str, path: str, ttl: float) -> tuple[float, int]:
    """Seconds to acquire a free lock when the first reply is lost, and how many commands it took besides the first."""
    from tenure.testing import FaultProxy

    ask = Server(path)
    async with FaultProxy(path) as proxy, opened(who, f"redis://{proxy.host}:{proxy.port}", ttl) as (lock, _):
        async with lock("other"):
            pass
        ask("CONFIG", "RESETSTAT")
        proxy.lose_reply()
        start = time.perf_counter()
        while True:
            # a caller that gets the failure tries again
            with suppress(*failures(who)):
                async with lock(NAME):
                    # the scripts of ours call SET as well; counted are those of the new connection, too
                    return time.perf_counter() - start, ask.calls("evalsha" if who == "ours" else "set") - 1


# -------------------------------------------------------------------------------------------------------- the table


def rows_of(work: str, loop: str, figures: Mapping[str, Figure], unit: str, goal: str) -> Iterator[Row]:
    """Ours beside each peer; less is better, and may be nothing."""
    for name in [name for name in figures if name != "ours"] or [NOBODY]:
        yield row(work, loop, {NOBODY: MISSING, **figures}, name, unit=unit, less_is_better=True, goal=goal)


def loop_of(who: str, loop: str) -> str:
    """redis-py runs on asyncio alone: on trio it is the same figure."""
    return "asyncio" if who == "redis-py" and loop == "trio" else loop


def p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


def handing_over(loop: str, path: str, size: Size) -> Iterator[Row]:
    processes, waiters, seconds = size.of((1, 10, 0.2), (2, 200, 0.5), (4, 1000, PEER_SECONDS))

    def measure(who: str, on: str) -> dict[str, Any]:
        ping = on_loop(on, round_trip, who, path, size.of(20, 200, 2000))
        handed = hand_over(who, on, path, processes=processes, waiters=waiters, most=waiters, seconds=seconds)
        return {"ping": ping, "handed": handed}

    contestants = [(who, loop_of(who, loop)) for who in who_runs(size)]
    runs = in_turn(contestants, measure, size.of(1, 1, 2))
    seen = {who: results for (who, _), results in runs.items()}

    def rows(work: str, figure: Callable[[Handed, float], float], unit: str, goal: str) -> Iterator[Row]:
        figures = {
            who: Figure([figure(result["handed"], result["ping"]) for result in results])
            for who, results in seen.items()
        }
        return rows_of(work, loop, figures, unit, goal)

    yield from rows("Redis: PING, nothing else", lambda _, ping: 1e6 * ping, "us", "")
    work = f"hand-over, {waiters:,} waiters, {processes} processes"
    yield from rows(f"{work}: median", lambda h, _: 1e6 * median(h.times), "us", "")
    yield from rows(f"{work}: p99", lambda h, _: 1e6 * p99(h.times), "us", "")
    yield from rows(f"{work}: median in PINGs", lambda h, ping: median(h.times) / ping, "PING", "<= 5")
    yield from rows(f"{work}: p99 in PINGs", lambda h, ping: p99(h.times) / ping, "PING", "<= 10")
    yield from rows(f"{work}: server, executing", lambda h, _: 1e6 * h.executing, "us", "<= 30 us")
    yield from rows(f"{work}: server, all CPU", lambda h, _: 1e6 * h.cpu, "us", "")
    yield from rows(f"{work}: commands and messages", lambda h, _: h.commands + h.messages, "", "2 + 1")
    yield from rows(f"{work}: overtakings", lambda h, _: h.overtaken, "", "0")
    yield from rows(f"{work}: sockets a process", lambda h, _: h.sockets, "", "1")


def growing(loop: str, path: str, size: Size) -> Iterator[Row]:
    """Many more waiters must cost no more."""
    amounts: list[int] = size.of([], [1000], [1000, 10_000, 100_000] if LONG else [1000, 10_000])
    for waiters in amounts:
        handed = hand_over("ours", loop, path, processes=1, waiters=waiters, most=900)
        for what, unit, figure, goal in (
            ("server, executing", "us", 1e6 * handed.executing, "<= 30 us, flat"),
            ("server, all CPU", "us", 1e6 * handed.cpu, "flat"),
            ("median", "us", 1e6 * median(handed.times), "flat"),
            ("overtakings", "", handed.overtaken, "0"),
        ):
            yield alone(f"hand-over, 1 process: {what}", loop, [figure], unit=unit, goal=goal, x=waiters)


def who_runs(size: Size) -> list[str]:
    if not size.peers:
        return ["ours"]
    return list(CONTESTANTS[:2] if size.smoke else CONTESTANTS)


def run(size: Size) -> Iterator[Row]:
    contestants = who_runs(size)
    leases, cancelled, ttl = size.of((20, 100, 0.5), (100, 2_000, 0.5), (1000, 10_000, 1.0))
    with server() as path:
        for loop in size.loops:
            yield from handing_over(loop, path, size)

            def each(
                function: Callable[..., Awaitable[Any]], *amounts: Any, loop: str = loop
            ) -> dict[str, Any]:
                return {
                    who: on_loop(loop_of(who, loop), function, who, path, amount)
                    for who, amount in zip(contestants, amounts, strict=False)
                }

            def rows(
                work: str, figures: Mapping[str, float], unit: str, goal: str, loop: str = loop
            ) -> Iterator[Row]:
                return rows_of(work, loop, {who: Figure([f]) for who, f in figures.items()}, unit, goal)

            yield from rows(f"renewing {leases:,} leases: commands", each(renewal, *(leases,) * 3), "", "1")
            # a smaller sample is enough for a peer; coredis is left out: it may wait for ever after its callers are
            # cancelled
            amounts = cancelled, min(cancelled, 4000)
            yield from rows("left of 100,000 cancelled acquires", each(orphans, *amounts), "", "0")
            lost = each(lost_reply, *(ttl,) * 3)
            work = f"lost reply on a free lock, ttl {ttl:g} s"
            yield from rows(work, {who: took for who, (took, _) in lost.items()}, "s", "")
            yield from rows(
                f"{work}: commands besides the first", {who: n for who, (_, n) in lost.items()}, "", "<= 2"
            )
        yield from growing("asyncio", path, size)


if __name__ == "__main__":
    _, contestant, its_loop, socket_path, waiting, limit = sys.argv
    on_loop(its_loop, wait_in_line, contestant, socket_path, int(waiting), int(limit))
