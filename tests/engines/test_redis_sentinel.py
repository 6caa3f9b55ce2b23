"""Redis behind Sentinels: the primary is found, and found again when another server has taken its place."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import repeat

import anyio
import hiredis
import pytest

import tenure
from tenure import EngineError, Lock, StoreUnavailable, WorkQueue
from tenure.engines import open_store
from tenure.engines.redis import RedisEngine
from tenure.engines.redis._sentinel import SentinelEndpoint

pytestmark = pytest.mark.one_loop


async def token_of(store, name):
    async with Lock(store, name) as lease:
        return lease.token


# ------------------------------------------------------------------------------------------------------ where it is


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+sentinel://one/jobs", "redis+sentinel://one:26379/jobs"),
        ("redis+sentinel://one/j%40bs", "redis+sentinel://one:26379/j@bs"),
        ("redis+sentinel://one,two:7000,[::1]/jobs", "redis+sentinel://one:26379,two:7000,[::1]:26379/jobs"),
        ("redis+sentinel://me:s%40cret@one,two/jobs/3", "redis+sentinel://me@one:26379,two:26379/jobs/3"),
        ("rediss+sentinel://:secret@one/jobs/0", "rediss+sentinel://one:26379/jobs"),
    ],
)
def test_an_address_is_shown_without_its_password(url, said):
    where = SentinelEndpoint(url)
    assert str(where) == RedisEngine(url).url == open_store(url).url == said
    assert "cret" not in repr(RedisEngine(url))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+sentinel://me:secret@one:26379", "the service is missing"),
        ("redis+sentinel://me:secret@one/jobs/x", "a database is a number, not 'x'"),
        ("redis+sentinel://me:secret@one/jobs?db=3", "the only option"),
        ("redis+sentinel://me:secret@one:x/jobs", "is not a port"),
    ],
)
def test_a_wrong_url_is_shown_without_its_password(url, words):
    with pytest.raises(ValueError, match=words) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


# --------------------------------------------------------------------------------------------- Sentinels of our own


def primary(port, epoch=1):
    """What a Sentinel answers that knows a primary."""
    # commands are arrays of texts, as such answers are
    return hiredis.pack_command(
        ("name", "jobs", "ip", "127.0.0.1", "port", str(port), "config-epoch", str(epoch))
    )


@asynccontextmanager
async def sentinels(*replies):
    """As many Sentinels as there are replies; gives the first part of their URL, and what they were sent.

    Each connection gets one reply, the next of a tuple; None stays silent, and "refused" does not listen.
    """
    said = []

    async def serve(answers, stream):
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                said.append(await stream.receive())
                if (answer := next(answers)) is not None:
                    await stream.send(answer)
                await anyio.sleep_forever()

    async with AsyncExitStack() as stack:
        listeners = [await anyio.create_tcp_listener(local_host="127.0.0.1") for _ in replies]
        ports = [listener.extra(anyio.abc.SocketAttribute.local_port) for listener in listeners]
        for listener in listeners:
            await stack.enter_async_context(listener)
        group = await stack.enter_async_context(anyio.create_task_group())
        for listener, reply in zip(listeners, replies, strict=True):
            if reply == "refused":
                await listener.aclose()
            else:
                answers = iter(reply) if isinstance(reply, tuple) else repeat(reply)
                group.start_soon(listener.serve, partial(serve, answers))
        yield ",".join(f"127.0.0.1:{port}" for port in ports), said
        group.cancel_scope.cancel()


@pytest.fixture
def tcp_server(own_redis_server, free_port):
    """The port of a server with the password "secret" for "me"."""
    port = free_port()
    server = own_redis_server("--port", str(port))
    server("ACL", "SETUSER", "me", "on", ">secret", "~*", "&*", "+@all")
    return port


async def test_one_sentinel_that_answers_is_enough(tcp_server):
    for others in (("refused", "refused"), (b"+what?\r\n", "refused"), (b"no such thing\r\n", "refused")):
        async with sentinels(*others, primary(tcp_server)) as (hosts, _):
            async with open_store(f"redis+sentinel://{hosts}/jobs") as store:
                await token_of(store, "x")


async def test_silent_sentinels_are_not_waited_for_once_most_have_answered(tcp_server, monkeypatch):
    async with sentinels(None, primary(tcp_server), primary(tcp_server)) as (hosts, _):
        with monkeypatch.context() as patch:
            # longer than this test may take
            patch.setattr("tenure.engines.redis._sentinel.LOOK_UP", 1000.0)
            async with open_store(f"redis+sentinel://{hosts}/jobs"):
                pass
    async with sentinels(None, None, primary(tcp_server)) as (hosts, _):
        async with open_store(f"redis+sentinel://{hosts}/jobs"):
            pass


async def test_a_sentinel_that_was_cut_off_is_outvoted(tcp_server):
    async with sentinels(primary(1, epoch=4), primary(tcp_server, epoch=5)) as (hosts, _):
        async with open_store(f"redis+sentinel://{hosts}/jobs") as store:
            await token_of(store, "x")


async def test_a_sentinel_that_asks_for_the_password_gets_it(tcp_server):
    noauth = b"-NOAUTH Authentication required.\r\n"
    async with sentinels((noauth, b"+OK\r\n" + primary(tcp_server)), primary(tcp_server)) as (hosts, said):
        async with open_store(f"redis+sentinel://me:secret@{hosts}/jobs/3") as store:
            await token_of(store, "x")
    assert sum(b"secret" in message for message in said) == 1


@pytest.mark.parametrize(
    ("replies", "error", "words"),
    [
        (["refused", "refused"], StoreUnavailable, "no Sentinel answers"),
        ([None], StoreUnavailable, "no Sentinel answers"),
        (
            [b"-ERR No such master with that name\r\n", "refused"],
            EngineError,
            "No such master with that name",
        ),
        ([(b"-NOAUTH\r\n", b"-WRONGPASS\r\n-NOAUTH\r\n")], EngineError, "refuses this user or password"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], EngineError, "this is no Redis server"),
        ([b"+OK\r\n"], EngineError, "this is no Sentinel"),
    ],
)
async def test_no_primary_is_found(replies, error, words):
    async with sentinels(*replies) as (hosts, _):
        with pytest.raises(error, match=words) as caught:
            async with open_store(f"redis+sentinel://me:secret@{hosts}/jobs"):
                pytest.fail("it was opened")
    assert "secret" not in str(caught.value)


async def test_a_primary_that_became_a_replica_is_not_used(tcp_server, own_redis_server, free_port):
    replica = own_redis_server(
        "--port", str(free := free_port()), "--replicaof", "127.0.0.1", str(tcp_server)
    )
    assert b"role:slave" in replica("INFO", "replication")
    async with sentinels(primary(free)) as (hosts, _):
        with pytest.raises(StoreUnavailable, match="this is a replica"):
            async with open_store(f"redis+sentinel://{hosts}/jobs"):
                pytest.fail("it was opened")


async def test_on_another_server_nobody_else_is_killed(own_redis_server, free_port):
    """The number under which the old server knew our connection is that of somebody else there."""
    ports = [free_port(), free_port()]
    first, second = (own_redis_server("--port", str(port)) for port in ports)
    while first("CLIENT", "ID") < 100:
        pass
    answers = primary(ports[0]), *[primary(ports[1], epoch=2)] * 50
    async with sentinels(answers) as (hosts, _):
        async with open_store(f"redis+sentinel://{hosts}/jobs") as store:
            ours = max(
                int(line.split()[0][3:]) for line in first("CLIENT", "LIST").decode().splitlines()[:-1]
            )
            with socket.socket(socket.AF_UNIX) as somebody:
                while second("CLIENT", "ID") < ours - 1:
                    pass
                somebody.connect(second.socket)
                somebody.sendall(hiredis.pack_command(("CLIENT", "ID")))
                assert somebody.recv(100) == b":%d\r\n" % ours
                first.kill()
                await token_of(store, "x")
                somebody.sendall(hiredis.pack_command(("PING",)))
                assert somebody.recv(100) == b"+PONG\r\n"


# ------------------------------------------------------------------------------------------------------- real ones


async def is_held(store, name):
    with anyio.move_on_after(0.2) as scope:
        await token_of(store, name)
    return scope.cancelled_caught


async def test_when_the_primary_is_killed_all_goes_on_with_the_replica(watched_redis, replicate):
    primary, replica = watched_redis.servers
    async with open_store(watched_redis.url, ttl=20) as store, open_store(watched_redis.url) as other:
        queue = WorkQueue(store, "jobs")
        await queue.put("before")
        before = await token_of(store, "x")
        async with Lock(store, "held") as lease:
            replicate(primary, replica)
            primary.kill()
            async with anyio.create_task_group() as group:
                group.start_soon(queue.put, "after")
                assert await token_of(store, "x") > before
            assert b"role:master" in replica("INFO", "replication")
            lease.check()
            assert await is_held(other, "held")
            # it comes back, believes for a moment to be the primary, and nobody falls for it
            primary.start()
            async with open_store(watched_redis.url) as third:
                assert await is_held(third, "held")
        assert (await queue.statistics()).waiting == 2


async def test_a_primary_that_was_replaced_and_does_not_know_it_is_left(watched_redis):
    """A Sentinel demotes it only after some seconds; meanwhile it answers whoever asks."""
    old, new = watched_redis.servers
    engines = [RedisEngine(watched_redis.url, response_timeout=2) for _ in range(2)]
    handed_over = 0

    async def work(store):
        nonlocal handed_over
        while not moved.is_set():
            with suppress(tenure.LeaseLost):
                async with Lock(store, "x", ttl=1):
                    handed_over += 1
                    await anyio.sleep(0.002)

    moved = anyio.Event()
    with anyio.fail_after(50):
        async with open_store(engines[0]) as one, open_store(engines[1]) as other:
            async with anyio.create_task_group() as group:
                for store in (one, one, other, other):
                    group.start_soon(work, store)
                while handed_over < 50:
                    await anyio.sleep(0.01)
                watched_redis.sentinels[0]("SENTINEL", "FAILOVER", "jobs")
                while len(new("PUBSUB", "CHANNELS", "tenure:*") or ()) < 2:
                    await anyio.sleep(0.01)
                assert b"role:master" in old("INFO", "replication")
                assert b"role:master" in new("INFO", "replication")
                assert old("PUBSUB", "CHANNELS", "tenure:*") == []
                before = handed_over
                while handed_over < before + 50:
                    await anyio.sleep(0.01)
                moved.set()
            await token_of(one, "x")
