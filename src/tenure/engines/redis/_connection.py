"""The connection that carries the commands of all callers, and the server's messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from socket import socket
from typing import Any, cast

import anyio
import hiredis
from anyio.abc import ByteStream

import tenure.engine as e
from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group
from tenure.waiting import Backoff, Parked, on_readable, park, wake

from ._endpoint import Endpoint
from ._handshake import Greeting, exchange, handshake, is_reply, refusal, refused_by_tls, shown, version_of
from ._resp import pack
from ._socket import MOST, PlainSocket, plain

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0
"""Seconds between attempts to connect: twice as long each time, less up to a half by chance."""

ENOUGH = 8
"""Below this number of commands under way each is sent at once; above, this number leave together, or all of a turn."""


class _Batch:
    __slots__ = ("count", "error", "parked", "replies")

    def __init__(self, count: int) -> None:
        self.count = count
        self.replies: list[Any] = []
        self.error: StoreUnavailable | None = None
        self.parked = park()

    def take(self, reply: Any) -> None:
        self.replies.append(reply)
        if isinstance(reply, StoreUnavailable):
            self.error = self.error or type(reply)(*reply.args)
        if len(self.replies) == self.count:
            wake(self.parked)


class Connection:
    """Sends commands in the order in which they came; a caller that is cancelled does not change that order.

    With `replicas`, replies to commands that were sent together, with marks (see `mark`), are delivered once that many
    replicas have acknowledged all that the server has done. After half of the response timeout, each is a
    `StoreUnavailable`, unless it is an error. `on_message(channel, message)` is called for each message, with None when
    the server ends the subscription, `lost()` when the connection has broken, and `reconnected()` when messages may
    have been lost.
    """

    def __init__(
        self,
        address: Endpoint,
        on_message: Callable[[str, bytes | None], None],
        reconnected: Callable[[], None],
        *,
        lost: Callable[[], None],
        probes: Mapping[str, str] | None = None,
        response_timeout: float = e.RESPONSE_TIMEOUT,
        replicas: int = 0,
    ) -> None:
        self.address = address
        self._probes = probes or {}
        self.channels: set[str] = set()
        """The channels to which every connection is subscribed."""
        self._on_message = on_message
        self._reconnected = reconnected
        self._lost = lost
        self._response_timeout = response_timeout
        self._greeting: Greeting | None = None
        self._closed = False
        self._out: list[bytes] = []
        self._idle_writer: Parked | None = None
        self._pending: deque[Callable[[Any], object]] = deque()
        self._replies = 0
        self._replicas = replicas
        # the server counts as gone after twice that time
        self._wait = pack([("WAIT", replicas, round(500 * response_timeout))])
        self._held: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._marks: set[bytes] = set()
        """The marks of the commands that have not left yet."""
        self._writing = False
        self._socket: socket | None = None
        """The socket, where a command may be sent at once; None where the connection is encrypted, or not up."""
        self._up = anyio.Event()
        self.up = False
        """True while the connection is up; an attribute, since each operation reads it."""
        self._trouble = ""
        self._dropped = anyio.Event()

    @property
    def problem(self) -> str | None:
        return None if self.up else f"{self.address}: {self._trouble or 'the connection was closed'}"

    @property
    def version(self) -> tuple[int, ...]:
        return version_of(self._greeting.version) if self._greeting else ()

    async def execute(self, commands: Sequence[bytes], *, mark: bytes = b"") -> list[Any]:
        """Send packed commands, in one piece, once the server can be reached; return the reply to each.

        Without a mark they do not wait for the replicas.
        Raises `StoreUnavailable` when the connection broke before the last reply, or was closed.
        Cancellation: they may or may not be executed.
        """
        while not (self._up.is_set() or self._closed):
            await self._up.wait()
        if self._closed:
            raise StoreUnavailable(f"{self.address}: it is not used any more")
        batch = _Batch(len(commands))
        self.send(b"".join(commands), *[batch.take] * len(commands), mark=mark)
        await batch.parked
        if batch.error is not None:
            raise batch.error
        return batch.replies

    async def subscribe(self, channel: str) -> None:
        """Subscribe to a channel. Raises `EngineError` if the user may not. Cancellation: it may be subscribed."""
        self.channels.add(channel)
        reply = None
        while reply is None and not self._closed:
            # on the next connection, if this one breaks
            with suppress(StoreUnavailable):
                (reply,) = await self.execute([pack([("SUBSCRIBE", channel)])])
        if isinstance(reply, hiredis.ReplyError):
            raise refusal(self.address, reply)

    def send_oneway(self, packed: bytes) -> None:
        if self.up:
            self.send(packed)

    def unsubscribe(self, channel: str) -> None:
        self.channels.discard(channel)
        self.send_oneway(pack([("UNSUBSCRIBE", channel)]))

    async def run(self, opened: Callable[[], None] | None) -> None:
        """Connect, and connect again whenever the connection breaks; `opened()` is called once it is up.

        With `opened`, raises `StoreUnavailable` or `EngineError` of the first attempt.
        Cancellation: this is how it ends; the connection is closed.
        """
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                stream, reader = await self._connect()
            except (StoreUnavailable, EngineError) as error:
                if opened is not None:
                    raise
                self._trouble = str(error).removeprefix(f"{self.address}: ")
                self._lost()
                await backoff.pause()
                continue
            backoff.reset()
            try:
                self._writing = False
                self._socket = stream.socket if isinstance(stream, PlainSocket) else None
                self._up.set()
                self.up = not self._closed
                if opened is not None:
                    opened()
                    opened = None
                else:
                    self._reconnected()
                await self._converse(stream, reader)
            except* (OSError, anyio.EndOfStream, anyio.BrokenResourceError, hiredis.ProtocolError) as errors:
                self._trouble = str(errors.exceptions[0]) or "the server closed the connection"
            finally:
                self._break()
                await anyio.aclose_forcefully(stream)
            self._lost()

    def drop(self, reason: str) -> None:
        self._trouble = reason
        self._dropped.set()

    def close(self) -> None:
        """Fail every caller with `StoreUnavailable`, also later ones; then cancel `run`."""
        self._closed = True
        self.up = False
        self._up.set()

    async def _connect(self) -> tuple[ByteStream, hiredis.Reader]:
        reader = hiredis.Reader()
        stream = None
        try:
            with anyio.fail_after(self._response_timeout):
                stream = await plain(await self.address.connect())
                self._greeting = await handshake(
                    stream, reader, self.address, self._greeting, self.channels, self._probes
                )
                if self._replicas:
                    (reply,) = await exchange(stream, reader, [("WAIT", 0, 0)])
                    if isinstance(reply, hiredis.ReplyError):
                        raise refusal(self.address, reply)
        except BaseException as error:
            if stream is not None:
                await anyio.aclose_forcefully(stream)
            if isinstance(error, TimeoutError):
                message = f"{self.address}: no answer within {self._response_timeout:g} s"
                raise StoreUnavailable(message) from None
            if isinstance(error, hiredis.ProtocolError):
                raise EngineError(f"{self.address}: this is no Redis server: {error}") from None
            if isinstance(error, anyio.EndOfStream | anyio.BrokenResourceError):
                raise StoreUnavailable(
                    f"{self.address}: the server closed the connection: is it a Redis server?"
                ) from error
            if isinstance(error, OSError):
                if refused_by_tls(error):
                    raise EngineError(f"{self.address}: TLS: {_reason(error)}") from error
                raise StoreUnavailable(f"{self.address}: {_reason(error)}") from error
            raise
        return stream, reader

    async def _converse(self, stream: ByteStream, reader: hiredis.Reader) -> None:
        self._dropped = anyio.Event()
        async with unwrapped_task_group() as group:
            group.start_soon(self._write, stream, name="tenure redis writer")
            group.start_soon(self._watch, name="tenure redis watch")
            # something may have come with the greeting
            self._take_in(reader, b"")
            if isinstance(stream, PlainSocket):
                # where the loop can do so, without a task in between
                await on_readable(stream.socket, partial(self._receive, stream.socket, reader))
            while True:
                self._take_in(reader, await stream.receive())

    def _receive(self, source: socket, reader: hiredis.Reader) -> None:
        try:
            data = source.recv(MOST)
        except BlockingIOError:
            return
        if not data:
            raise anyio.EndOfStream
        self._take_in(reader, data)

    def _take_in(self, reader: hiredis.Reader, data: bytes) -> None:
        reader.feed(data)
        while (reply := reader.gets()) is not False:
            if isinstance(reply, hiredis.PushNotification) and not is_reply(reply):
                self._take_message(reply)
                continue
            if not self._pending:
                raise anyio.BrokenResourceError(f"a reply to no command: {shown(reply)}")
            self._replies += 1
            self._pending.popleft()(reply)

    def _take_message(self, push: Sequence[Any]) -> None:
        match push:
            case [b"message" | b"smessage", bytes(channel), bytes(message)]:
                self._on_message(channel.decode(errors="replace"), message)
            case [b"sunsubscribe", bytes(channel), *_]:
                self._on_message(channel.decode(errors="replace"), None)
            case _:
                pass

    async def _write(self, stream: ByteStream) -> None:
        while True:
            if not self._out:
                self._idle_writer = park()
                await self._idle_writer
            self._writing = True
            await stream.send(self._take_out())
            self._writing = False

    async def _watch(self) -> None:
        seen, looks = -1, 0
        used = asked = anyio.current_time()
        while True:
            with anyio.move_on_after(self._response_timeout / 2):
                await self._dropped.wait()
                raise anyio.BrokenResourceError(self._trouble)
            if await self.address.moved():
                raise anyio.BrokenResourceError("another server has become the primary")
            looks = looks + 1 if self._pending and self._replies == seen else 0
            time = anyio.current_time()
            if self._pending or self._replies > seen + 1:  # more than the answer to a PING
                used = time
            seen = self._replies
            if looks == 2:
                raise TimeoutError(f"no answer within {self._response_timeout:g} s")
            if time < used + e.IN_USE or time >= asked + e.SILENCE:
                asked = time
                self._check_order()

    def _check_order(self) -> None:
        """Ask for a reply that no other command gets: a reply that was lost or added shifts all replies behind it."""
        number = b"%d" % self._replies

        def check(reply: Any) -> None:
            if reply != number and not isinstance(reply, hiredis.ReplyError | StoreUnavailable):
                raise anyio.BrokenResourceError(f"a reply was lost or added: {shown(reply)} answers a PING")

        self.send(pack([("PING", number)]), check)

    def send(self, packed: bytes, *on_replies: Callable[[Any], object], mark: bytes = b"") -> None:
        """Send packed commands, if the connection is up; each of `on_replies` is called with the reply to one of them.

        If the connection breaks before, the argument is a `StoreUnavailable`, at which the function must not raise. For
        a reply that belongs to another command it raises `BrokenResourceError`, which breaks the connection. Without a
        `mark` the commands do not wait for the replicas.
        """
        few = len(self._pending) < ENOUGH
        if self._replicas and mark:
            self._marks.add(mark)
            self._pending.extend(partial(self._hold, take) for take in on_replies)
        else:
            self._pending.extend(on_replies)
        self._out.append(packed)
        if self._socket is not None and not self._writing and (few or len(self._out) >= ENOUGH):
            out = self._take_out()
            try:
                sent = self._socket.send(out)
            except OSError:  # also where the system takes no more
                sent = 0
            if sent < len(out):
                # the rest, and what comes from now on, is the writer's
                self._out, self._writing = [out[sent:]], True
        if self._out and self._idle_writer is not None:
            wake(self._idle_writer)
            self._idle_writer = None

    def _take_out(self) -> bytes:
        out, self._out = self._out, []
        if self._marks:
            # the server refuses the mark of a shard that moves, as it refuses the shard's operations
            out += *self._marks, self._wait
            self._pending += *[_nothing] * len(self._marks), self._confirm
            self._marks.clear()
        return b"".join(out)

    def _hold(self, take: Callable[[Any], object], reply: Any) -> None:
        if isinstance(reply, StoreUnavailable):
            take(reply)
        else:
            self._held.append((take, reply))

    def _confirm(self, count: Any) -> None:
        confirmed = isinstance(count, int) and count >= self._replicas
        while self._held:
            take, reply = self._held.popleft()
            # an error is no success that they could lack, and says more: where a shard is now, for instance
            if not confirmed and not isinstance(reply, hiredis.ReplyError):
                reply = StoreUnavailable(
                    f"{self.address}: of {self._replicas} replicas these have acknowledged: {count}"
                )
            take(reply)

    def _break(self) -> None:
        self._up = anyio.Event()
        self.up = False
        self._socket = None
        self._out.clear()
        self._marks.clear()
        pending, self._pending = self._pending, deque()
        error = StoreUnavailable(self.problem)
        self._confirm(error)
        for take in pending:
            take(error)


def _reason(error: OSError) -> str:
    """The system's reason; anyio puts the reasons of several attempts into a group behind its own words."""
    inner = cast("Sequence[BaseException]", getattr(error.__cause__, "exceptions", (error.__cause__,)))[0]
    found = inner if isinstance(inner, OSError) else error
    if isinstance(found, ConnectionRefusedError):
        return "connection refused: is the server running?"
    return found.strerror or str(found) or type(found).__name__


def _nothing(_: object) -> None:
    pass
