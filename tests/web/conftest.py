"""A server of the page in this process, and what it is asked."""

from __future__ import annotations

from typing import NamedTuple

import anyio
import h11
import pytest

import tenure
from tenure.web import Site
from tenure.web.server import Server


class Said(NamedTuple):
    """What the server said."""

    status: int
    headers: dict[str, str]
    body: bytes


class Asker:
    """Asks the server on its port, each time on a connection of its own."""

    def __init__(self, server, port, store):
        self.server, self.port, self.store = server, port, store

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    async def connect(self):
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def __call__(self, target="/", *headers, method="GET", host=None, body=b""):
        host = f"127.0.0.1:{self.port}" if host is None else host
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers, "Connection: close", "", ""]
        async with await self.connect() as stream:
            await stream.send("\r\n".join(lines).encode("latin-1") + body)
            return await heard(stream, method)

    async def raw(self, data):
        """What comes back, up to the end of the connection."""
        async with await self.connect() as stream:
            await stream.send(data)
            return await everything(stream)


async def everything(stream):
    parts = []
    try:
        async for part in stream:
            parts.append(part)
    except anyio.BrokenResourceError:
        pass
    return b"".join(parts)


async def heard(stream, method="GET"):
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "x"), ("Connection", "close")]))
    client.send(h11.EndOfMessage())
    client.receive_data(await everything(stream))
    client.receive_data(b"")
    response = client.next_event()
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += bytes(event.data)
    return Said(response.status_code, {k.decode(): v.decode() for k, v in response.headers}, body)


@pytest.fixture
async def serve():
    """Starts servers: `ask = await serve(state, token="...")`; `ask.store` is what they show."""
    async with tenure.open_store("memory:") as store, anyio.create_task_group() as group:

        async def start(state=None, *, token=None, names=(), live=False, **options):
            async def nothing():
                return {"answer": 42}

            site = Site(store, state=None if live else state or nothing, **options)
            server = Server(site, token=token, names=names)
            (port,) = await group.start(server.serve, "127.0.0.1", 0)
            return Asker(server, port, store)

        yield start
        group.cancel_scope.cancel()
