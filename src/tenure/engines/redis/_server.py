"""A server as the place of the only shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hiredis

from tenure.errors import StoreUnavailable

from ._connection import Connection
from ._endpoint import Endpoint
from ._handshake import TRANSIENT, code_of
from ._resp import pack
from ._scripts import loads

_CHANNEL = "tenure:"


class Server:
    """Sends commands over one connection.

    `on_message(process, message)` is called for each message, `missed()` when messages may have been lost, and `lost()`
    when the connection has broken.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        on_message: Callable[[str, bytes], None],
        missed: Callable[[], None],
        lost: Callable[[], None],
        *,
        prefix: str,
        response_timeout: float,
        replicas: int,
    ) -> None:
        self._endpoint = endpoint
        self._on_message = on_message
        self._connection = Connection(
            endpoint,
            self._on_channel,
            missed,
            lost=lost,
            probes={prefix: "1"},
            response_timeout=response_timeout,
            replicas=replicas,
        )
        self.connections = {0: self._connection}

    def __str__(self) -> str:
        return str(self._endpoint)

    async def execute(self, _shard: int, commands: list[bytes], mark: bytes) -> list[Any]:
        replies = await self._connection.execute(commands, mark=mark)
        lost: list[int] = []
        for i, reply in enumerate(replies):
            if isinstance(reply, hiredis.ReplyError):
                if self.may_retry(reply):
                    lost.append(i)
                elif code_of(reply) in TRANSIENT:
                    raise StoreUnavailable(f"{self}: {reply}")
        if lost:
            await self._connection.execute([pack([load]) for load in loads()])
            for i, reply in zip(lost, await self.execute(0, [commands[i] for i in lost], mark), strict=True):
                replies[i] = reply
        return replies

    def may_retry(self, error: hiredis.ReplyError) -> bool:
        """True if the server has lost its scripts. A server that is not ready is connected to anew."""
        code = code_of(error)
        if code in TRANSIENT:
            self._connection.drop(str(error))
        return code == "NOSCRIPT"

    def _on_channel(self, channel: str, message: bytes | None) -> None:
        if message is not None:
            self._on_message(channel.removeprefix(_CHANNEL), message)

    def listen(self, process: str) -> None:
        self._connection.channels.add(_CHANNEL + process)

    async def listening(self, process: str) -> None:
        await self._connection.subscribe(_CHANNEL + process)

    def forget(self, process: str) -> None:
        self._connection.unsubscribe(_CHANNEL + process)

    async def run(self, started: Callable[[], None] | None) -> None:
        await self._connection.run(started)
