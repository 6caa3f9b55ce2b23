"""What users of other systems have reported of servers and connections, tried on a real one: none of it happens here.

What they have reported of leases, renewals, cancellations and lines needs no server: the scenarios of `tests/explored`,
`tests/store` and `tests/shared` hold it, and of the scripts the contract and `test_redis_interleavings.py`.
"""

from __future__ import annotations

import random
import re
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tenure import (
    Barrier,
    Election,
    Limit,
    Lock,
    RateLimiter,
    RWLock,
    Semaphore,
    WorkQueue,
    open_store,
)
from tenure.engine import RenewSession
from tenure.engines.redis import RedisEngine
from tenure.testing import FaultProxy, FaultyEngine


class Link(FaultyEngine):
    """The real scripts behind a link that can fail; `renewals` are the sessions that were renewed."""

    def __init__(self, engine, **options):
        super().__init__(engine, **options)
        self.renewals = []

    async def execute(self, operations):
        self.renewals += [one.key for one in operations if isinstance(one, RenewSession)]
        return await super().execute(operations)


@pytest.fixture
def inline(inline_redis, virtual_clock):
    return inline_redis(virtual_clock.now)


@pytest.fixture
def link(inline):
    return Link(inline, delay=0.3)


@pytest.fixture
def left(redis_server):
    """The keys that are on the server, apart from the one of the last numbers."""

    def names():
        return sorted(name for name in redis_server("KEYS", "*") if name != b"tenure:{0}:state")

    return names


@asynccontextmanager
async def storm(server):
    """Breaks all connections twenty times; gives a function that tells whether it goes on."""
    left = 20

    async def blow():
        nonlocal left
        while left:
            await anyio.sleep(0.05 * random.random())
            for kind in ("normal", "pubsub"):
                server("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
            left -= 1

    with anyio.fail_after(50):
        async with anyio.create_task_group() as group:
            group.start_soon(blow)
            yield lambda: left


# ---------------------------------------------------------------------------------------------------------- renewal


# --------------------------------------------------------------------------------------------------- giving it back


async def test_a_cancelled_program_leaves_nothing(redis_server, left):
    """open-match #1576, blnk #355, authgear #5721, boundary #918: unlocked with a cancelled context: stuck (bug 7)."""

    async def hold(manager):
        async with manager:
            held.append(manager)
            await anyio.sleep_forever()

    def kinds():
        return {re.sub(rb":([0-9a-f]{14}|[0-9a-f]{2})$", b"", name).rpartition(b":")[2] for name in left()}

    def holds():
        things = (
            thing for key in redis_server("KEYS", "*:items") for thing in redis_server("ZRANGE", key, 0, -1)
        )
        return sum(thing.startswith(b"hold ") for thing in things)

    held = []
    with anyio.CancelScope() as scope:
        async with open_store(redis_server.url) as store, anyio.create_task_group() as group:
            await WorkQueue(store, "jobs").put("task")
            for make in (
                *(lambda: Lock(store, "lock").hold(), lambda: Semaphore(store, "semaphore", 2).hold(2)),
                *(lambda: RWLock(store, "rw").read(), lambda: RWLock(store, "rw").write()),
                *(lambda: Election(store, "leader").term(), lambda: WorkQueue(store, "jobs").take()),
            ):
                group.start_soon(hold, make())
                group.start_soon(hold, make())
            group.start_soon(Barrier(store, "barrier", 3).wait)
            with anyio.fail_after(10):
                while len(held) < 5 or holds() < 11:
                    await anyio.sleep(0.002)
            scope.cancel()
    assert scope.cancelled_caught
    # the queue with its task, answers, and that the barrier is broken
    assert kinds() <= {b"queue", b"queues", b"jobs", b"ready", b"put", b"exchange", b"holders"}
    async with open_store(redis_server.url) as store, WorkQueue(store, "jobs").take(timeout=1) as task:
        assert task.payload == "task"


async def test_a_server_that_pauses_does_not_count_a_hold_twice(redis_server, left):
    """redisson #6025: repeated after a timeout (CLIENT PAUSE), one lock counted as two and was never free (bug 8)."""
    async with (
        open_store(RedisEngine(redis_server.url, response_timeout=1)) as store,
        open_store(redis_server.url) as other,
    ):
        for pause in (20, 1500):  # shorter than the response_timeout, and longer
            redis_server("CLIENT", "PAUSE", str(pause), "ALL")
            with anyio.fail_after(50):
                async with Lock(store, "x"), Semaphore(store, "y", 1):
                    redis_server("CLIENT", "PAUSE", str(pause), "ALL")
                async with Lock(other, "x"), Semaphore(other, "y", 1):
                    pass
        assert not any(name.endswith((b":holders", b":waiting", b":waiters")) for name in left())


async def test_a_lost_reply_costs_a_moment_and_nothing_is_done_twice(redis_server, left):
    """coredis, redis-py: a lock whose reply was lost was taken, by oneself, for a whole ttl."""
    async with FaultProxy(redis_server.socket) as proxy:
        async with open_store(f"redis://{proxy.host}:{proxy.port}", ttl=600) as store:
            limiter, jobs = RateLimiter(store, "rate", Limit(0.001, burst=2)), WorkQueue(store, "jobs")
            async with Lock(store, "another"):
                pass  # the session is open
            with anyio.fail_after(50):  # much less than the ttl
                proxy.lose_reply()
                async with Lock(store, "x") as lease:
                    proxy.lose_reply()
                async with Lock(store, "x") as later:
                    assert later.token > lease.token
                for _ in range(2):
                    proxy.lose_reply()
                    await limiter.acquire()
                assert not await limiter.try_acquire()
                proxy.lose_reply()
                await jobs.put("task")
                proxy.lose_reply()
                async with jobs.take():
                    proxy.lose_reply()
                counts = await jobs.statistics()
                assert (counts.unfinished, counts.done) == (0, 1)
    assert not any(name.endswith((b":holders", b":waiting", b":waiters")) for name in left())


# ------------------------------------------------------------------------------------------------------------ lines


async def test_in_a_storm_of_broken_connections_nobody_waits_for_long(redis_server):
    """redisson #5761 #5762 #1763 #3891 #763: a missed message was a wait of a ttl, or for ever (bug 11)."""
    holding, tokens, waits = set(), [], []

    async def work(store):
        while goes_on():
            asked = anyio.current_time()
            async with Lock(store, "x") as lease:
                waits.append(anyio.current_time() - asked)
                assert not holding
                holding.add(store)
                tokens.append(lease.token)
                await checkpoint()
                holding.remove(store)

    async with open_store(redis_server.url, ttl=30) as one, open_store(redis_server.url, ttl=30) as other:
        async with storm(redis_server) as goes_on, anyio.create_task_group() as group:
            for store in (one, other, one, other):
                group.start_soon(work, store)
    assert tokens == sorted(set(tokens))
    assert max(waits) < 10  # a third of the ttl


# ----------------------------------------------------------------------------------------------- barriers and queues
