"""A plain connection, whose socket a caller may use at once, without a turn of the loop."""

from __future__ import annotations

import os
import socket

import anyio
from anyio.abc import ByteStream, SocketAttribute

MOST = 1 << 16
"""Bytes to receive at once; more than twice of it are memory that has to be mapped each time."""


class PlainSocket(ByteStream):
    def __init__(self, plain: socket.socket) -> None:
        self.socket = plain

    async def send(self, item: bytes) -> None:
        """Send everything. Raises `OSError`. Cancellation: some of it may have been sent."""
        view = memoryview(item)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self.socket)

    async def receive(self, max_bytes: int = MOST) -> bytes:
        """Receive the bytes that are there. Raises `OSError`, `EndOfStream`. Cancellation: nothing was received."""
        while True:
            await anyio.wait_readable(self.socket)
            try:
                data = self.socket.recv(max_bytes)
            except BlockingIOError:
                continue
            if not data:
                raise anyio.EndOfStream
            return data

    async def send_eof(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        anyio.notify_closing(self.socket)
        self.socket.close()


async def plain(stream: ByteStream) -> ByteStream:
    """The same connection without the loop's own buffers, if nothing encrypts it. Raises `OSError`.

    Cancellation: the connection is closed.
    """
    if not isinstance(stream, anyio.abc.SocketStream):
        return stream
    try:
        handle = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 this is no query
        own = socket.socket(handle.family, handle.type, handle.proto, os.dup(handle.fileno()))
    except (AttributeError, OSError):
        # the other side has closed it already; uvloop then no longer has a socket
        await anyio.aclose_forcefully(stream)
        raise ConnectionResetError("the connection was closed as it was made") from None
    own.setblocking(False)
    try:
        await anyio.aclose_forcefully(stream)
    except BaseException:
        own.close()
        raise
    return PlainSocket(own)
