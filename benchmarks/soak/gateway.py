"""Kills the workers of the tutorial's gateway while they call a provider that enforces its limits.

    python -m benchmarks.soak gateway --store redis --calls 100000 --kills 100      # or sqlite

The provider has two limits for each key, counts each call that exceeds one, and refuses one call of five hundred as if
others used the key too ("429"). A call that begins after the hold-off that follows is counted as well. In the end each
prompt has one answer on record.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream
from redis_servers import RedisServer

from benchmarks.soak import evidence
from benchmarks.soak.fleet import Fleet

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))
import step10_gateway as step

import tenure

REACHED = 0.25
"""Seconds until a hint has reached all processes of a busy machine."""
LOOPS = ("asyncio", "trio", "uvloop")


class GatewayFleet(Fleet):
    """As `Fleet`, of `gateway_client.py`."""

    client = Path(__file__).with_name("gateway_client.py")


class Provider:
    """Enforces the limits of each key; it allows at once what comes within a second."""

    def __init__(self, settings: dict[str, Any], chance: random.Random, refusals: float) -> None:
        self.requests, self.tokens = settings["REQUESTS"], settings["TOKENS"]
        self.calls = self.refused = 0
        self.violations: list[str] = []
        self._chance, self._refusals = chance, refusals
        now = time.monotonic()
        self._left = defaultdict(lambda: (self.requests, self.tokens, now))
        self._until: dict[str, float] = defaultdict(float)
        self._held: dict[str, tuple[float, float]] = {}

    async def serve(self, stream: SocketStream) -> None:
        rest = b""
        try:
            async with stream:
                async for data in stream:
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        await stream.send(json.dumps(self._answer(json.loads(line))).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # it was killed

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        number = {"number": question["number"]}
        if key := question.get("held"):
            since, until = self._held.get(key, (question["at"], 0.0))
            self._held[key] = (question["at"] if until < question["at"] else since, self._until[key])
            return number
        key, now = question["call"], time.monotonic()
        since, until = self._held.get(key, (0.0, 0.0))
        if since + REACHED < question["began"] < until:
            self.violations.append(
                f"{key}: a call began {question['began'] - since:.3f} s after its hold-off"
            )
        if self._chance.random() < self._refusals:
            self.refused += 1
            seconds = self._chance.uniform(0.1, 1)
            self._until[key] = max(self._until[key], now + seconds)
            return {**number, "retry_after": seconds}
        self.calls += 1
        used = self._chance.randint(1, step.MOST)
        requests, tokens, before = self._left[key]
        requests = min(self.requests, requests + (now - before) * self.requests) - 1
        tokens = min(self.tokens, tokens + (now - before) * self.tokens) - used
        self._left[key] = (requests, tokens, now)
        if requests < 0 or tokens < 0:
            self.violations.append(f"{key}: {requests:.1f} requests and {tokens:.1f} tokens were left")
        return {**number, "tokens": used}


async def soak(url: str, folder: Path, options: argparse.Namespace) -> list[str]:
    chance = random.Random(options.seed)
    settings = {
        "KEYS": [f"key-{n}" for n in range(4)],
        "REQUESTS": options.rate,
        "TOKENS": options.rate * step.MOST / 2,
    }
    for name, value in settings.items():
        setattr(step, name, value)
    provider = Provider(settings, chance, 0.002)
    fleet, loops, kills, began = GatewayFleet(folder), cycle(LOOPS), 0, time.monotonic()
    job = {"url": url, "ttl": 2.0, "provider": str(folder / "provider"), "settings": settings}
    async with tenure.open_store(url, ttl=5) as store, anyio.create_task_group() as group:
        listener = await anyio.create_unix_listener(folder / "provider")
        group.start_soon(listener.serve, provider.serve)
        gateway = step.Gateway(store, step.Provider())
        await gateway.begin()
        for _ in LOOPS:
            fleet.start(**job, loop=next(loops))
        numbers = range(options.calls)
        group.start_soon(
            gateway.queue.put_many,
            [tenure.Item(f"prompt {n}", group=chance.choice(("gold", "ann", "bob", "cy"))) for n in numbers],
        )
        done = ended = 0
        while ended < options.calls and not provider.violations:
            await anyio.sleep(0.1)
            counted = await gateway.queue.statistics()
            done, ended = counted.done, counted.put - counted.unfinished
            if kills < options.kills * done / options.calls:
                kills += 1
                fleet.kill(chance.choice(sorted(fleet.running)))
                fleet.start(**job, loop=next(loops))
        wrong = [*provider.violations, *(await gateway.queue.verify()).problems]
        if counted.put != counted.done and not wrong:
            wrong.append(f"not each prompt has one answer: {counted}")
        group.cancel_scope.cancel()
    fleet.close()
    if options.record:
        evidence.put_on_record(seed=options.seed, kills=kills, tasks=done, violations=len(wrong))
    print(
        f"{provider.calls} calls for {done} answers in {time.monotonic() - began:.0f} s, {provider.refused} "
        f'refused with "429", {kills} kills'
    )
    return wrong


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak gateway", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--store", choices=["redis", "sqlite"], default="redis")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rate", type=int, default=300, help="requests a second with each of four keys")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--record", action="store_true", help="add the run to recorded.jsonl")
    options = parser.parse_args(arguments)
    # the path of a socket has to be short
    with tempfile.TemporaryDirectory(prefix="soak") as name:
        folder = Path(name)
        print(vars(options), flush=True)
        if options.store == "sqlite":
            wrong = anyio.run(soak, f"sqlite:///{folder}/gateway.db", folder, options)
        else:
            (folder / "redis").mkdir()
            server = RedisServer(folder / "redis")
            server.start()
            try:
                wrong = anyio.run(soak, server.url, folder, options)
            finally:
                server.kill()
    print(f"{len(wrong)} violations")
    for one in wrong[:20]:
        print(one)
    return 1 if wrong else 0
