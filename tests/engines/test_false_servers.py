"""What answers is no server of the kind, or a strange one: an `EngineError` that says what it said, at once."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager, suppress
from itertools import count
from random import Random

import anyio
import hiredis
import pytest
from anyio.abc import SocketAttribute
from relays import relay

import tenure
from tenure import (
    AcquireTimeout,
    EngineError,
    LeaseLost,
    Limit,
    Lock,
    OutcomeUnknown,
    RateLimiter,
    StoreUnavailable,
    WorkQueue,
)
from tenure.engine import HOLDERS, INDEXES, Holdings, Reply, Scan
from tenure.engines import open_store
from tenure.engines.redis._codec import _ANSWERS as ANSWERS
from tenure.engines.redis._operations import CODECS

HELLO = b"%2\r\n+version\r\n+7.2.0\r\n+id\r\n:3\r\n+OK\r\n"

FALSE = {
    "OK to all": b"+OK\r\n" * 60,
    "an empty map": b"%0\r\n" * 60,
    "a map of something else": b"%1\r\n+version\r\n:7\r\n" * 60,
    "an int": b":1\r\n" * 60,
    "null": b"_\r\n" * 60,
    "an array": b"*1\r\n*0\r\n" * 60,
    "random bytes": bytes(range(256)),
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "an old Redis": b"-ERR unknown command 'HELLO'\r\n",
    "a good hello and then an int": HELLO + b":1\r\n" * 60,
    "a good hello and then an array": HELLO + b"*1\r\n:5\r\n" * 60,
}
URLS = (
    "redis://localhost:{}",
    "redis+cluster://localhost:{}",
    "redis+sentinel://localhost:{}/primary",
    "postgresql://localhost:{}/db",
)


@pytest.fixture
async def answering():
    """The port of a server that answers whatever it is told with the same bytes: `await answering(data)`."""
    async with anyio.create_task_group() as group:

        async def serve(data, *, task_status):
            async def answer(client):
                async with client:
                    try:
                        await client.receive()
                        await client.send(data)
                        await client.receive()
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        pass

            async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
                task_status.started(listener.extra(SocketAttribute.local_port))
                await listener.serve(answer)

        yield lambda data: group.start(serve, data)
        group.cancel_scope.cancel()


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("said", FALSE)
async def test_no_server_of_the_kind(answering, url, said):
    port = await answering(FALSE[said])
    with anyio.fail_after(10), pytest.raises((EngineError, StoreUnavailable)) as caught:
        async with open_store(url.format(port).replace("localhost", "127.0.0.1")):
            pytest.fail("opened")
    no_answer = url.startswith("redis+cluster") and "map" in said
    assert caught.type is (StoreUnavailable if no_answer else EngineError)


@pytest.mark.parametrize("said", [b">0\r\n", b">1\r\n+x\r\n"])
@pytest.mark.parametrize("url", URLS[:3])
async def test_only_pushes_are_no_answer(answering, url, said):
    port = await answering(said * 9)
    with anyio.fail_after(10), pytest.raises(StoreUnavailable):
        async with open_store(url.format(port)):
            pytest.fail("opened")


async def test_the_message_says_what_it_said(answering):
    for said in ("OK to all", "HTTP"):
        port = await answering(FALSE[said])
        with pytest.raises(EngineError, match=r"this is no Redis server: .*it says b'(OK|HTTP/1.1 400)"):
            async with open_store(f"redis://127.0.0.1:{port}"):
                pytest.fail("opened")


@pytest.mark.parametrize(
    ("url", "says", "told"),
    [
        ("redis://127.0.0.1:{}", b"", "closed the connection: is it a Redis server\\?"),
        ("postgresql://u@127.0.0.1:{}/d", None, "no answer within 0.3 s: is it a PostgreSQL server\\?"),
        ("redis://127.0.0.1:1", None, "connection refused: is the server running\\?"),
    ],
)
async def test_the_message_asks_what_a_silent_server_is(url, says, told):
    async def answer(client):
        async with client:
            await client.receive()
            if says is None:
                await anyio.sleep(1)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, answer)
        port = listener.extra(SocketAttribute.local_port)
        with pytest.raises(StoreUnavailable, match=told):
            async with open_store(url.format(port), response_timeout=0.3, retry=0.1):
                pytest.fail("opened")
        group.cancel_scope.cancel()


@asynccontextmanager
async def between(socket, surplus=lambda client, part: b""):
    """A port through which a server is reached, and the clients that have come that way.

    `surplus(client, part)` precedes this part of what the server says to this client, both numbered from 1.
    """
    clients = []

    def change_of(client):
        clients.append(client)
        number, parts = len(clients), count(1)
        return lambda data, *, up: data if up else surplus(number, next(parts)) + data

    async with relay(socket, change_of) as port:
        yield port, clients


@pytest.mark.parametrize(
    "extra", [b"+OK\r\n", b">0\r\n", b">1\r\n+x\r\n", b">3\r\n+message\r\n+x\r\n:1\r\n", b"?"]
)
async def test_a_reply_too_many_costs_the_connection_and_not_the_store(redis_server, extra):
    """As when a forked child has used the connection too: the store ended by an `IndexError`."""
    async with between(redis_server.socket) as (port, clients):
        async with open_store(f"redis://127.0.0.1:{port}") as store:
            async with Lock(store, "x") as lease:
                await anyio.wait_all_tasks_blocked()  # the relay has ended its own sending
                await clients[-1].send(extra)
                with anyio.fail_after(10):
                    for n in range(20):
                        assert await WorkQueue(store, "jobs").put(n)
                lease.check()


LIES = {
    "lost": lambda data: b"",
    "twice": lambda data: data + data,
    "before": lambda data: b"+ok\r\n" + data,
    "behind": lambda data: data + b":1\r\n",
    "another's": lambda data: b"*3\r\n+queued\r\n:1\r\n:5\r\n" + data,
}


def are_whole(replies):
    """Whether the last of the replies is complete: then what follows is another one."""
    reader = hiredis.Reader()
    reader.feed(replies + b"+the next\r\n")
    last = None
    with suppress(hiredis.ProtocolError):
        while (reply := reader.gets()) is not False:
            last = reply
    return last == b"the next"


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.full if n else ()) for n in range(5)])
async def test_replies_that_are_lost_or_added_cost_the_connection_and_not_the_store(redis_server, lie, seed):
    """All later replies went to the commands before or behind, and a lock had the attributes of a queue."""
    random, lies = Random(f"{lie} {seed}"), []

    def change_of(client):
        clients.append(client)
        rest = b""  # of a reply that has begun

        def change(data, *, up):
            nonlocal rest
            if up:
                return data
            between, rest = not rest, rest + data
            if are_whole(rest):
                rest = b""
            lying = lies and between and not rest and random.random() < 0.1
            return LIES[lies.pop()](data) if lying else data

        return change

    clients = []
    async with relay(redis_server.socket, change_of) as port:
        async with open_store(f"redis://127.0.0.1:{port}", ttl=2, response_timeout=1, retry=50) as store:
            queue, limiter = WorkQueue(store, "jobs"), RateLimiter(store, "api", Limit(1e6, burst=100))

            async def use(n):
                async with Lock(store, f"x{n}").hold(timeout=0.2):
                    await queue.put(n, group="g")
                async with queue.take(timeout=0.2) as task:
                    task.set_result(n)
                await limiter.acquire()
                assert len((await queue.tasks("ended").page(limit=2)).records) <= 2

            async def client(n):
                while not enough.is_set():
                    # what a lost link may mean to a caller; everything else ends the test
                    with suppress(AcquireTimeout, LeaseLost, OutcomeUnknown):
                        await use(n)

            enough = anyio.Event()
            with anyio.fail_after(40):
                async with anyio.create_task_group() as group:
                    for n in range(3):
                        group.start_soon(client, n)
                    for number in range(1, 4):
                        lies.append(lie)
                        while len(clients) <= number:
                            await anyio.sleep(0.01)
                    enough.set()
                async with Lock(store, "at last") as lease:
                    lease.check()


async def test_a_reply_that_belongs_to_another_command_is_no_answer(redis_server, caplog):
    lie = []
    async with relay(
        redis_server.socket, lambda _: lambda data, *, up: data if up or not lie else lie.pop()
    ) as port:
        async with open_store(f"redis://127.0.0.1:{port}") as store:
            lie.append(b"*2\r\n+put\r\n:1\r\n")
            with anyio.fail_after(10):
                assert await store._handle.call(Scan(HOLDERS, "x")) == Holdings(())
    assert "this is no reply to scan: [b'put', 1]" in caplog.text


def test_the_words_of_replies_are_those_of_the_contract():
    words = {kind.__name__: word for word, kind in ANSWERS.items()}
    words |= {"Granted": "granted", "PutAnswer": "put", "Exchanged": "exchanged", "SpendResults": "spent"}
    words |= {"Configured": "configured"}
    words |= {reply.name: reply.value for reply in Reply}
    for operation, codec in CODECS.items():
        # "-> Granted, Queued, REFUSED (not `wait`), GONE, MORE. The first ..."
        said = re.sub(
            r"\(.*?\)", "", operation.__doc__.partition("->")[2].partition("\n\n")[0], flags=re.DOTALL
        )
        names = re.split(r"[.;]", said)[0].replace(",", " ").split()
        meant = {words[name] for name in names if name != "Page"} | {"more"}
        assert meant | (INDEXES.keys() if "Page" in names else set()) == {
            word.decode() for word in codec.words
        }, operation


SURPLUS = {
    "the answer to a SET": b"C\0\0\0\x08SET\0Z\0\0\0\x05I",
    "an end": b"Z\0\0\0\x05I",
}


@pytest.mark.parametrize("surplus", SURPLUS)
async def test_a_result_too_many_costs_the_connection_and_not_the_store(postgres_server, surplus):
    """PgBouncer 1.18 does so: all later answers were taken for those of the statements before."""
    more = []
    async with between(f"{postgres_server.folder}/.s.PGSQL.5432", lambda *_: more.pop() if more else b"") as (
        port,
        clients,
    ):
        async with open_store(f"postgresql://tenure@127.0.0.1:{port}/postgres?sslmode=disable") as store:
            async with Lock(store, "x") as lease:
                with anyio.fail_after(30):
                    for n in range(6):
                        opened = len(clients)
                        more.append(SURPLUS[surplus])
                        assert await WorkQueue(store, "jobs").put(n)
                        assert len(clients) > opened
                    assert (await WorkQueue(store, "jobs").statistics()).put == 6
                lease.check()


@pytest.mark.parametrize("surplus", SURPLUS)
@pytest.mark.parametrize("always", [False, True])
async def test_a_result_too_many_while_it_opens(postgres_server, surplus, always):
    def more(client, part):
        # the first part is the greeting
        return SURPLUS[surplus] if part == 2 and (always or client == 1) else b""

    async with between(f"{postgres_server.folder}/.s.PGSQL.5432", more) as (port, clients):
        opening = open_store(f"postgresql://tenure@127.0.0.1:{port}/postgres?sslmode=disable")
        with anyio.fail_after(30):
            if always:
                with pytest.raises(StoreUnavailable, match="nothing had asked for"):
                    await opening.__aenter__()
            else:
                async with opening:
                    assert len(clients) > 2


async def test_a_message_of_somebody_else_is_no_hint(redis_server):
    async with open_store(redis_server.url) as store:
        await store._handle.session(store.ttl)
        for words in ("", "{", "[1]", "[1, 2, 3]", '["a", "b", "nonsense"]', "\ud83d"):
            redis_server("PUBLISH", f"tenure:{store.process}", words.encode(errors="replace"))
        async with Lock(store, "x") as lease:
            lease.check()
        assert (await store.statistics()).available


@pytest.mark.parametrize(
    "option", ["sslmode=bogus", "port=abc", "gssencmode=x", "target_session_attrs=bogus"]
)
async def test_an_option_that_libpq_does_not_know(option):
    with pytest.raises((ValueError, EngineError)):
        async with open_store(f"postgresql://localhost/db?{option}"):
            pytest.fail("opened")


async def test_a_server_that_is_away_is_only_unavailable(answering):
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
    for url in URLS:
        with pytest.raises(StoreUnavailable):
            async with open_store(url.format(port)):
                pytest.fail("opened")
    assert not issubclass(StoreUnavailable, EngineError)
    assert tenure.open_store is open_store
