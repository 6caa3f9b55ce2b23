"""Real sockets in real time: what is waited for is an event, a byte count or the end of a stream."""

from __future__ import annotations

import math
import socket
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from tenure.testing._proxy import FaultProxy

pytestmark = pytest.mark.backends("asyncio", "trio", "uvloop")


TICK = 0.005
"""Seconds for the rounding of a loop's clock; uvloop's shows milliseconds."""


class LineServer:
    """Answers each line by the same line, and the end of the stream by "bye"."""

    def __init__(self):
        self.received = b""
        self.open = 0
        self.resets = 0

    async def serve(self, stream):
        self.open += 1
        rest = b""
        try:
            async with stream:
                async for chunk in stream:
                    self.received += chunk
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        await stream.send(line + b"\n")
                await stream.send(b"bye\n")
        except anyio.BrokenResourceError:
            self.resets += 1
        finally:
            self.open -= 1


@asynccontextmanager
async def serving(listener, handler):
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handler)
        yield
        group.cancel_scope.cancel()


@pytest.fixture
async def server(anyio_backend):
    server = LineServer()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with serving(listener, server.serve):
        yield server


@pytest.fixture
async def proxy(server):
    async with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


async def until(condition):
    with anyio.fail_after(10):
        while not condition():
            await anyio.sleep(0.001)


class Client:
    """Sends lines and reads them."""

    def __init__(self, stream):
        self.stream = stream
        self.send = stream.send

    async def read(self, count):
        data = b""
        with anyio.fail_after(10):
            while len(data) < count:
                data += await self.stream.receive(count - len(data))
        return data

    async def ask(self, line):
        await self.send(line)
        return await self.read(len(line))

    async def rest(self):
        """What still comes before a reset."""
        data = b""
        with anyio.fail_after(10), pytest.raises(anyio.BrokenResourceError):
            while True:
                data += await self.stream.receive()
        return data


@asynccontextmanager
async def connected(proxy):
    async with await anyio.connect_tcp(proxy.host, proxy.port) as stream:
        yield Client(stream)


@pytest.fixture
async def client(proxy):
    async with connected(proxy) as client:
        yield client


# ------------------------------------------------------------------------------------------------------ without a fault


async def test_bytes_pass_as_they_are_and_are_counted(proxy, client):
    assert await client.ask(b"hello\n") == b"hello\n"
    async with connected(proxy) as other:
        assert await other.ask(b"you\n") == b"you\n"
    assert (proxy.connections, proxy.bytes_up, proxy.bytes_down) == (2, 10, 10)
    assert (proxy.cuts, proxy.bytes_lost) == (0, 0)
    assert f"{proxy.host}:{proxy.port}" in repr(proxy)


async def test_many_bytes_pass_both_ways(client):
    data = bytes(range(11, 256)) * 20_000 + b"\n"
    async with anyio.create_task_group() as group:
        group.start_soon(client.send, data)
        assert await client.read(len(data)) == data


async def test_the_end_of_a_stream_passes_each_way_alone(proxy, client, server):
    await client.send(b"last\n")
    await client.stream.send_eof()
    assert await client.read(9) == b"last\nbye\n"
    with pytest.raises(anyio.EndOfStream):
        await client.read(1)
    await until(lambda: not server.open)
    assert server.resets == proxy.cuts == 0


async def test_a_reset_by_the_client_reaches_the_server(proxy, server):
    with socket.create_connection((proxy.host, proxy.port)) as sock:
        await until(lambda: server.open)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    await until(lambda: server.resets)
    assert proxy.cuts == 0


async def test_a_reset_by_the_server_reaches_the_client(anyio_backend):
    async def reset(stream):
        async with stream:
            raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await stream.receive()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with serving(listener, reset), FaultProxy("127.0.0.1", port) as proxy, connected(proxy) as client:
        await client.send(b"hello")
        with suppress(anyio.EndOfStream):  # some loops say good-bye before
            await client.rest()


async def test_a_server_that_does_not_listen_is_a_reset(unused_port):
    async with FaultProxy("127.0.0.1", unused_port) as proxy:
        for _ in range(2):
            async with connected(proxy) as client:
                assert await client.rest() == b""


@pytest.fixture
def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


async def test_a_server_on_a_unix_socket(tmp_path):
    path = tmp_path / "socket"
    listener = await anyio.create_unix_listener(path)
    async with (
        serving(listener, LineServer().serve),
        FaultProxy(path) as proxy,
        connected(proxy) as client,
    ):
        assert await client.ask(b"hello\n") == b"hello\n"
        proxy.cut()
        assert await client.rest() == b""
        assert str(path) in repr(proxy)


async def test_a_server_by_its_name(server):
    async with FaultProxy("localhost", server.port) as proxy, connected(proxy) as client:
        assert await client.ask(b"hello\n") == b"hello\n"


# ----------------------------------------------------------------------------------------------------------- slow links


