"""An engine's connections to its server: the first for statements, the second for hints."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from itertools import count
from secrets import token_hex

import anyio

import tenure.engine as e
from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group
from tenure.waiting import Backoff

from ._address import Address
from ._errors import connection_error
from ._handshake import SETTINGS, ask, beginning, handshake, termination
from ._pipeline import OnOver, Pipeline, Statement, connect
from ._probe import Probe
from ._schema import check, creation, existence, version
from ._version import VERSION

LONGEST_UPDATE = 600.0
"""Seconds that the schema may take to be made or brought up to date: a step may build an index."""

MOST_ATTEMPTS = 5
"""Attempts to open: a connection may break while it is made ready, as behind a pooler that mixes up answers."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0
"""Seconds between attempts to connect: twice as long each time, less up to a half by chance."""

LOOK_AGAIN = 1.0
"""Seconds after which all that wait ask again when no hints come, less up to a half by chance."""


class Connection:
    """Both connections. Statements leave in the order in which they came, also when a caller is cancelled.

    A transaction pooler keeps nothing on the server's connections. Without a direct address, no hints come then:
    `polling_reason` says why, and all that wait ask again from time to time.

    `on_notification(channel, payload)` is called for each notification, `missed()` when some may have been lost, and
    `lost()` when a connection has broken.
    """

    def __init__(
        self,
        address: Address,
        schema: str,
        on_notification: Callable[[str, str], None],
        missed: Callable[[], None],
        lost: Callable[[], None],
        *,
        response_timeout: float = e.RESPONSE_TIMEOUT,
    ) -> None:
        self.address = address
        self.channels: dict[str, anyio.Event] = {}
        self.polling_reason = ""
        self._schema = schema
        self._on_notification = on_notification
        self._missed = missed
        self._lost = lost
        self._response_timeout = response_timeout
        self._settings = SETTINGS | {"lock_timeout": f"{response_timeout * 500:.0f}ms"}
        self._commands: Pipeline | None = None
        self._listening: Pipeline | None = None
        self._termination: Statement | None = None
        self._probe = Probe()
        self._up = anyio.Event()
        self._trouble = ""
        self._dropped = anyio.Event()

    @property
    def problem(self) -> str | None:
        return None if self._commands else f"{self.address}: {self._trouble or 'the connection was closed'}"

    async def opened(self) -> None:
        while self._commands is None:
            await self._up.wait()

    def send(
        self, statements: Sequence[Statement], on_over: OnOver, pipeline: Pipeline | None = None
    ) -> None:
        """Send statements, each a transaction, while the connections are open; see `Pipeline.send`.

        `pipeline` is by default the connection for commands.
        """
        pipeline = pipeline or self._commands
        assert pipeline is not None
        try:
            pipeline.send(statements, on_over)
        except OSError as error:
            self.drop(str(error))  # then it calls `on_over`

    async def subscribe(self, channel: str) -> None:
        subscribed = self.channels[channel] = anyio.Event()
        if self.polling_reason:
            subscribed.set()
        elif self._listening is not None:
            self.send(
                [Statement(f'LISTEN "{channel}"')],
                lambda answer: isinstance(answer, OSError) or subscribed.set(),
                self._listening,
            )
        await subscribed.wait()

    def forget(self, channel: str) -> None:
        known = self.channels.pop(channel, None) is not None
        if known and self._listening is not None and not self.polling_reason:
            self.send([Statement(f'UNLISTEN "{channel}"')], _nothing, self._listening)

    async def run(self, opened: Callable[[], None] | None) -> None:
        """Connect, and connect again whenever the connection breaks; `opened()` is called once it stands.

        With `opened`, raises `StoreUnavailable` or `EngineError` of the first attempts.
        Cancellation: this is how it ends; the connections are closed.
        """
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        for attempt in count(1):
            pipelines: list[Pipeline] = []
            try:
                async with unwrapped_task_group() as group:
                    try:
                        await self._connect(pipelines, group.start_soon)
                    except (StoreUnavailable, EngineError) as error:
                        if opened is not None:
                            raise
                        raise OSError(str(error)) from None
                    backoff.reset()
                    if opened is not None:
                        opened()
                        opened = None
                    else:
                        self._missed()
                    if self.polling_reason:
                        group.start_soon(self._look_again, name="tenure postgres without hints")
                    await self._watch(pipelines)
            except* OSError as errors:
                self._trouble = _words(errors) or "the server closed the connection"
            finally:
                self._break(pipelines)
            self._lost()
            if opened is not None and attempt == MOST_ATTEMPTS:
                raise StoreUnavailable(f"{self.address}: {self._trouble}")
            await backoff.pause()

    def drop(self, reason: str) -> None:
        self._trouble = reason
        self._dropped.set()

    async def _connect(self, pipelines: list[Pipeline], start: Callable[..., object]) -> None:
        name = f"tenure {token_hex(8)}"
        servers: list[int] = []
        try:
            with anyio.fail_after(self._response_timeout) as scope:
                for part, address, on_notification in (
                    ("", self.address, _ignored),
                    (" hints", self.address.direct or self.address, self._notified),
                ):
                    conninfo = await address.conninfo(application_name=name + part, client_encoding="UTF8")
                    pipeline = await connect(conninfo, on_notification)
                    pipelines.append(pipeline)
                    start(pipeline.run, name="tenure postgres connection")
                    servers.append(await handshake(address, pipeline, self._settings))
                commands, listening = pipelines
                await self._get_ready(listening, scope)
                if self._termination is not None:
                    await self._end_former(listening, self._termination)
                if commands.before is not None:
                    commands.before = beginning(self._schema, name, self._settings)
                self.polling_reason = await self._why_polling(
                    name, commands, listening, shared=servers[0] == servers[1]
                )
                subscribed: set[str] = set()
                # another store may open meanwhile
                while not self.polling_reason and (channels := self.channels.keys() - subscribed):
                    for channel in channels:
                        await ask(self.address, listening, Statement(f'LISTEN "{channel}"'))
                    subscribed |= channels
        except TimeoutError:
            asked = "" if servers else ": is it a PostgreSQL server?"
            raise StoreUnavailable(
                f"{self.address}: no answer within {self._response_timeout:g} s{asked}"
            ) from None
        except OSError as error:
            raise connection_error(self.address, str(error)) from None
        self._termination = termination(self._schema, name, commands, self._response_timeout / 2)
        self._dropped = anyio.Event()
        self._commands, self._listening = commands, listening
        self._up.set()
        for listened in self.channels.values():
            listened.set()

    async def _get_ready(self, pipeline: Pipeline, scope: anyio.CancelScope) -> None:
        (exists,) = (await ask(self.address, pipeline, existence(self._schema)))[0]
        if exists == b"\0" or await self._version(pipeline) < VERSION:
            deadline, scope.deadline = scope.deadline, anyio.current_time() + LONGEST_UPDATE
            await ask(self.address, pipeline, creation(self._schema))
            scope.deadline = max(deadline, anyio.current_time() + self._response_timeout / 2)
        check(self.address, self._schema, await self._version(pipeline))

    async def _version(self, pipeline: Pipeline) -> int:
        (found,) = (await ask(self.address, pipeline, version(self._schema)))[0]
        return int.from_bytes(found, "big")

    async def _end_former(self, pipeline: Pipeline, termination: Statement) -> None:
        if [b"\0"] in await ask(self.address, pipeline, termination):
            raise StoreUnavailable(f"{self.address}: the server has not ended the connection before")

    async def _why_polling(self, name: str, commands: Pipeline, listening: Pipeline, *, shared: bool) -> str:
        """The reason why no hints come, or "". `shared`: a pooler used the same server connection for both."""
        if commands.before is None and self.address.direct is None:
            return ""
        if not shared and await self._probe.comes_back(self.address, name, commands, listening):
            return ""
        polling_reason = (
            f"{self.address.direct or self.address}: LISTEN does not work here, as it does not through a pooler of "
            f"transactions: all that wait ask again every {LOOK_AGAIN:g} s; add the server's own address with "
            "direct=postgresql://HOST:PORT in the URL"
        )
        warnings.warn(polling_reason, RuntimeWarning, stacklevel=2)
        return polling_reason

    async def _look_again(self) -> None:
        while True:
            await anyio.sleep(LOOK_AGAIN * random.uniform(0.5, 1))
            self._missed()

    def _notified(self, channel: bytes, payload: bytes) -> None:
        place, text = channel.decode(), payload.decode()
        if not self._probe.on_notification(place, text):
            self._on_notification(place, text)

    async def _watch(self, pipelines: Sequence[Pipeline]) -> None:
        sent, used = 0, anyio.current_time()
        while True:
            with anyio.move_on_after(self._response_timeout / 2):
                await self._dropped.wait()
                raise OSError(self._trouble)
            time = anyio.current_time()
            if sum(pipeline.sent for pipeline in pipelines) != sent:
                used = time
            for pipeline in pipelines:
                if pipeline.oldest is None:
                    if time < used + e.IN_USE or time >= pipeline.last_sent + e.SILENCE:
                        pipeline.send([Statement("SELECT 1")], _nothing)
                elif time - pipeline.oldest > self._response_timeout:
                    raise OSError(f"no answer within {self._response_timeout:g} s")
            sent = sum(pipeline.sent for pipeline in pipelines)

    def _break(self, pipelines: Sequence[Pipeline]) -> None:
        self._commands = self._listening = None
        # a try that failed leaves it as it is: somebody may wait for it
        if self._up.is_set():
            self._up = anyio.Event()
        for pipeline in pipelines:
            pipeline.close(self._trouble or "the connection was closed")


def _ignored(_channel: bytes, _payload: bytes) -> None:
    """Ignore a notification: hints come on the other connection. Through a pooler it may belong to another client."""


def _nothing(_: object) -> None:
    pass


def _words(errors: BaseExceptionGroup[OSError]) -> str:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split())
