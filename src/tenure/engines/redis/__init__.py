"""The Redis engine: the contract as scripts, one command for each operation, on one connection."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import anyio
import hiredis
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from tenure.engine import CAP, A, Hint, Notice, Operation, Reply
from tenure.errors import EngineError, StoreUnavailable

from ._address import Whereabouts, address
from ._calls import Call, answered, hint
from ._cluster import RedisClusterEngine
from ._handshake import TRANSIENT, code_of, refusal
from ._link import PATIENCE, Link
from ._operations import CALLS
from ._replicas import replicas_in, to_be_asked
from ._resp import pack, pack_one
from ._scripts import all_scripts, script
from ._sentinel import SentinelAddress

__all__ = ("CALLS", "RedisClusterEngine", "RedisEngine")

_CHANNEL = "tenure:"
_SENTINEL = "+sentinel://"
_KEYS = ("2", "tenure:{0}:rows", "tenure:{0}:order")


class RedisEngine:
    """Keeps everything on a Redis or Valkey server, version 6.2 or later; many machines may share it.

    `url` is `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS (`tls` is a context of your own) or
    `unix:///path/to/socket[?db=n]`; `redis+sentinel://[user:password@]host[:port],.../service[/database]` is whatever
    server those Sentinels call the primary, asked anew for each connection (`rediss+sentinel://` over TLS). A server
    that does not answer for `patience` seconds counts as gone, and the connection is made anew. With `replicas` (also
    `?replicas=n` in the URL) nothing counts as done before so many replicas have acknowledged it. `clock` (seconds)
    replaces the server's time in tests.

    Thread safety: none; one engine belongs to one event loop.
    """

    immediate = False

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        replicas: int | None = None,
        patience: float = PATIENCE,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not patience > 0:
            raise ValueError(f"patience: seconds, more than zero, not {patience!r}")
        url, self._replicas = replicas_in(url, replicas)
        self._address: Whereabouts = (SentinelAddress if _SENTINEL in url else address)(url, tls)
        self._clock = clock
        self._listeners: dict[str, Callable[[Hint], None]] = {}
        self._link = Link(self._address, self._hear, self._resync, patience=patience, replicas=self._replicas)
        self._baton = anyio.Lock()

    def __repr__(self) -> str:
        return f"<RedisEngine {self.url!r} {'open' if self._listeners else 'closed'}>"

    @property
    def url(self) -> str:
        """Where the server is, without the password."""
        return str(self._address)

    def apply(self, _operation: Operation[A], /) -> NoReturn:
        """Raise `RuntimeError`: a server is asked over the network."""
        raise RuntimeError("the Redis engine is not immediate: use execute")

    async def execute(self, operations: Sequence[Operation[Any]], /) -> Sequence[Any]:
        """Apply operations in order, each by one script, all sent together.

        Waits while the server cannot be reached. Raises `StoreUnavailable` when the connection breaks meanwhile.
        Cancellation: they may or may not have been applied.
        """
        if not self._listeners:
            raise StoreUnavailable(f"{self.url}: the engine does not serve")
        answers: list[Any] = [None] * len(operations)
        commands: dict[int, bytes] = {}
        for i, operation in enumerate(operations):
            call = CALLS[type(operation)]
            try:
                commands[i] = self._command(call.script, *call.arguments(operation))
            except UnicodeEncodeError as error:
                answers[i] = EngineError(f"{self.url}: a name that cannot be encoded: {error}")
        for i, raw in (await self._evaluate(commands)).items():
            call: Call[Any] = CALLS[type(operations[i])]
            answers[i] = raw if isinstance(raw, EngineError) else answered(call, raw)
        if any(answer is Reply.MORE for answer in answers):
            await self._evaluate({0: self._command("sweep", "sweep")})
        return answers

    def post(self, operation: Operation[A], on_answer: Callable[[A | Reply | EngineError], object]) -> bool:
        """Send one operation at once, if the connection stands; see `tenure.engine.Engine.post`."""
        if not self._link.up:
            return False
        call: Call[Any] = CALLS[type(operation)]
        try:
            packed = self._command(call.script, *call.arguments(operation))
        except UnicodeEncodeError:
            return False
        self._link.post(packed, partial(self._on_reply, call, on_answer))
        return True

    def _on_reply(self, call: Call[Any], on_answer: Callable[[Any], object], reply: Any) -> None:
        if isinstance(reply, hiredis.ReplyError):
            code = code_of(reply)
            if code in TRANSIENT:
                self._link.drop(str(reply))
            # without its script it was not applied; `execute` brings that
            reply = Reply.MORE if code == "NOSCRIPT" else refusal(self._address, reply)
        elif not isinstance(reply, StoreUnavailable):
            reply = answered(call, reply)
        on_answer(reply)

    async def serve(
        self,
        process: str,
        deliver: Callable[[Hint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Connect, report started, and deliver the hints for `process` until cancelled; then close the connection.

        Raises `EngineError` for a server that will not do, `StoreUnavailable` for one that cannot be reached.
        Cancellation: this is how it ends; afterwards no socket is left.
        """
        started = partial(self._started, process, deliver, task_status)
        channel = _CHANNEL + process
        self._listeners[channel] = deliver
        try:
            if self._baton.locked():
                # another store's task keeps the connection, and hands it on when that store closes
                await self._link.subscribe(channel)
                started()
                async with self._baton:
                    await self._link.run(None)
            else:
                async with self._baton:
                    self._link.channels[channel] = anyio.Event()
                    await self._link.run(started)
        finally:
            del self._listeners[channel]
            self._link.forget(channel)

    def _started(self, process: str, deliver: Callable[[Hint], None], task_status: TaskStatus[None]) -> None:
        task_status.started()
        deliver(Hint(process, "", "", Notice.RESYNC))

    def _command(self, name: str, *arguments: Any) -> bytes:
        now = "" if self._clock is None else round(self._clock() * 1e6)
        return pack_one(("EVALSHA", script(name).sha, *_KEYS, now, CAP, *arguments))

    async def _evaluate(self, commands: dict[int, bytes]) -> dict[int, Any]:
        """The raw answers, or errors that concern one operation alone."""
        if not commands:
            return {}
        raw = dict(zip(commands, await self._link.execute(list(commands.values())), strict=True))
        lost: dict[int, bytes] = {}
        for i, answer in raw.items():
            if isinstance(answer, hiredis.ReplyError):
                code = code_of(answer)
                if code == "NOSCRIPT":
                    lost[i] = commands[i]
                    continue
                if code in TRANSIENT:
                    self._link.drop(str(answer))
                    raise StoreUnavailable(f"{self.url}: {answer}")
                raw[i] = refusal(self._address, answer)
        if lost:
            # somebody had the server forget its scripts
            await self._link.execute([pack([("SCRIPT", "LOAD", script.source)]) for script in all_scripts()])
            raw |= await self._evaluate(lost)
        return raw

    def _hear(self, channel: str, message: bytes | None) -> None:
        deliver = self._listeners.get(channel)
        if deliver is not None and message is not None:
            told = hint(channel.removeprefix(_CHANNEL), message)
            deliver(to_be_asked(told) if self._replicas else told)

    def _resync(self) -> None:
        for channel, deliver in list(self._listeners.items()):
            deliver(Hint(channel.removeprefix(_CHANNEL), "", "", Notice.RESYNC))
