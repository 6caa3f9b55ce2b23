"""Redis with a replica that has to acknowledge: what it has not got counts as unknown, and is never taken for done."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import anyio
import pytest

from tenure import EngineError, LeaseLost, Lock, WorkQueue
from tenure.engines import open_store
from tenure.engines.redis import RedisClusterEngine, RedisEngine
from tenure.engines.redis._endpoint import number_in

pytestmark = pytest.mark.one_loop


@contextmanager
def stopped(server):
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


@pytest.fixture
def primary(own_redis_server, free_port):
    return own_redis_server("--port", str(free_port()), "--repl-diskless-sync-delay", "0")


@pytest.fixture
async def replica(primary, own_redis_server):
    replica = own_redis_server()
    replica("REPLICAOF", "127.0.0.1", primary("CONFIG", "GET", "port")[1].decode())
    with anyio.fail_after(50):
        while b"master_link_status:up" not in replica("INFO", "replication"):
            await anyio.sleep(0.02)
    return replica


def engine(primary):
    return RedisEngine(primary.url, replicas=1, response_timeout=0.4)


def held(server):
    """What sessions hold or wait for."""
    things = (thing for key in server("KEYS", "*:items") for thing in server("ZRANGE", key, 0, -1))
    return sorted(thing for thing in things if thing.startswith(b"hold "))


# ------------------------------------------------------------------------------------------------------ how to ask


@pytest.mark.parametrize(
    ("url", "rest", "replicas"),
    [
        ("redis://host", "redis://host", 0),
        ("redis://host/3?replicas=2", "redis://host/3", 2),
        ("unix:///s?db=1&replicas=1", "unix:///s?db=1", 1),
        ("redis+sentinel://a,b/jobs?replicas=1", "redis+sentinel://a,b/jobs", 1),
    ],
)
def test_the_url_says_how_many(url, rest, replicas):
    assert number_in(url, "replicas", None, 0, least=0, most=99) == (rest, replicas)
    assert number_in(url, "replicas", 3, 0, least=0, most=99) == (rest, 3)
    if "unix" not in url:
        assert repr(RedisEngine(url)) == repr(RedisEngine(rest))


@pytest.mark.parametrize("number", [-1, "x", True, 1.5])
def test_the_number_is_checked(number):
    with pytest.raises((ValueError, TypeError), match="^replicas must be"):
        RedisEngine("redis://", replicas=number)
    with pytest.raises(ValueError, match="^replicas must be a number in the URL"):
        RedisClusterEngine(f"redis+cluster://a?replicas={number}")


async def test_a_user_that_may_not_wait_for_replicas_gets_a_clear_error(own_redis_server):
    server = own_redis_server()
    server("ACL", "SETUSER", "me", "on", ">secret", "~*", "&*", "+@all", "-wait")
    with pytest.raises(EngineError, match="lacks a permission: NOPERM"):
        async with open_store(f"unix://me:secret@{server.socket}?replicas=1"):
            pytest.fail("it was opened")


# ---------------------------------------------------------------------------------------------------- what it does


async def test_what_is_done_is_on_the_replica(primary, replica):
    async with open_store(engine(primary), retry=50) as store:
        queue = WorkQueue(store, "jobs")
        for n in range(20):
            async with Lock(store, f"lock {n}"):
                assert held(replica) == held(primary)
            await queue.put(n)
            async with queue.take() as task:
                assert task.payload == n


async def test_many_at_once(primary, replica):
    done = []

    async def work(store, n):
        for _ in range(20):
            async with Lock(store, f"lock {n % 7}") as lease:
                done.append(lease.token)

    async with open_store(engine(primary), retry=50) as store, anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(work, store, n)
    assert len(set(done)) == 400


async def test_nothing_is_granted_before_the_replica_has_it(primary, replica):
    async with open_store(engine(primary), retry=50, ttl=20) as store:
        async with Lock(store, "warm"):
            pass
        granted = anyio.Event()

        async def hold():
            async with Lock(store, "x"):
                granted.set()

        async with anyio.create_task_group() as group:
            with stopped(replica):
                group.start_soon(hold)
                await anyio.sleep(1)
                assert not granted.is_set()
                assert held(primary)  # the server has done it
            with anyio.fail_after(50):
                await granted.wait()
    assert held(primary) == held(replica) == []


async def test_one_that_gives_up_withdraws_what_it_may_have_got_and_nothing_else(primary, replica):
    async with open_store(engine(primary), retry=50, ttl=20) as store, open_store(primary.url) as other:
        async with Lock(store, "warm"), Lock(other, "y"):
            with stopped(replica):
                for name in ("x", "y"):
                    with anyio.move_on_after(0.3) as scope:
                        async with Lock(store, name):
                            pytest.fail("it was acquired")
                    assert scope.cancelled_caught
            with anyio.fail_after(50):
                while len(held(primary)) > 2:  # the two that are held
                    await anyio.sleep(0.01)
            assert len((await Lock(other, "y").holders().page()).records) == 1
            assert (await Lock(other, "x").holders().page()).records == []


async def test_a_hand_over_waits_for_the_replica_too(primary, replica):
    async with (
        open_store(engine(primary), retry=50, ttl=20) as store,
        open_store(primary.url, ttl=20) as other,
    ):
        granted = anyio.Event()

        async def hold():
            async with Lock(store, "x"):
                granted.set()

        async with anyio.create_task_group() as group:
            async with Lock(other, "x"):
                group.start_soon(hold)
                while not (await Lock(other, "x").waiters().page()).records:
                    await anyio.sleep(0.01)
                os.kill(replica.process.pid, signal.SIGSTOP)
            try:
                await anyio.sleep(0.5)
                assert (await Lock(other, "x").holders().page()).records
                assert not granted.is_set()
            finally:
                os.kill(replica.process.pid, signal.SIGCONT)
            with anyio.fail_after(50):
                await granted.wait()


async def test_leases_end_at_their_deadlines_while_the_replica_is_away(primary, replica):
    async with open_store(engine(primary), retry=50, ttl=1) as store:
        with pytest.raises(LeaseLost, match="expired"):
            async with Lock(store, "x"):
                with stopped(replica):
                    await anyio.sleep(10)
        with anyio.fail_after(50):
            async with Lock(store, "x"):
                pass
