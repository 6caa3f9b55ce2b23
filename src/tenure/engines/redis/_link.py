"""One connection on which everything travels: the commands of all callers, and the server's messages."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import anyio
import hiredis
from anyio.abc import ByteStream

from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group

from ._address import Address
from ._handshake import greet
from ._resp import Command, pack

PATIENCE = 5.0
"""Seconds after which a server that does not answer is given up."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0
"""Seconds between attempts to connect: twice as long each time, less up to a half by chance."""


class _Batch:
    """Commands that were sent together, and what came back so far."""

    __slots__ = ("count", "done", "error", "replies", "sent")

    def __init__(self, count: int, sent: float) -> None:
        self.count = count
        self.sent = sent
        self.replies: list[Any] = []
        self.error: Exception | None = None
        self.done = anyio.Event()


class Link:
    """Commands go out in the order in which they came, and a caller that is cancelled leaves that order as it is.

    `hear(channel, message)` is called for each message, `reconnected()` when messages may have been lost.

    Thread safety: none.
    """

    def __init__(
        self,
        address: Address,
        hear: Callable[[str, bytes], None],
        reconnected: Callable[[], None],
        *,
        patience: float = PATIENCE,
    ) -> None:
        self.address = address
        self.channels: dict[str, anyio.Event] = {}
        self._hear = hear
        self._reconnected = reconnected
        self._patience = patience
        self._number = 0
        self._out: list[bytes] = []
        self._something_to_send = anyio.Event()
        self._pending: deque[_Batch] = deque()
        self._up = anyio.Event()
        self._trouble = ""
        self._dropped = anyio.Event()

    async def execute(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands, in one piece, once the server can be reached; give the reply to each.

        Raises `StoreUnavailable` when the connection broke before the last of them was answered.
        Cancellation: they may or may not be executed.
        """
        packed = pack(commands)
        while not self._up.is_set():
            await self._up.wait()
        batch = _Batch(len(commands), anyio.current_time())
        self._pending.append(batch)
        self._send(packed)
        await batch.done.wait()
        if batch.error is not None:
            raise batch.error
        return batch.replies

    async def subscribe(self, channel: str) -> None:
        """Hear what is published there. Cancellation: it is heard or not."""
        self.channels[channel] = anyio.Event()
        if self._up.is_set():
            self._send(pack([("SUBSCRIBE", channel)]))
        await self.channels[channel].wait()

    def forget(self, channel: str) -> None:
        """Hear no more from there."""
        known = self.channels.pop(channel, None)
        if known is not None and self._up.is_set():
            self._send(pack([("UNSUBSCRIBE", channel)]))

    async def run(self, opened: Callable[[], None] | None) -> None:
        """Connect, and connect again whenever the connection breaks; `opened()` is called once it stands.

        With `opened`, raises what the first attempt raises: `StoreUnavailable` or `EngineError`.
        Cancellation: this is how it ends; the connection is closed.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                stream, reader = await self._connect()
            except (StoreUnavailable, EngineError) as error:
                if opened is not None:
                    raise
                self._trouble = str(error)
                await anyio.sleep(pause * random.uniform(0.5, 1))
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            try:
                self._up.set()
                for subscribed in self.channels.values():
                    subscribed.set()
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

    def drop(self, reason: str) -> None:
        """Give the connection up, and make another."""
        self._trouble = reason
        self._dropped.set()

    async def _connect(self) -> tuple[ByteStream, hiredis.Reader]:
        reader = hiredis.Reader()
        stream = None
        try:
            with anyio.fail_after(self._patience):
                stream = await self.address.connect()
                self._number = await greet(stream, reader, self.address, self._number, self.channels)
        except BaseException as error:
            if stream is not None:
                await anyio.aclose_forcefully(stream)
            if isinstance(error, TimeoutError):
                message = f"{self.address}: no answer within {self._patience:g} s"
                raise StoreUnavailable(message) from None
            if isinstance(error, hiredis.ProtocolError):
                raise EngineError(f"{self.address}: this is no Redis server: {error}") from None
            if isinstance(error, anyio.EndOfStream | anyio.BrokenResourceError):
                raise StoreUnavailable(f"{self.address}: the server closed the connection") from error
            if isinstance(error, OSError):
                raise StoreUnavailable(f"{self.address}: {_reason(error)}") from error
            raise
        return stream, reader

    async def _converse(self, stream: ByteStream, reader: hiredis.Reader) -> None:
        self._dropped = anyio.Event()
        async with unwrapped_task_group() as group:
            group.start_soon(self._write, stream, name="tenure redis writer")
            group.start_soon(self._watch, name="tenure redis watch")
            while True:
                self._take_in(reader)
                reader.feed(await stream.receive(1 << 18))

    def _take_in(self, reader: hiredis.Reader) -> None:
        while (reply := reader.gets()) is not False:
            if isinstance(reply, hiredis.PushNotification):
                self._take_message(reply)
                continue
            batch = self._pending[0]
            batch.replies.append(reply)
            if len(batch.replies) == batch.count:
                self._pending.popleft()
                batch.done.set()

    def _take_message(self, push: Sequence[Any]) -> None:
        channel = push[1].decode()
        if push[0] == b"message":
            self._hear(channel, push[2])
        elif push[0] == b"subscribe" and channel in self.channels:
            self.channels[channel].set()

    async def _write(self, stream: ByteStream) -> None:
        while True:
            await self._something_to_send.wait()
            self._something_to_send = anyio.Event()
            out, self._out = self._out, []
            await stream.send(b"".join(out))

    async def _watch(self) -> None:
        """Break the connection when it is dropped, or when the server does not answer for too long."""
        while True:
            with anyio.move_on_after(self._patience / 2):
                await self._dropped.wait()
                raise anyio.BrokenResourceError(self._trouble)
            if not self._pending:
                self._pending.append(_Batch(1, anyio.current_time()))
                self._send(pack([("PING",)]))
            elif anyio.current_time() - self._pending[0].sent > self._patience:
                raise TimeoutError(f"no answer within {self._patience:g} s")

    def _send(self, packed: bytes) -> None:
        self._out.append(packed)
        self._something_to_send.set()

    def _break(self) -> None:
        """Tell everybody who waits for a reply that there will be none."""
        self._up = anyio.Event()
        self._out.clear()
        pending, self._pending = self._pending, deque()
        for batch in pending:
            batch.error = StoreUnavailable(f"{self.address}: {self._trouble or 'the connection was closed'}")
            batch.done.set()


def _reason(error: OSError) -> str:
    """What the system says; anyio puts the reasons of several attempts into a group behind its own words."""
    inner = cast("Sequence[BaseException]", getattr(error.__cause__, "exceptions", (error.__cause__,)))[0]
    found = inner if isinstance(inner, OSError) else error
    return found.strerror or str(found) or type(found).__name__
