"""A TCP proxy that does to connections what networks do to them."""

from __future__ import annotations

import math
import socket
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from random import random
from typing import TYPE_CHECKING, Any, Literal, Self

import anyio
from anyio import AsyncContextManagerMixin, create_memory_object_stream

from tenure.arguments import Seconds, seconds_of
from tenure.upkeep import unwrapped_task_group

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import TaskGroup
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

Direction = Literal["up", "down"]

_CHUNK = 65536
_UNDER_WAY = 256  # chunks that a slow way holds before it reads no more

# A piece of a stream with when it came and its share of the jitter; b"" is its end, None a reset.
_Piece = tuple[float, float, bytes | None]


@dataclass(slots=True)
class _Direction:
    latency: float = 0.0
    jitter: float = 0.0
    limit: float = math.inf
    carried: int = 0


class _Connection:
    def __init__(self, client: socket.socket) -> None:
        self.scope = anyio.CancelScope()
        self.sockets = [client]
        self.losing = False
        self.torn = False


class FaultProxy(AsyncContextManagerMixin):
    """Stands between a client and a server on TCP or a unix socket, and does to connections what networks do.

    `async with FaultProxy("127.0.0.1", 6379) as proxy:` or `FaultProxy("/run/redis.sock")`; let the client connect to
    `proxy.host` and `proxy.port`. "up" is towards the server, "down" towards the client. Each setting counts from now
    on for present and future connections, until `heal` or another value. When the block ends, all connections are
    reset.

    `connections` counts the connections taken on, `cuts` the connections reset by a fault or by `cut`, `bytes_up`
    and `bytes_down` the bytes passed on, `bytes_lost` the bytes swallowed.

    Raises `OSError` on entering when the name of the server is unknown. If the server does not listen, the client sees
    a reset. For real time only.

    Cancellation: of the block, resets all connections and leaves nothing.
    Thread safety: none; a proxy belongs to one event loop.
    """

    host = "127.0.0.1"

    def __init__(self, host: str | PathLike[str], port: int | None = None) -> None:
        self.port: int = 0
        self.connections: int = 0
        self.cuts: int = 0
        self.bytes_lost: int = 0
        self._server = fspath(host), port
        self._addresses: list[tuple[int, Any]] = []
        self._open: set[_Connection] = set()
        self._ways: dict[Direction, _Direction] = {"up": _Direction(), "down": _Direction()}
        self._changed = anyio.Event()
        self._clear()

    def _clear(self) -> None:
        self._piece, self._every = math.inf, 0.0
        self._half_open = self._losing = self._refusing = False
        for way in self._ways.values():
            way.latency = way.jitter = 0.0
            way.limit = math.inf

    @property
    def bytes_up(self) -> int:
        """The number of bytes that were passed on to the server."""
        return self._ways["up"].carried

    @property
    def bytes_down(self) -> int:
        """The number of bytes that were passed on to clients."""
        return self._ways["down"].carried

    def __repr__(self) -> str:
        at = ":".join(str(part) for part in self._server if part is not None)
        return f"<FaultProxy {self.host}:{self.port} to {at}, open={len(self._open)} cuts={self.cuts}>"

    # what can be set

    def latency(self, seconds: Seconds, *, jitter: Seconds = 0.0, direction: Direction | None = None) -> None:
        """Have bytes arrive `seconds` late, and at random up to `jitter` seconds more, in one direction or in each.

        They stay in order, and do not wait for one another. With `math.inf` the link is frozen: nothing arrives until
        the latency is changed.
        """
        seconds, jitter = seconds_of(seconds), seconds_of(jitter)
        if not seconds >= 0:
            raise ValueError(f"seconds: zero or more, not {seconds!r}")
        if not 0 <= jitter < math.inf:
            raise ValueError(f"jitter: seconds, zero or more, not {jitter!r}")
        for name in ("up", "down") if direction is None else (direction,):
            way = self._way(name)
            way.latency, way.jitter = seconds, jitter
        self._change()

    def trickle(self, size: int, *, every: Seconds = 0.001) -> None:
        """Pass on at most `size` bytes at a time on each connection and way, with `every` seconds between."""
        if size < 1:
            raise ValueError(f"size: at least 1 byte, not {size!r}")
        every = seconds_of(every)
        if not every >= 0:
            raise ValueError(f"every: seconds, zero or more, not {every!r}")
        self._piece, self._every = size, every
        self._change()

    def cut_after(self, count: int, direction: Direction = "down") -> None:
        """Let `count` more bytes pass in a direction, of all connections together, and reset the one they end on. Once.

        0 cuts instead of passing on the next bytes.
        """
        if count < 0:
            raise ValueError(f"count: bytes, zero or more, not {count!r}")
        self._way(direction).limit = count

    def lose_reply(self) -> None:
        """Let the next request reach the server, drop what comes back after it, and reset that connection. Once.

        For protocols in which a client asks and the server answers: the request is what next goes up on any connection,
        the reply what next comes down on it.
        """
        self._losing = True

    def half_open(self) -> None:
        """Swallow all bytes in both directions, and close nothing, as when the other machine has vanished.

        `heal` resets the connections that have lost something, as when it is back and knows them no more.
        """
        self._half_open = True

    def refuse(self) -> None:
        """Reset new connections at once. The others go on."""
        self._refusing = True

    def cut(self) -> None:
        """Reset all connections now. New ones are taken on."""
        for connection in self._open:
            self._cut(connection)

    def heal(self) -> None:
        """Take back all settings. What was held back arrives; a connection that has lost bytes is reset."""
        self._clear()
        self._change()
        for connection in self._open:
            connection.losing = False
            if connection.torn:
                self._cut(connection)

    # inside

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        host, port = self._server
        if port is None:
            self._addresses = [(socket.AF_UNIX, host)]
        else:
            addresses = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._addresses = [(family, address) for family, *_, address in addresses]
        with socket.create_server((self.host, 0)) as listener:
            listener.setblocking(False)
            self.port = listener.getsockname()[1]
            async with unwrapped_task_group() as group:
                group.start_soon(self._listen, listener, group)
                try:
                    yield self
                finally:
                    group.cancel_scope.cancel()

    def _way(self, direction: Direction) -> _Direction:
        try:
            return self._ways[direction]
        except KeyError:
            raise ValueError(f"direction: 'up' or 'down', not {direction!r}") from None

    def _change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _cut(self, connection: _Connection) -> None:
        self.cuts += not connection.scope.cancel_called
        connection.scope.cancel()

    async def _listen(self, listener: socket.socket, group: TaskGroup) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except BlockingIOError:
                await anyio.wait_readable(listener)
                continue
            if self._refusing:
                _close(client, reset=True)
            else:
                self.connections += 1
                connection = _Connection(client)
                self._open.add(connection)
                group.start_soon(self._serve, connection)

    async def _serve(self, connection: _Connection) -> None:
        reset = True
        try:
            with connection.scope:
                client, server = connection.sockets[0], await self._connect(connection)
                if server is None:
                    return
                _prepare(client)
                async with anyio.create_task_group() as group:
                    self._carry(group, connection, "up", client, server)
                    self._carry(group, connection, "down", server, client)
                reset = connection.scope.cancel_called
        finally:
            self._open.discard(connection)
            for each in connection.sockets:
                _close(each, reset=reset)

    async def _connect(self, connection: _Connection) -> socket.socket | None:
        for family, address in self._addresses:
            server = socket.socket(family, socket.SOCK_STREAM)
            connection.sockets.append(server)
            _prepare(server)
            try:
                server.connect(address)
            except BlockingIOError:
                await anyio.wait_writable(server)
            except OSError:
                continue
            if not server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return server
        return None

    def _carry(
        self,
        group: TaskGroup,
        connection: _Connection,
        direction: Direction,
        source: socket.socket,
        target: socket.socket,
    ) -> None:
        send, receive = create_memory_object_stream[_Piece](_UNDER_WAY)
        group.start_soon(self._read, connection, direction, source, send)
        group.start_soon(self._deliver, connection, direction, receive, target)

    async def _read(
        self,
        connection: _Connection,
        direction: Direction,
        source: socket.socket,
        queue: MemoryObjectSendStream[_Piece],
    ) -> None:
        with queue:
            while True:
                try:
                    chunk = await _receive(source)
                except OSError:
                    chunk = None
                if direction == "down" and connection.losing:
                    self._cut(connection)
                    return
                await queue.send((anyio.current_time(), random(), chunk))
                if not chunk:
                    return

    async def _deliver(
        self,
        connection: _Connection,
        direction: Direction,
        queue: MemoryObjectReceiveStream[_Piece],
        target: socket.socket,
    ) -> None:
        way = self._ways[direction]
        with queue:
            async for came, share, chunk in queue:
                while (wait := came + way.latency + share * way.jitter - anyio.current_time()) > 0:
                    with anyio.move_on_after(wait):
                        await self._changed.wait()
                try:
                    if await self._pass_on(connection, direction, chunk, target):
                        return
                except OSError:  # the other side has gone
                    connection.scope.cancel()
        # Its end was swallowed.
        await anyio.sleep_forever()

    async def _pass_on(
        self, connection: _Connection, direction: Direction, chunk: bytes | None, target: socket.socket
    ) -> bool:
        if self._half_open:
            connection.torn = True
            self.bytes_lost += len(chunk or b"")
            return False
        if chunk is None:
            connection.scope.cancel()
            return True
        if not chunk:
            target.shutdown(socket.SHUT_WR)
            return True
        if direction == "up" and self._losing:
            self._losing, connection.losing = False, True
        way = self._ways[direction]
        while chunk:
            size = int(min(len(chunk), self._piece, way.limit))
            way.limit -= size
            if last := way.limit == 0:
                way.limit = math.inf
            await _send(target, chunk[:size])
            way.carried += size
            if last:
                self._cut(connection)
                return True
            if chunk := chunk[size:]:
                with anyio.move_on_after(self._every):
                    await self._changed.wait()
        return False


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def _receive(sock: socket.socket) -> bytes:
    while True:
        try:
            return sock.recv(_CHUNK)
        except BlockingIOError:
            await anyio.wait_readable(sock)


async def _send(sock: socket.socket, chunk: bytes) -> None:
    while chunk:
        try:
            chunk = chunk[sock.send(chunk) :]
        except BlockingIOError:
            await anyio.wait_writable(sock)


def _close(sock: socket.socket, *, reset: bool) -> None:
    if reset:
        # To linger for no time is what makes closing a reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