async def test_latency_delays_each_way(proxy, client):
    proxy.latency(0.05)
    began = anyio.current_time()
    assert await client.ask(b"hello\n") == b"hello\n"
    assert anyio.current_time() - began >= 0.1 - TICK
    proxy.latency(0)
    proxy.latency(0.05, direction="up")
    began = anyio.current_time()
    assert await client.ask(b"hello\n") == b"hello\n"
    assert anyio.current_time() - began >= 0.05 - TICK


async def test_what_is_delayed_does_not_wait_for_what_was_before(proxy, client):
    proxy.latency(0.2, jitter=0.01)
    began = anyio.current_time()
    for number in range(10):
        await client.send(b"%d\n" % number)
        await anyio.sleep(0.02)  # so that they travel apart
    assert await client.read(20) == b"".join(b"%d\n" % number for number in range(10))
    assert 0.4 - TICK <= anyio.current_time() - began < 2  # one after the other, they would take 2.2


async def test_jitter_comes_on_top_and_changes_no_order(proxy, client, monkeypatch):
    shares = iter([1.0, 0.0, 0.0, 0.0])
    monkeypatch.setattr("tenure.testing._proxy.random", lambda: next(shares, 0.0))
    proxy.latency(0.05, jitter=0.1, direction="up")
    began = anyio.current_time()
    await client.send(b"first\n")
    await anyio.sleep(0.02)
    await client.send(b"second\n")
    assert await client.read(13) == b"first\nsecond\n"
    assert anyio.current_time() - began >= 0.15 - TICK


async def test_a_frozen_link_goes_on_when_it_is_healed(proxy, client, server):
    proxy.latency(math.inf, direction="down")
    await client.send(b"hello\n")
    await until(lambda: server.received)
    proxy.latency(math.inf)
    assert proxy.bytes_down == 0
    proxy.heal()
    assert await client.read(6) == b"hello\n"
    assert proxy.cuts == 0


async def test_bytes_trickle(proxy, client):
    proxy.trickle(2, every=0.02)
    began = anyio.current_time()
    assert await client.ask(b"123456789\n") == b"123456789\n"
    assert anyio.current_time() - began >= 4 * (0.02 - TICK)
    proxy.trickle(1, every=60)
    await client.send(b"slow\n")
    await until(lambda: proxy.bytes_up == 11)
    proxy.heal()
    assert await client.read(5) == b"slow\n"


# ----------------------------------------------------------------------------------------------------------- cut links


async def test_a_cut_resets_all_connections_and_takes_new_ones(proxy, client, server):
    async with connected(proxy) as other:
        assert await other.ask(b"a\n") == b"a\n"
        assert await client.ask(b"b\n") == b"b\n"
        proxy.cut()
        proxy.cut()
        assert await client.rest() == await other.rest() == b""
    await until(lambda: server.resets == 2)
    assert proxy.cuts == 2
    async with connected(proxy) as new:
        assert await new.ask(b"c\n") == b"c\n"


@pytest.mark.parametrize("count", [0, 5])
async def test_a_reply_is_cut_after_some_bytes(proxy, client, server, count):
    proxy.cut_after(count)
    await client.send(b"hello you\n")
    assert await client.rest() == b"hello"[:count]
    assert server.received == b"hello you\n"
    assert (proxy.bytes_down, proxy.cuts) == (count, 1)
    async with connected(proxy) as new:
        assert await new.ask(b"hello you\n") == b"hello you\n"


async def test_a_request_is_cut_after_some_bytes(proxy, client, server):
    proxy.trickle(2)
    proxy.cut_after(7, "up")
    await client.send(b"hello\nyou\n")
    await client.rest()
    await until(lambda: server.resets)
    assert server.received == b"hello\ny"
    assert proxy.cuts == 1


async def test_bytes_of_all_connections_count(proxy, client):
    proxy.cut_after(8, "up")
    assert await client.ask(b"hello\n") == b"hello\n"
    async with connected(proxy) as other:
        await other.send(b"hello\n")
        assert await other.rest() == b""
    assert await client.ask(b"hello\n") == b"hello\n"


async def test_a_lost_reply_has_its_effect(proxy, client, server):
    assert await client.ask(b"before\n") == b"before\n"
    proxy.lose_reply()
    await client.send(b"lost\n")
    assert await client.rest() == b""
    assert server.received == b"before\nlost\n"
    assert (proxy.bytes_up, proxy.bytes_down, proxy.cuts) == (12, 7, 1)
    async with connected(proxy) as new:
        assert await new.ask(b"after\n") == b"after\n"


async def test_a_lost_reply_is_lost_on_the_connection_that_asks(proxy, client):
    async with connected(proxy) as other:
        await other.ask(b"x\n")
        proxy.lose_reply()
        await client.send(b"y\n")
        assert await client.rest() == b""
        assert await other.ask(b"z\n") == b"z\n"


