"""Replaces a Redis primary by its replica so many times under load; says how long everybody had to wait.

    python -m benchmarks.soak sentinel --failovers 10

Three stores hand on locks and work off queues, and each operation waits for the replica. In turns the primary is
killed, and started again once the replica is promoted, or Sentinel is told to fail over. In the end everything is
counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from redis_servers import WatchedRedis

import tenure
from benchmarks.soak.load import Load, Place, until
from tenure.engines.redis import RedisEngine

PLACES = 4


async def run(watched: WatchedRedis, options: argparse.Namespace) -> list[str]:
    load = Load([Place(f"lock {n}", f"queue {n}", f"rate {n}") for n in range(PLACES)], options.pace)
    async with AsyncExitStack() as stack:
        stores = []
        for _ in range(3):
            engine = RedisEngine(
                f"{watched.url}?replicas={options.replicas}", response_timeout=options.response_timeout
            )
            store = tenure.open_store(engine, ttl=options.ttl, observer=load)
            stores.append(await stack.enter_async_context(store))
        async with anyio.create_task_group() as group:
            load.start(group, stores)
            await load.waited()
            await measure(load, "before", anyio.sleep, 3)
            for number in range(options.failovers):
                act = failover if number % 2 else kill
                await measure(load, f"{number + 1}: {act.__doc__}", act, watched)
            wrong = await load.end(stores[0], options.histories, "sentinel")
            group.cancel_scope.cancel()
    print(
        f"{load.did['holds']} holds, {load.did['tasks']} tasks, "
        f"{load.did['puts repeated']} puts repeated, lost: {dict(load.lost)}"
    )
    return wrong


async def measure(load: Load, name: str, act, *arguments) -> None:
    load.forget()
    began = time.monotonic()
    said = await act(*arguments)
    took = time.monotonic() - began
    await load.waited()
    longest = 1000 * max(load.longest.values())
    told = f"; {said}" if said else ""
    print(f"{name} ({took:.2f} s): longest wait {longest:,.0f} ms{told}", flush=True)


async def kill(watched: WatchedRedis) -> str:
    """the primary is killed"""
    old, new = parts(watched)
    began = time.monotonic()
    old.kill()
    await until(lambda: is_primary(new))
    promoted = time.monotonic() - began
    await anyio.to_thread.run_sync(old.start)
    await until(lambda: follows(old))
    return f"promoted after {promoted:.2f} s, the killed one is its replica after {time.monotonic() - began:.2f} s"


async def failover(watched: WatchedRedis) -> str:
    """SENTINEL FAILOVER"""
    old, new = parts(watched)
    began = time.monotonic()
    # it refuses while it has not seen all of the last one
    await until(lambda: watched.sentinels[0]._ask("SENTINEL", "FAILOVER", "jobs") == b"OK")
    accepted = time.monotonic() - began
    await until(lambda: is_primary(new))
    promoted = time.monotonic() - began
    await until(lambda: follows(old))
    return (
        f"accepted after {accepted:.2f} s, promoted after {promoted:.2f} s, "
        f"the former one is its replica after {time.monotonic() - began:.2f} s"
    )


def parts(watched: WatchedRedis):
    """The primary and its replica."""
    return sorted(watched.servers, key=is_primary, reverse=True)


def is_primary(server) -> bool:
    return b"role:master" in replication_of(server)


def follows(server) -> bool:
    return b"master_link_status:up" in replication_of(server)


def replication_of(server) -> bytes:
    # Sentinel closes the connections of a server whose role it changes
    return server._ask("INFO", "replication") or b""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak sentinel", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--failovers", type=int, default=10)
    add(
        "--replicas",
        type=int,
        choices=[0, 1],
        default=1,
        help="with 0 the last writes may be lost, as documented",
    )
    add("--ttl", type=float, default=60.0)
    add("--pace", type=float, default=0.05, help="seconds that each task of the load rests")
    add("--down-after", type=float, default=2.0, help="down-after-milliseconds in seconds; Redis has 30")
    add("--response-timeout", type=float, default=5.0)
    add("--histories", type=Path, metavar="FOLDER", help="keep the histories, for benchmarks.soak.check")
    options = parser.parse_args(arguments)
    # the path of a socket has to be short
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        watched = WatchedRedis(folder)
        try:
            for sentinel in watched.sentinels:
                down = str(round(1000 * options.down_after))
                sentinel("SENTINEL", "SET", "jobs", "down-after-milliseconds", down)
            print(f"Redis {'.'.join(map(str, watched.servers[0].version))}", vars(options), flush=True)
            wrong = anyio.run(run, watched, options)
        finally:
            for one in watched.processes:
                one.kill()
    print(f"{len(wrong)} violations")
    print(*wrong[:20], sep="\n\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
