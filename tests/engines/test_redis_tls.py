"""Redis over TLS: a server's certificate is checked, and what travels is what travels without."""

from __future__ import annotations

import socket
import ssl
from contextlib import asynccontextmanager

import anyio
import pytest
import trustme
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSListener
from relays import inside, passed_on

from tenure import EngineError, Lock, WorkQueue
from tenure.engines import open_store
from tenure.engines.redis import RedisEngine


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def trusting(authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@asynccontextmanager
async def behind_tls(server, authority):
    """The port on which a Redis server is reached over TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    async def serve(client):
        async with client, await inside(server.socket) as redis:
            await passed_on(client, redis)

    plain = await anyio.create_tcp_listener(local_host="localhost", family=socket.AF_INET)
    listener = TLSListener(plain, context, standard_compatible=False)
    async with listener, anyio.create_task_group() as servers:
        servers.start_soon(listener.serve, serve)
        yield plain.listeners[0].extra(SocketAttribute.local_port)
        servers.cancel_scope.cancel()


async def test_it_works_as_without(redis_server, authority, trusting):
    async with behind_tls(redis_server, authority) as port:
        engine = RedisEngine(f"rediss://localhost:{port}", tls=trusting)
        assert engine.url == f"rediss://localhost:{port}"
        async with open_store(engine) as store:
            queue = WorkQueue(store, "jobs")
            await queue.put("x" * 100_000)
            async with Lock(store, "x"), queue.take() as task:
                assert len(task.payload) == 100_000


async def test_a_certificate_that_nobody_trusts_is_refused(redis_server, authority):
    async with behind_tls(redis_server, authority) as port:
        with pytest.raises(EngineError, match="certificate verify failed"):
            async with open_store(f"rediss://localhost:{port}"):
                pytest.fail("it was opened")


async def test_a_server_without_tls_is_no_server_with_it(trusting):
    async def plain(client):
        async with client:
            await client.receive()
            await client.send(b"-ERR plain text\r\n")

    async with await anyio.create_tcp_listener(local_host="localhost", family=socket.AF_INET) as listener:
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, plain)
            port = listener.extra(SocketAttribute.local_port)
            with pytest.raises(EngineError, match="TLS: .*(WRONG_VERSION_NUMBER|wrong version|record layer)"):
                async with open_store(RedisEngine(f"rediss://localhost:{port}", tls=trusting)):
                    pytest.fail("it was opened")
            group.cancel_scope.cancel()
