"""Moves a shard of a Redis Cluster, and kills its node, under load; says how long who had to wait.

    python -m benchmarks.soak resharding --megabytes 500

Three stores hand on locks and work off queues in all shards. One shard is filled: tasks with payloads of 1 to 4 KB in
100 queues, 100,000 delayed tasks in one queue, 5,000 sessions with a lock each (fewer of both below 500 MB). Then its
slot moves to another node as `redis-cli --cluster reshard` moves it: SETSLOT, and MIGRATE of some keys at a time. With
`--replicas 1` each node has a replica, on which every operation waits, and afterwards the shard's node is replaced by
its replica twice: as planned, and when it is killed. In the end everything is counted.
"""

from __future__ import annotations

import argparse
import base64
import gc
import random
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from itertools import count, islice
from pathlib import Path

import anyio
from redis_servers import RedisCluster

import tenure
from benchmarks.soak.load import Load, Place, until
from tenure.engine import Acquire, Granted, OpenSession, Release, RenewSession, Reply
from tenure.engines.redis import RedisClusterEngine
from tenure.engines.redis._shards import shard_of, slot_of, tags

QUEUES = 100
SHARD = 1
"""The one that is filled and moved; the first node has it."""

LARGE = 1 << 20
LISTED = 1000


def payload(number: int) -> list[object]:
    """What the task with that number carries: 1 to 4 KB of text that no compression makes smaller."""
    chance = random.Random(number)
    return [number, base64.b64encode(chance.randbytes(chance.randrange(768, 3072))).decode()]


