"""What is posted to a Redis server leaves at once, is answered in order, and is never lost."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

import anyio
import pytest

import tenure.engine
from tenure import EngineError, Lock
from tenure.engine import Acquire, Granted, OpenSession, Ping, Queued, Release, Reply
from tenure.engines import open_store
from tenure.engines.redis import RedisEngine
from tenure.engines.redis._connection import ENOUGH
from tenure.engines.redis._endpoint import address
from tenure.engines.redis._socket import PlainSocket, plain
from tenure.errors import StoreUnavailable
from tenure.testing import FaultProxy


@pytest.fixture(params=["unix", "tcp"])
def url(request, own_redis_server, free_port):
    server = own_redis_server("--port", str(port := free_port()))
    return server.url if request.param == "unix" else f"redis://127.0.0.1:{port}"


@pytest.fixture
async def serving(redis_server):
    engine = RedisEngine(redis_server.url)
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "p", lambda _: None)
        yield engine
        group.cancel_scope.cancel()


async def answered(answers, count):
    with anyio.fail_after(50):
        while len(answers) < count:
            await anyio.sleep(0.001)


async def test_what_is_submitted_is_answered_in_order(serving):
    answers = []
    serving.submit(OpenSession("s", "p", 30), answers.append)
    for n in range(10 * ENOUGH):
        serving.submit(Acquire("s", "k", f"a{n}", 1), answers.append)
    for n in range(10 * ENOUGH):
        serving.submit(Release("k", f"a{n}"), answers.append)
    assert answers == []
    await answered(answers, 20 * ENOUGH + 1)
    assert answers[0] is Reply.OK
    assert isinstance(answers[1], Granted)
    assert [answer.place for answer in answers[2 : 10 * ENOUGH + 1]] == list(range(1, 10 * ENOUGH))
    assert set(answers[10 * ENOUGH + 1 :]) == {Reply.RELEASED}


async def test_the_first_leaves_before_the_turn_is_over(serving, redis_server):
    await serving.execute([Ping()])
    redis_server("CONFIG", "RESETSTAT")
    answers = []
    serving.submit(Ping(), answers.append)
    while b"cmdstat_evalsha:calls=1," not in redis_server("INFO", "commandstats"):
        pass  # this thread does not give way: nothing but what has left already can arrive
    assert answers == []
    await answered(answers, 1)


async def test_while_the_server_is_away_it_waits_in_order(serving, redis_server):
    answers = []
    serving._topology._connection.drop("for a test")
    while serving._topology._connection.up:
        await anyio.sleep(0)
    serving.submit(OpenSession("s", "p", 30), answers.append)
    serving.submit(Acquire("s", "k", "a", 1), answers.append)
    serving.submit(Release("k", "a"), answers.append)
    await answered(answers, 3)
    assert answers[::2] == [Reply.OK, Reply.RELEASED]


async def test_what_cannot_be_encoded_is_answered_later(serving):
    answers = []
    serving.submit(Release("\ud800", "x"), answers.append)
    assert answers == []
    await answered(answers, 1)
    assert isinstance(answers[0], EngineError)


async def test_without_its_script_it_is_to_be_sent_again(serving, redis_server):
    redis_server("SCRIPT", "FLUSH")
    answers = []
    serving.submit(Ping(), answers.append)
    await answered(answers, 1)
    assert answers == [Reply.MORE]
    assert await serving.execute([Ping()]) == [Reply.OK]


async def test_when_the_connection_breaks_all_that_was_sent_is_unknown(serving, redis_server):
    answers = []
    redis_server("CLIENT", "PAUSE", "300", "ALL")
    for _ in range(3 * ENOUGH):
        serving.submit(Ping(), answers.append)
    serving._topology._connection.drop("for a test")
    await answered(answers, 3 * ENOUGH)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)


async def test_a_store_works_on_when_scripts_are_forgotten(redis_server):
    async with open_store(redis_server.url) as store:
        for n in range(10):
            async with Lock(store, "x"):
                if n % 2:
                    redis_server("SCRIPT", "FLUSH")


async def test_a_name_that_cannot_be_sent(redis_server):
    async with open_store(redis_server.url) as store:
        with pytest.raises(EngineError, match="cannot be encoded"):
            await store._handle.call(Release("\ud800", "h"))
        async with Lock(store, "x"):
            pass


async def test_tcp_and_unix_sockets_carry_large_commands(url):
    engine = RedisEngine(url)
    async with anyio.create_task_group() as group:
        await group.start(engine.serve, "p", lambda _: None)
        answers = []
        engine.submit(OpenSession("s", "p", 30), answers.append)
        for n in range(20):
            engine.submit(Acquire("s", "k", f"a{n}", 1, value=b"x" * 1_000_000), answers.append)
        await answered(answers, 21)
        assert [type(answer) for answer in answers] == [Reply, Granted, *[Queued] * 19]
        group.cancel_scope.cancel()


async def test_a_plain_socket_is_one_of_a_connection_that_nothing_encrypts():
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as group:

            async def echo(stream):
                async with stream:
                    await stream.send(await stream.receive())

            group.start_soon(listener.serve, echo)
            stream = await plain(await anyio.connect_tcp("127.0.0.1", port))
            assert isinstance(stream, PlainSocket)
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
            await stream.aclose()
            group.cancel_scope.cancel()


@pytest.mark.backends("asyncio", "trio", "uvloop")
async def test_a_connection_that_is_reset_as_it_is_made_is_no_fault(monkeypatch):
    connect = anyio.connect_tcp

    async def connect_slowly(*args):
        stream = await connect(*args)
        with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
            await stream.receive()
        return stream

    monkeypatch.setattr(anyio, "connect_tcp", connect_slowly)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as group:

            async def reset(stream):
                handle = stream.extra(anyio.abc.SocketAttribute.raw_socket)
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await anyio.aclose_forcefully(stream)

            group.start_soon(listener.serve, reset)
            await anyio.aclose_forcefully(await address(f"redis://127.0.0.1:{port}").connect())
            group.cancel_scope.cancel()


# ------------------------------------------------------------------------------------- several stores on one engine


async def test_an_opening_that_is_cancelled_does_not_disturb_the_other_store(redis_server):
    async with FaultProxy(redis_server.socket) as proxy:
        engine = RedisEngine(f"redis://127.0.0.1:{proxy.port}")
        async with open_store(engine, ttl=10) as store:
            for seconds in (0.05, 0.15):
                proxy.latency(0.1, direction="down")
                with anyio.move_on_after(seconds) as scope:
                    async with open_store(engine, ttl=10):
                        await anyio.sleep_forever()
                assert scope.cancelled_caught
                proxy.heal()
                with anyio.fail_after(50):
                    async with Lock(store, "x"):
                        pass
                    await store.ping()


async def test_a_store_that_opens_while_the_connection_is_made_anew_hears(redis_server):
    """Its channel may be known too late for the greeting, and is not heard because others are."""
    async with FaultProxy(redis_server.socket) as proxy:
        engine = RedisEngine(f"redis://127.0.0.1:{proxy.port}")
        async with open_store(engine, ttl=10):
            proxy.latency(0.1, direction="down")
            proxy.cut()
            opened = []

            async def open_and_look():
                async with open_store(engine, ttl=10) as store:
                    opened.append(redis_server("PUBSUB", "NUMSUB", f"tenure:{store.process}")[1])

            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(open_and_look)
                    await anyio.sleep(0.03)
            assert opened == [1] * 20


async def test_a_user_that_may_not_listen_gets_a_clear_error(own_redis_server):
    server = own_redis_server()
    server("ACL", "SETUSER", "me", "on", ">secret", "~*", "&*", "+@all")
    engine = RedisEngine(f"unix://me:secret@{server.socket}")
    async with open_store(engine) as store:
        server("ACL", "SETUSER", "me", "-subscribe")
        with pytest.raises(EngineError, match="the user lacks a permission: NOPERM"):
            async with open_store(engine):
                pytest.fail("it was opened")
        await store.ping()
    with pytest.raises(EngineError, match="the user lacks a permission: NOPERM"):
        async with open_store(engine):
            pytest.fail("it was opened")


@pytest.mark.parametrize("silence", [600.0, 0.0])
async def test_a_connection_that_is_not_in_use_sends_nothing(own_redis_server, monkeypatch, silence):
    monkeypatch.setattr(tenure.engine, "IN_USE", 0.0)
    monkeypatch.setattr(tenure.engine, "SILENCE", silence)
    server = own_redis_server()

    def pings():
        return server("INFO", "commandstats").partition(b"cmdstat_ping:calls=")[2].partition(b",")[0]

    async with open_store(RedisEngine(server.url, response_timeout=0.4)) as store:
        await store.ping()
        await anyio.sleep(0.5)
        before = pings()
        await anyio.sleep(0.9)
        assert (pings() == before) is (silence > 0)
        await store.ping()
