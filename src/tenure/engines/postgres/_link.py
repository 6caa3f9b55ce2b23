"""An engine's link to its server: one connection for statements, one on which the hints come."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from secrets import token_hex

import anyio

from tenure.engine import RESPONSE_TIMEOUT
from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group

from ._address import Address
from ._greeting import SETTINGS, ask, farewell, greet, of_link
from ._probe import Probe
from ._refusals import refused_connection
from ._schema import check, creation, existence, version
from ._version import VERSION
from ._wire import Result, Statement, Wire, connect

LONGEST_UPDATE = 600.0
"""Seconds that the schema may take to be made or brought up to date: a step may build an index."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0
"""Seconds between attempts to connect: twice as long each time, less up to a half by chance."""

LOOK_AGAIN = 1.0
"""Seconds after which everybody asks again who waits, less up to a half by chance, when no hints come."""


class Link:
    """Statements go out in the order in which they came, and a caller that is cancelled leaves that order as it is.

    Through a pooler of transactions nothing is kept on the server's connections. If then there is no direct address,
    no hints come, `deaf` says so, and everybody who waits asks again from time to time.

    `hear(channel, payload)` is called for each notification, `missed()` when some may have been lost, and
    `reconnected()` when that is so and the server may be another.

    Thread safety: none.
    """

    def __init__(
        self,
        address: Address,
        schema: str,
        hear: Callable[[str, str], None],
        reconnected: Callable[[], None],
        missed: Callable[[], None],
        *,
        response_timeout: float = RESPONSE_TIMEOUT,
    ) -> None:
        self.address = address
        self.channels: dict[str, anyio.Event] = {}
        self.deaf = ""
        self._schema = schema
        self._hear = hear
        self._reconnected = reconnected
        self._missed = missed
        self._response_timeout = response_timeout
        self._settings = SETTINGS | {"lock_timeout": f"{response_timeout * 500:.0f}ms"}
        self._commands: Wire | None = None
        self._listening: Wire | None = None
        self._farewell: Statement | None = None
        self._probe = Probe()
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
        subscribed = self.channels[channel] = anyio.Event()
        if self.deaf:
            subscribed.set()
        elif self._listening is not None:
            self._tell(f'LISTEN "{channel}"', channel)
        await subscribed.wait()

    def forget(self, channel: str) -> None:
        """Hear no more from there."""
        known = self.channels.pop(channel, None) is not None
        if known and self._listening is not None and not self.deaf:
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
                    if self.deaf:
                        group.start_soon(self._look_again, name="tenure postgres without hints")
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
            with anyio.fail_after(self._response_timeout) as scope:
                servers: list[int] = []
                for part, address, hear in (
                    ("", self.address, _nothing),
                    (" hints", self.address.direct or self.address, self._notified),
                ):
                    conninfo = await address.conninfo(application_name=name + part, client_encoding="UTF8")
                    wire = await connect(conninfo, hear)
                    wires.append(wire)
                    start(wire.run, name="tenure postgres link")
                    servers.append(await greet(address, wire, self._settings))
                commands, listening = wires
                await self._get_ready(listening, scope)
                if self._farewell is not None:
                    await self._end_former(listening, self._farewell)
                if commands.before is not None:
                    commands.before = of_link(self._schema, name, self._settings)
                self.deaf = await self._deafness(name, commands, listening, shared=servers[0] == servers[1])
                heard: set[str] = set()
                # another store may come meanwhile
                while not self.deaf and (channels := self.channels.keys() - heard):
                    for channel in channels:
                        await ask(self.address, listening, Statement(f'LISTEN "{channel}"'))
                    heard |= channels
        except TimeoutError:
            raise StoreUnavailable(f"{self.address}: no answer within {self._response_timeout:g} s") from None
        except OSError as error:
            raise refused_connection(self.address, str(error)) from None
        self._farewell = farewell(self._schema, name, commands, self._response_timeout / 2)
        self._dropped = anyio.Event()
        self._commands, self._listening = commands, listening
        self._up.set()
        for subscribed in self.channels.values():
            subscribed.set()

    async def _get_ready(self, wire: Wire, scope: anyio.CancelScope) -> None:
        (exists,) = (await ask(self.address, wire, existence(self._schema)))[0]
        if exists == b"\0" or await self._version(wire) < VERSION:
            deadline, scope.deadline = scope.deadline, anyio.current_time() + LONGEST_UPDATE
            await ask(self.address, wire, creation(self._schema))
            scope.deadline = max(deadline, anyio.current_time() + self._response_timeout / 2)
        check(self.address, self._schema, await self._version(wire))

    async def _version(self, wire: Wire) -> int:
        (found,) = (await ask(self.address, wire, version(self._schema)))[0]
        return int.from_bytes(found, "big")

    async def _end_former(self, wire: Wire, farewell: Statement) -> None:
        if [b"\0"] in await ask(self.address, wire, farewell):
            raise StoreUnavailable(f"{self.address}: the server has not ended the connection before")

    async def _deafness(self, name: str, commands: Wire, listening: Wire, *, shared: bool) -> str:
        """Why no hints come, or empty. `shared`: both had the same connection of the server's, so it is nobody's."""
        if commands.before is None and self.address.direct is None:
            return ""
        if not shared and await self._probe.comes_back(self.address, name, commands, listening):
            return ""
        deaf = (
            f"{self.address.direct or self.address}: LISTEN does not work here, as it does not through a pooler of "
            f"transactions: whoever waits asks again every {LOOK_AGAIN:g} s; give the server's own address with "
            "direct=postgresql://HOST:PORT in the URL"
        )
        warnings.warn(deaf, RuntimeWarning, stacklevel=2)
        return deaf

    async def _look_again(self) -> None:
        while True:
            await anyio.sleep(LOOK_AGAIN * random.uniform(0.5, 1))
            self._missed()

    def _notified(self, channel: bytes, payload: bytes) -> None:
        place, text = channel.decode(), payload.decode()
        if not self._probe.hear(place, text):
            self._hear(place, text)

    async def _watch(self, wires: Sequence[Wire]) -> None:
        """Break the connections when they are dropped, or when the server does not answer for too long."""
        while True:
            with anyio.move_on_after(self._response_timeout / 2):
                await self._dropped.wait()
                raise OSError(self._trouble)
            for wire in wires:
                if wire.oldest is None:
                    wire.send([Statement("SELECT 1")])
                elif anyio.current_time() - wire.oldest > self._response_timeout:
                    raise OSError(f"no answer within {self._response_timeout:g} s")

    def _break(self, wires: Sequence[Wire]) -> None:
        self._commands = self._listening = None
        self._up = anyio.Event()
        for wire in wires:
            wire.close(self._trouble or "the connection was closed")


def _nothing(_channel: bytes, _payload: bytes) -> None:
    """Hints come on the other connection; through a pooler some may be for somebody else."""


def _words(errors: BaseExceptionGroup[OSError]) -> str:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split())