class Resharding:
    """The work of one run, as `options` say; `cluster` has its three nodes and their replicas."""

    def __init__(self, cluster: RedisCluster, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._options = options
        self._slot = slot_of(tags(options.shards)[SHARD])
        self._load = Load([self._place(shard) for shard in range(options.shards)], options.pace)
        self._put = count(1)
        self._sessions: list[str] = []
        self._wrong: list[str] = []

    def _in(self, shard: int, words: str, key: str):
        """Names that lie in a shard; `key` is what the engine knows them by."""
        names = (f"{words} {number}" for number in count())
        return (name for name in names if shard_of(key.format(name), self._options.shards) == shard)

    def _place(self, shard: int) -> Place:
        kinds = ("lock", "queue", "rate")
        return Place(*(next(self._in(shard, kind, f"tenure:{kind}:{{}}")) for kind in kinds))

    async def run(self) -> list[str]:
        options, load = self._options, self._load
        async with AsyncExitStack() as stack:
            stores = []
            for _ in range(3):
                url = f"{self._cluster.url}?replicas={options.replicas}&shards={options.shards}"
                engine = RedisClusterEngine(url, response_timeout=options.response_timeout)
                store = tenure.open_store(engine, ttl=options.ttl, observer=load)
                stores.append(await stack.enter_async_context(store))
            for kind, name in zip(("lock", "queue"), load.places[SHARD], strict=False):
                assert shard_of(stores[0]._handle.key(kind, name), options.shards) == SHARD
            began = time.monotonic()
            await self._fill(stores[0], engine)
            print(
                f"filled in {time.monotonic() - began:.0f} s:", await anyio.to_thread.run_sync(self._filled)
            )
            gc.collect()
            gc.freeze()
            async with anyio.create_task_group() as group:
                load.start(group, stores)
                await load.waited()
                await self._phase("before", anyio.sleep, options.seconds)
                await self._phase("moved", anyio.to_thread.run_sync, self._move)
                if options.replicas:
                    for _ in range(options.failovers):
                        await self._phase("failover, planned", self._failover)
                        await self._phase("failover, killed", self._kill)
                await self._phase("after", anyio.sleep, options.seconds)
                self._wrong += await load.end(stores[0], options.histories, "resharding")
                group.cancel_scope.cancel()
            await self._count(stores[0], engine)
        print(
            f"{load.did['holds']} holds, {load.did['tasks']} tasks, "
            f"{load.did['puts repeated']} puts repeated, lost: {dict(load.lost)}"
        )
        return self._wrong

    # what is there

    async def _fill(self, store, engine) -> None:
        megabytes = self._options.megabytes
        before = self._used()
        sessions = self._in(SHARD, "session", "{}")
        self._sessions = list(islice(sessions, min(5000, 10 * megabytes)))
        for part in _parts(self._sessions, 250):
            opened = await engine.execute([OpenSession(one, "filler", 3600) for one in part])
            taken = await engine.execute([Acquire(one, self._held(one), one, 1) for one in part])
            assert set(opened) == {Reply.OK}
            assert all(isinstance(answer, Granted) for answer in taken)
        names = self._in(SHARD, "filled", "tenure:queue:{}")
        self._queues = [tenure.WorkQueue(store, next(names), max_size=10**6) for _ in range(QUEUES)]
        delayed = min(100_000, 200 * megabytes)
        items = [tenure.Item([next(self._put), ""], delay=86400) for _ in range(delayed)]
        async with anyio.create_task_group() as group:
            for part in _parts(items, 10_000):
                group.start_soon(self._queues[0].put_many, part)
        while self._used() - before < megabytes * 1e6:
            async with anyio.create_task_group() as group:
                for queue in random.sample(self._queues, 4):
                    group.start_soon(queue.put_many, [payload(n) for n in islice(self._put, 64)])

    def _held(self, session: str) -> str:
        return next(self._in(SHARD, session, "{}"))

    def _used(self) -> int:
        info = self._node()("INFO", "memory").decode()
        return int(info.partition("used_memory:")[2].split()[0])

    def _node(self):
        return self._cluster.nodes[self._cluster.home_of(self._slot)]

    def _filled(self) -> str:
        """Tell what is in the shard."""
        node = self._node()
        keys = node("CLUSTER", "GETKEYSINSLOT", str(self._slot), "100000000")
        sizes = {}
        for part in _parts(keys, LISTED):
            asked = [("MEMORY", "USAGE", key, "SAMPLES", "0") for key in part]
            sizes |= zip(part, node.ask_all(asked), strict=True)
        self._large = {key for key, size in sizes.items() if size > LARGE}
        largest = max(sizes, key=sizes.get)
        return (
            f"{len(keys):,} keys, {sum(sizes.values()) / 1e6:.0f} MB, {len(self._sessions):,} sessions, "
            f"largest key {largest.decode()} {sizes[largest] / 1e6:.1f} MB"
        )

    # what is done

    async def _phase(self, name: str, act, *arguments) -> None:
        load, cluster = self._load, self._cluster
        home = await anyio.to_thread.run_sync(cluster.home_of, self._slot)
        load.forget()
        began = time.monotonic()
        said = await act(*arguments)
        took = time.monotonic() - began
        await load.waited()
        homes = [cluster.home_of(slot_of(tag)) for tag in tags(self._options.shards)]
        nodes = {home, homes[SHARD]}
        waits = {"its shard": 0.0, "same nodes": 0.0, "other nodes": 0.0}
        for shard, place in enumerate(load.places):
            where = (
                "its shard" if shard == SHARD else "same nodes" if homes[shard] in nodes else "other nodes"
            )
            waits[where] = max(waits[where], load.longest[place])
        told = ", ".join(f"{where} {1000 * wait:,.0f} ms" for where, wait in waits.items())
        print(
            f"{name} ({took:.2f} s): longest wait: {told}; this process {1000 * load.late:.0f} ms", flush=True
        )
        if said:
            print(f"    {said}", flush=True)

    def _move(self) -> str:
        """Move the slot to the next node, as operators do."""
        cluster, slot, pipeline = self._cluster, str(self._slot), self._options.pipeline
        source = cluster.home_of(self._slot)
        to = (source + 1) % 3
        where = ("127.0.0.1", str(cluster.ports[to]), "", "0", "60000", "KEYS")
        cluster.nodes[to]("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.ids[source])
        cluster.nodes[source]("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.ids[to])
        before = [_cpu(cluster.nodes[n]) for n in (source, to)]
        blocked, large = [], 0.0
        while keys := cluster.nodes[source]("CLUSTER", "GETKEYSINSLOT", slot, str(pipeline)):
            began = time.monotonic()
            cluster.nodes[source]("MIGRATE", *where, *keys)
            blocked.append(time.monotonic() - began)
            if not self._large.isdisjoint(keys):
                large = max(large, blocked[-1])
        for node in (to, source, 3 - to - source):
            cluster.nodes[node]("CLUSTER", "SETSLOT", slot, "NODE", cluster.ids[to])
        cpu = [_cpu(cluster.nodes[n]) - was for n, was in zip((source, to), before, strict=True)]
        return (
            f"{len(blocked):,} MIGRATE of up to {pipeline} keys, {sum(blocked):.2f} s in all, "
            f"longest {1000 * max(blocked):.0f} ms, of a key above 1 MB {1000 * large:.0f} ms; "
            f"CPU of the two nodes {cpu[0]:.2f} s and {cpu[1]:.2f} s"
        )

    async def _failover(self) -> str:
        replica = self._replica()
        replica("CLUSTER", "FAILOVER")
        await until(lambda: b"role:master" in replica("INFO", "replication"))
        await until(lambda: self._cluster.nodes[self._cluster.home_of(self._slot)] is replica)
        return ""

    async def _kill(self) -> str:
        old, replica = self._node(), self._replica()
        began = time.monotonic()
        old.kill()
        await until(lambda: b"role:master" in replica("INFO", "replication"))
        promoted = time.monotonic() - began
        # an operation waits for a replica, which the new primary has not yet
        await anyio.to_thread.run_sync(old.start)
        await until(lambda: b"master_link_status:up" in old("INFO", "replication"))
        took = time.monotonic() - began
        return f"promoted after {promoted:.2f} s, the killed node is its replica after {took:.2f} s"

    def _replica(self):
        home = self._cluster.ports[self._cluster.home_of(self._slot)]
        ours = f"master_port:{home}\r".encode()
        (replica,) = (node for node in self._cluster.nodes if ours in node("INFO", "replication"))
        assert b"master_link_status:up" in replica("INFO", "replication")
        return replica

    # what is left

    async def _count(self, store, engine) -> None:
        """Everything that was filled in has to be there, once."""
        found = set()
        for queue in self._queues:
            for state in ("waiting", "delayed"):
                async for record in queue.tasks(state):
                    number = record.payload[0]
                    if number in found or record.payload != (
                        [number, ""] if state == "delayed" else payload(number)
                    ):
                        self._wrong.append(f"{queue.name}: {record}")
                    found.add(number)
            self._wrong += (await queue.verify()).problems
        put = next(self._put) - 1
        self._wrong += [f"{put} tasks were put, {len(found)} are there"] if len(found) != put else []
        for part in _parts(self._sessions, 250):
            alive = await engine.execute([RenewSession(one) for one in part])
            held = await engine.execute([Release(self._held(one), one) for one in part])
            if {*alive, *held} != {Reply.OK, Reply.RELEASED}:
                self._wrong.append(f"sessions or their locks are missing: {alive} {held}")
        print(f"counted: {len(found):,} of {put:,} tasks, {len(self._sessions):,} sessions and their locks")


def _cpu(node) -> float:
    """Seconds that a node has worked."""
    lines = dict(line.split(":") for line in node("INFO", "cpu").decode().splitlines() if ":" in line)
    return float(lines["used_cpu_user"]) + float(lines["used_cpu_sys"])


def _parts(of, size: int):
    return (of[n : n + size] for n in range(0, len(of), size))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak resharding", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--megabytes", type=int, default=500, help="memory that the shard takes")
    add("--shards", type=int, default=16)
    add("--replicas", type=int, choices=[0, 1], default=1)
    add("--failovers", type=int, default=1, help="how often of each kind, if there are replicas")
    add("--pipeline", type=int, default=10, help="keys for one MIGRATE; redis-cli takes 10")
    add("--ttl", type=float, default=60.0)
    add("--pace", type=float, default=0.2, help="seconds that each task of the load rests")
    add("--seconds", type=float, default=3.0, help="how long to measure before and after")
    add("--node-timeout", type=float, default=5.0, help="cluster-node-timeout in seconds; Redis has 15")
    add("--response-timeout", type=float, default=5.0)
    add("--histories", type=Path, metavar="FOLDER", help="keep the histories, for benchmarks.soak.check")
    options = parser.parse_args(arguments)
    # the path of a socket has to be short
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        cluster = RedisCluster(Path(folder), replicated=3 * options.replicas)
        try:
            for node in cluster.nodes:
                timeout = str(round(1000 * options.node_timeout))
                node("CONFIG", "SET", "cluster-node-timeout", timeout)
                node("CONFIG", "SET", "cluster-require-full-coverage", "no")
            print(f"Redis {'.'.join(map(str, cluster.version))}", vars(options), flush=True)
            wrong = anyio.run(Resharding(cluster, options).run)
        finally:
            cluster.close()
    print(f"{len(wrong)} violations")
    print(*wrong[:20], sep="\n\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
