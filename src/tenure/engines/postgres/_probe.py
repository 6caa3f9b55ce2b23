"""A test whether notifications arrive: through a transaction pooler they do not."""

from __future__ import annotations

import anyio

from ._address import Address
from ._handshake import ask
from ._pipeline import Pipeline, Statement

_CHANNEL = "tenure.probe"
_LONGEST = 1.0
"""Seconds that a notification may take on its way before it counts as lost."""


class Probe:
    def __init__(self) -> None:
        self._name = ""
        self._came = anyio.Event()

    def on_notification(self, channel: str, payload: str) -> bool:
        if channel == _CHANNEL and payload == self._name:
            self._came.set()
        return channel == _CHANNEL

    async def comes_back(self, address: Address, name: str, commands: Pipeline, listening: Pipeline) -> bool:
        """True if a notification that is sent on one connection arrives on the other.

        Raises what `ask` raises.
        Cancellation: close the connections.
        """
        self._name, self._came = name, anyio.Event()
        await ask(address, listening, Statement(f'LISTEN "{_CHANNEL}"'))
        await ask(address, commands, Statement.of("SELECT pg_notify($1, $2)", _CHANNEL, name))
        with anyio.move_on_after(_LONGEST):
            await self._came.wait()
        came = self._came.is_set()
        await ask(address, listening, Statement(f'UNLISTEN "{_CHANNEL}"'))
        return came
