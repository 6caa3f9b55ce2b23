"""websockets: two connections over pipes in memory."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection
from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from tenure.testing import cancellable


class _Pipe(asyncio.Transport):
    """Brings what is written to the other end, a turn later."""

    own: asyncio.Protocol
    peer: _Pipe
    closing = False

    def write(self, data: Any) -> None:
        asyncio.get_running_loop().call_soon(self.peer.own.data_received, bytes(data))

    def write_eof(self) -> None:
        asyncio.get_running_loop().call_soon(self.peer.ends)

    def ends(self) -> None:
        if not self.closing and not self.own.eof_received():
            self.close()

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.own.connection_lost, None)
            self.write_eof()

    abort = close

    def get_extra_info(self, *_: Any) -> None:
        return None

    def set_write_buffer_limits(self, *_: Any, **__: Any) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class _Server:
    def __init__(self) -> None:
        self.handler_tasks: set[asyncio.Task[None]] = set()

    async def handler(self, connection: ServerConnection) -> None:
        await connection.wait_closed()


def _connected() -> tuple[ClientConnection, ServerConnection]:
    client = ClientConnection(ClientProtocol(parse_uri("ws://server/"), state=State.OPEN), ping_interval=None)
    server = ServerConnection(ServerProtocol(state=State.OPEN), _Server(), ping_interval=None)
    one, two = _Pipe(), _Pipe()
    one.own, one.peer, two.own, two.peer = client, two, server, one
    client.response = server.request = Mock()  # the handshake was before
    client.connection_made(one)
    server.connection_made(two)
    return client, server


async def no_message_is_lost() -> None:
    """A receiver that is cancelled loses none; messages come whole and in order, and pings are answered."""
    client, server = _connected()
    got: list[Any] = []

    async def receive() -> None:
        while len(got) < 4:
            with cancellable():
                got.append(await server.recv())

    async def fragments() -> Any:
        yield "a"
        await asyncio.sleep(0.1)
        yield "b"

    async def send() -> None:
        await client.send(fragments())
        await client.send("c")

    async def ping() -> None:
        with cancellable():
            await (await client.ping())
        await (await client.ping())

    try:
        async with asyncio.TaskGroup() as group:
            for task in (receive, send, send, ping):
                group.create_task(task())
    finally:
        await client.close()
        await server.wait_closed()
    assert sorted(got) == ["ab", "ab", "c", "c"], got
