"""An engine's link to its server: one connection for statements, one on which the hints come."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any

import anyio

from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group

from ._address import Address
from ._refusals import OLDEST, refusal, refused_connection
from ._schema import check, creation, existence, version
from ._version import VERSION
from ._wire import Result, Statement, Wire, connect, failed, message_of, rows, state_of

PATIENCE = 5.0
"""Seconds after which a server that does not answer is given up."""

LONGEST_UPDATE = 600.0
"""Seconds that the schema may take to be made or brought up to date: a step may build an index."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0
"""Seconds between attempts to connect: twice as long each time, less up to a half by chance."""

_END = "SELECT pg_terminate_backend(pid, $2) FROM pg_stat_activity WHERE application_name = $1 AND usename = user"
SETTINGS = {
    "default_transaction_isolation": "read committed",
    "client_min_messages": "error",
    # a plan that was made while a table was empty must not last when it is full
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # nor may one that sorts what an index has in order
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    # planning anew takes longer than most statements do
    "plan_cache_mode": "force_generic_plan",
    # which would be compiled for each call, at what a forbidden scan is said to cost
    "jit": "off",
}
"""What is set on each connection."""


class Link:
    """Statements go out in the order in which they came, and a caller that is cancelled leaves that order as it is.

    `hear(channel, payload)` is called for each notification, and `reconnected()` when some may have been lost.

    Thread safety: none.
    """

    def __init__(
        self,
        address: Address,
        schema: str,
        hear: Callable[[str, str], None],
        reconnected: Callable[[], None],
        *,
        patience: float = PATIENCE,
    ) -> None:
        self.address = address
        self.channels: dict[str, anyio.Event] = {}
        self._schema = schema
        self._hear = hear
        self._reconnected = reconnected
        self._patience = patience
        self._commands: Wire | None = None
        self._listening: Wire | None = None
        self._former = ""
        self._up = anyio.Event()
        self._trouble = ""
        self._dropped = anyio.Event()

    async def execute(self, statements: Sequence[Statement]) -> list[Result]:
        """Send statements, each a transaction, once the server can be reached; give the result of each.

        Raises `StoreUnavailable` when the connection broke before the last of them was answered.
        Cancellation: they may or may not be executed.
        """
        while self._commands is None:
            await self._up.wait()
        try:
            return await self._commands.send(statements).wait()
        except OSError as error:
            raise StoreUnavailable(f"{self.address}: {error}") from None

    async def subscribe(self, channel: str) -> None:
        """Hear what is told there. Cancellation: it is heard or not."""
        self.channels[channel] = anyio.Event()
        if self._listening is not None:
            self._tell(f'LISTEN "{channel}"', channel)
        await self.channels[channel].wait()

    def forget(self, channel: str) -> None:
        """Hear no more from there."""
        if self.channels.pop(channel, None) is not None and self._listening is not None:
            self._tell(f'UNLISTEN "{channel}"')

    def _tell(self, sql: str, channel: str = "") -> None:
        assert self._listening is not None
        try:
            batch = self._listening.send([Statement(sql)])
        except OSError as error:
            self.drop(str(error))
        else:
            if channel:
                batch.on_over = self.channels[channel].set

    async def run(self, opened: Callable[[], None] | None) -> None:
        """Connect, and connect again whenever the connection breaks; `opened()` is called once it stands.

        With `opened`, raises what the first attempt raises: `StoreUnavailable` or `EngineError`.
        Cancellation: this is how it ends; the connections are closed.
        """
        pause = FIRST_PAUSE
        while True:
            wires: list[Wire] = []
            try:
                async with unwrapped_task_group() as group:
                    try:
                        await self._connect(wires, group.start_soon)
                    except (StoreUnavailable, EngineError) as error:
                        if opened is not None:
                            raise
                        raise OSError(str(error)) from None
                    pause = FIRST_PAUSE
                    if opened is not None:
                        opened()
                        opened = None
                    else:
                        self._reconnected()
                    await self._watch(wires)
            except* OSError as errors:
                self._trouble = _words(errors) or "the server closed the connection"
            finally:
                self._break(wires)
            await anyio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, LONGEST_PAUSE)

    def drop(self, reason: str) -> None:
        """Give the connections up, and make others."""
        self._trouble = reason
        self._dropped.set()

    async def _connect(self, wires: list[Wire], start: Callable[..., object]) -> None:
        """Open both connections, and carry what is sent on them."""
        name = f"tenure {token_hex(8)}"
        try:
            with anyio.fail_after(self._patience) as scope:
                for part in ("", " hints"):
                    conninfo = await self.address.conninfo(
                        application_name=name + part, client_encoding="UTF8"
                    )
                    wire = await connect(conninfo, self._notified)
                    wires.append(wire)
                    start(wire.run, name="tenure postgres link")
                    await self._greet(wire)
                commands, listening = wires
                await self._get_ready(commands, scope)
                if self._former:
                    await self._end_former(commands)
                for channel in self.channels:
                    await self._ask(listening, Statement(f'LISTEN "{channel}"'))
        except TimeoutError:
            raise StoreUnavailable(f"{self.address}: no answer within {self._patience:g} s") from None
        except OSError as error:
            raise refused_connection(self.address, str(error)) from None
        self._former = name
        self._dropped = anyio.Event()
        self._commands, self._listening = commands, listening
        self._up.set()
        for subscribed in self.channels.values():
            subscribed.set()

    async def _greet(self, wire: Wire) -> None:
        if wire.server_version < OLDEST * 10000:
            found = wire.parameter("server_version")
            raise EngineError(f"{self.address}: PostgreSQL {OLDEST} or later is needed, this is {found}")
        if "on" in (wire.parameter("in_hot_standby"), wire.parameter("default_transaction_read_only")):
            raise StoreUnavailable(
                f"{self.address}: this is a replica, or read-only, and cannot be written to"
            )
        settings = SETTINGS | {"lock_timeout": f"{self._patience * 500:.0f}ms"}
        assignments = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        await self._ask(wire, Statement(f"SELECT {assignments}"))

    async def _get_ready(self, wire: Wire, scope: anyio.CancelScope) -> None:
        (exists,) = (await self._ask(wire, existence(self._schema)))[0]
        if exists == b"\0" or await self._version(wire) < VERSION:
            deadline, scope.deadline = scope.deadline, anyio.current_time() + LONGEST_UPDATE
            await self._ask(wire, creation(self._schema))
            scope.deadline = max(deadline, anyio.current_time() + self._patience / 2)
        check(self.address, self._schema, await self._version(wire))

    async def _version(self, wire: Wire) -> int:
        (found,) = (await self._ask(wire, version(self._schema)))[0]
        return int.from_bytes(found, "big")

    async def _end_former(self, wire: Wire) -> None:
        """What the server may still read from the connection before must not come behind what is sent from now on."""
        patience = int(self._patience * 500)
        if [b"\0"] in await self._ask(wire, Statement.of(_END, self._former, patience)):
            raise StoreUnavailable(f"{self.address}: the server has not ended the connection before")

    async def _ask(self, wire: Wire, statement: Statement) -> list[Any]:
        (result,) = await wire.send([statement]).wait()
        if failed(result):
            raise refusal(self.address, state_of(result), message_of(result))
        return rows(result)

    def _notified(self, channel: bytes, payload: bytes) -> None:
        self._hear(channel.decode(), payload.decode())

    async def _watch(self, wires: Sequence[Wire]) -> None:
        """Break the connections when they are dropped, or when the server does not answer for too long."""
        while True:
            with anyio.move_on_after(self._patience / 2):
                await self._dropped.wait()
                raise OSError(self._trouble)
            for wire in wires:
                if wire.oldest is None:
                    wire.send([Statement("SELECT 1")])
                elif anyio.current_time() - wire.oldest > self._patience:
                    raise OSError(f"no answer within {self._patience:g} s")

    def _break(self, wires: Sequence[Wire]) -> None:
        self._commands = self._listening = None
        self._up = anyio.Event()
        for wire in wires:
            wire.close(self._trouble or "the connection was closed")


def _words(errors: BaseExceptionGroup[OSError]) -> str:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split())
