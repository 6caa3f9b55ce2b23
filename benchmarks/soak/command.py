"""The command line of a soak that works on one store: on a private server, or in a file."""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import anyio
from redis_servers import RedisServer, WatchedRedis

from benchmarks._postgres_server import server as postgres_server

Soak = Callable[[str, Path, argparse.Namespace], Awaitable[list[str]]]
"""Works on the store of that URL, in a folder of its own, and returns the violations."""


def run(name: str, doc: str, soak: Soak, arguments: list[str], **counts: int) -> int:
    """Run a soak; `counts` are the options that are numbers, with their defaults.

    With the store "sentinel", `options.watched` has the servers, of which each write waits for the replica.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.soak {name}", description=doc.splitlines()[0]
    )
    parser.add_argument("--store", choices=["redis", "sqlite", "postgres", "sentinel"], default="redis")
    for option, default in counts.items():
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--histories", type=Path, metavar="FOLDER", help="keep the histories, for benchmarks.soak.check"
    )
    parser.add_argument("--record", action="store_true", help="add the run to recorded.jsonl")
    options = parser.parse_args(arguments)
    print(vars(options), flush=True)
    # the path of a socket has to be short
    with tempfile.TemporaryDirectory(prefix="soak") as place, ExitStack() as stack:
        folder = Path(place)
        if options.store == "sqlite":
            url = f"sqlite:///{folder}/store.db"
        elif options.store == "postgres":
            url = stack.enter_context(stack.enter_context(postgres_server())())
        elif options.store == "sentinel":
            (folder / "redis").mkdir()
            options.watched = watched = WatchedRedis(folder / "redis")
            for server in watched.processes:
                stack.callback(server.kill)
            for one in watched.sentinels:
                # a primary that is only slow stays
                one("SENTINEL", "SET", "jobs", "down-after-milliseconds", "2000")
            url = f"{watched.url}?replicas=1"
        else:
            (folder / "redis").mkdir()
            server = RedisServer(folder / "redis")
            server.start()
            stack.callback(server.kill)
            url = server.url
        wrong = anyio.run(soak, url, folder, options)
    print(f"{len(wrong)} violations")
    for violation in wrong[:20]:
        print(violation)
    return 1 if wrong else 0
