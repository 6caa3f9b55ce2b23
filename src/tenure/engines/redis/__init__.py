"""The Redis engine: the contract as scripts, one command for each operation, on one connection."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import hiredis

from tenure.arguments import LARGEST, check_seconds
from tenure.engine import RESPONSE_TIMEOUT, A, Operation, Reply
from tenure.errors import EngineError, StoreUnavailable

from ._address import Whereabouts, address, check_login, number_in
from ._calls import Call, answered
from ._cluster import RedisClusterEngine
from ._handshake import TRANSIENT, code_of, refusal
from ._link import Link
from ._operations import CALLS
from ._remote import RemoteRedis
from ._resp import pack
from ._scripts import all_scripts
from ._sentinel import SentinelAddress

__all__ = ("CALLS", "RedisClusterEngine", "RedisEngine")

_CHANNEL = "tenure:"
_SENTINEL = "+sentinel://"
_PREFIX = "tenure:{0}:"


class RedisEngine(RemoteRedis):
    """Keeps everything on a Redis or Valkey server, version 6.2 or later; many machines may share it.

    `url` is `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS (`tls` is a context of your own) or
    `unix:///path/to/socket[?db=n]`; `redis+sentinel://[user:password@]host[:port],.../service[/database]` is whatever
    server those Sentinels call the primary, asked anew for each connection (`rediss+sentinel://` over TLS). A server
    that does not answer for `response_timeout` seconds counts as gone, and the connection is made anew. With `replicas`
    (also `?replicas=n` in the URL) nothing counts as done before so many replicas have acknowledged it. `clock`
    (seconds) replaces the server's time in tests.

    Thread safety: none; one engine belongs to one event loop.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        replicas: int | None = None,
        response_timeout: float = RESPONSE_TIMEOUT,
        clock: Callable[[], float] | None = None,
    ) -> None:
        response_timeout = check_seconds("response_timeout", response_timeout, least=None)
        check_login(url)
        url, replicas = number_in(url, "replicas", replicas, 0, least=0, most=LARGEST)
        self._address: Whereabouts = (SentinelAddress if _SENTINEL in url else address)(url, tls)
        super().__init__(self._address, replicas, clock)
        self._link = Link(
            self._address,
            self._hear_channel,
            self._resync,
            probes={_PREFIX: "1"},
            response_timeout=response_timeout,
            replicas=replicas,
        )

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
            try:
                commands[i] = self._packed(_PREFIX, operation)
            except EngineError as problem:
                answers[i] = problem
        for i, raw in (await self._evaluate(commands)).items():
            call: Call[Any] = CALLS[type(operations[i])]
            answers[i] = raw if isinstance(raw, EngineError) else answered(call, raw)
        if any(answer is Reply.MORE for answer in answers):
            await self._evaluate({0: self._command(_PREFIX, "sweep")})
        return answers

    def post(self, operation: Operation[A], on_answer: Callable[[A | Reply | EngineError], object]) -> bool:
        """Send one operation at once, if the connection stands; see `tenure.engine.Engine.post`."""
        if not self._link.up:
            return False
        try:
            packed = self._packed(_PREFIX, operation)
        except EngineError:  # `execute` answers with it
            return False
        self._link.post(packed, partial(self._on_reply, CALLS[type(operation)], on_answer))
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

    def _hear_channel(self, channel: str, message: bytes | None) -> None:
        if message is not None:
            self._hear(channel.removeprefix(_CHANNEL), message)

    def _listen(self, process: str) -> None:
        self._link.channels.add(_CHANNEL + process)

    async def _listening(self, process: str) -> None:
        await self._link.subscribe(_CHANNEL + process)

    def _forget(self, process: str) -> None:
        self._link.forget(_CHANNEL + process)

    async def _run(self, started: Callable[[], None] | None) -> None:
        await self._link.run(started)
