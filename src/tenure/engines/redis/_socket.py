"""A plain connection on which a caller may send at once, without waiting for its turn on the loop."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import NoReturn

import anyio
from anyio.abc import ByteStream, SocketAttribute

from tenure.waiting import on_readable

_MOST = 1 << 16
"""Bytes to receive at once; more than twice of it are memory that has to be mapped each time."""


class PlainSocket(ByteStream):
    """A socket that is read and written without anything in between."""

    def __init__(self, plain: socket.socket) -> None:
        self._socket = plain

    def send_now(self, data: bytes) -> int:
        """Send what the system takes at once; return how many bytes that were. Raises nothing: see `send`."""
        try:
            return self._socket.send(data)
        except OSError:
            return 0

    async def send(self, item: bytes) -> None:
        """Send everything. Raises `OSError`. Cancellation: some of it may have been sent."""
        view = memoryview(item)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def receive(self, max_bytes: int = _MOST) -> bytes:
        """Receive the bytes that are there. Raises `OSError`, `EndOfStream`. Cancellation: nothing was received."""
        while True:
            await anyio.wait_readable(self._socket)
            try:
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                continue
            if not data:
                raise anyio.EndOfStream
            return data

    async def listen(self, feed: Callable[[bytes], None]) -> NoReturn:
        """Codec `feed` with what arrives, as soon as it does: where the loop can, without a task in between.

        Raises `OSError`, `EndOfStream`, and what `feed` raises. Cancellation: this is how it ends.
        """

        def take_in() -> None:
            try:
                data = self._socket.recv(_MOST)
            except BlockingIOError:
                return
            if not data:
                raise anyio.EndOfStream
            feed(data)

        await on_readable(self._socket, take_in)

    async def send_eof(self) -> None:
        """Send no more."""
        self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close it. Cancellation: it is closed all the same."""
        anyio.notify_closing(self._socket)
        self._socket.close()


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