async def test_what_was_set_for_once_can_be_taken_back(proxy, client):
    proxy.lose_reply()
    proxy.cut_after(1, "up")
    proxy.heal()
    assert await client.ask(b"hello\n") == b"hello\n"
    proxy.lose_reply()
    await client.send(b"begun")
    await until(lambda: proxy.bytes_up == 11)
    proxy.heal()
    assert await client.ask(b"\n") == b"b"
    assert await client.read(5) == b"egun\n"
    assert proxy.cuts == 0


async def test_a_half_open_connection_swallows_and_is_reset_when_healed(proxy, client, server):
    async with connected(proxy) as idle:
        assert await idle.ask(b"a\n") == b"a\n"
        assert await client.ask(b"b\n") == b"b\n"
        proxy.half_open()
        await client.send(b"hello\n")
        await until(lambda: proxy.bytes_lost == 6)
        assert server.received == b"a\nb\n"
        proxy.heal()
        assert await client.rest() == b""
        assert await idle.ask(b"c\n") == b"c\n"  # nothing of it was lost
    await until(lambda: not server.open)
    assert (server.resets, proxy.cuts) == (1, 1)


async def test_a_half_open_connection_keeps_from_the_server_that_the_client_has_gone(proxy, server):
    async with connected(proxy) as client:
        assert await client.ask(b"a\n") == b"a\n"
        proxy.half_open()
    await until(lambda: all(connection.torn for connection in proxy._open))
    assert (server.open, server.resets) == (1, 0)
    proxy.heal()
    await until(lambda: not server.open)
    assert server.resets == 1


async def test_a_connection_made_while_half_open_gets_no_answer(proxy, server):
    proxy.half_open()
    async with connected(proxy) as client:
        await client.send(b"hello\n")
        await until(lambda: proxy.bytes_lost == 6)
        proxy.cut()
        assert await client.rest() == b""
    assert server.received == b""


async def test_new_connections_are_refused_and_the_old_go_on(proxy, client):
    assert await client.ask(b"a\n") == b"a\n"
    proxy.refuse()
    with pytest.raises((OSError, anyio.BrokenResourceError)):
        async with connected(proxy) as new:
            await new.read(1)
    assert await client.ask(b"b\n") == b"b\n"
    assert proxy.connections == 1
    proxy.heal()
    async with connected(proxy) as new:
        assert await new.ask(b"c\n") == b"c\n"


# -------------------------------------------------------------------------------------------------------------- the end


async def test_at_the_end_of_the_block_all_connections_are_reset(server):
    async with FaultProxy("127.0.0.1", server.port) as proxy:
        client = await anyio.connect_tcp(proxy.host, proxy.port)
        await client.send(b"a\n")
        assert await client.receive() == b"a\n"
    async with client:
        assert await Client(client).rest() == b""
    await until(lambda: server.resets)


@pytest.mark.parametrize("fault", ["none", "latency", "half open", "trickle", "full"])
async def test_a_cancelled_block_leaves_nothing(server, fault):
    with anyio.CancelScope() as scope:
        async with FaultProxy("127.0.0.1", server.port) as proxy, connected(proxy) as client:
            assert await client.ask(b"a\n") == b"a\n"
            if fault == "latency":
                proxy.latency(math.inf)
            elif fault == "half open":
                proxy.half_open()
            elif fault == "trickle":
                proxy.trickle(1, every=60)
            await client.send(b"b\n")
            if fault == "full":
                with anyio.move_on_after(0.1):
                    await client.send(b"x\n" * 20_000_000)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    await until(lambda: not server.open)


async def test_an_error_of_the_block_leaves_it_as_it_is(server):
    with pytest.raises(ZeroDivisionError):
        async with FaultProxy("127.0.0.1", server.port) as proxy, connected(proxy):
            raise ZeroDivisionError


async def test_settings_may_be_made_before_the_block(server):
    proxy = FaultProxy("127.0.0.1", server.port)
    proxy.latency(0.05, direction="down")
    proxy.cut()
    async with proxy, connected(proxy) as client:
        began = anyio.current_time()
        assert await client.ask(b"a\n") == b"a\n"
        assert anyio.current_time() - began >= 0.05 - TICK


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        (lambda proxy: proxy.latency(-1), "seconds"),
        (lambda proxy: proxy.latency(math.nan), "seconds"),
        (lambda proxy: proxy.latency(1, jitter=math.inf), "jitter"),
        (lambda proxy: proxy.latency(1, direction="left"), "direction"),
        (lambda proxy: proxy.cut_after(-1), "count"),
        (lambda proxy: proxy.cut_after(1, "left"), "direction"),
        (lambda proxy: proxy.trickle(0), "size"),
        (lambda proxy: proxy.trickle(1, every=-1), "every"),
    ],
)
def test_arguments_are_checked(setting, named):
    with pytest.raises(ValueError, match=f"^{named}:"):
        setting(FaultProxy("127.0.0.1", 1))
