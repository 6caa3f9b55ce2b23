"""The Redis engine on a cluster: every object in one shard, every session in the shards that it uses."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple, NoReturn

import anyio
import hiredis
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from tenure.engine import (
    CAP,
    A,
    CloseSession,
    Hint,
    Notice,
    OpenSession,
    Operation,
    Ping,
    RenewSession,
    Reply,
)
from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group

from ._address import addresses, safe
from ._calls import answered, hint, microseconds
from ._handshake import refusal
from ._link import PATIENCE
from ._nodes import Nodes
from ._operations import CALLS
from ._resp import pack
from ._scripts import script
from ._shards import SHARDS, TAGS, name_in, session_in, shard_of


class _Session:
    """A session, until when it lasts, and the shards that were told of it: True once one has said so."""

    def __init__(self, opening: OpenSession, now: float) -> None:
        self.opening = opening
        self.until = now + opening.ttl
        self.shards = {shard_of(opening.session): False}


class _Step(NamedTuple):
    """What one shard is asked; `answers` are those of the operation that it is a part of."""

    asked: Operation[Any]
    packed: bytes
    answers: list[Any]


class RedisClusterEngine:
    """Keeps everything on a Redis or Valkey cluster, version 6.2 or later; many machines may share it.

    `url` is `redis+cluster://[user:password@]host[:port],...` with some of the nodes (`rediss+cluster://` over TLS,
    `tls` is a context of your own); the others are found through them. A node that does not answer for `patience`
    seconds counts as gone. `clock` (seconds) replaces the servers' time in tests.

    Thread safety: none; one engine belongs to one event loop.
    """

    immediate = False

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        patience: float = PATIENCE,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not patience > 0:
            raise ValueError(f"patience: seconds, more than zero, not {patience!r}")
        seeds, path = addresses(url, tls)
        if path.strip("/"):
            raise ValueError(
                f"{safe(url)!r}: a cluster has one database only: write redis+cluster://HOST,HOST"
            )
        self._clock = clock
        self._listeners: dict[str, Callable[[Hint], None]] = {}
        self._sessions: dict[str, _Session] = {}
        self._nodes = Nodes(seeds, self._hear, self._resync, patience=patience)
        self._baton = anyio.Lock()

    def __repr__(self) -> str:
        return f"<RedisClusterEngine {self.url!r} {'open' if self._listeners else 'closed'}>"

    @property
    def url(self) -> str:
        """Where the cluster is, without the password."""
        return str(self._nodes)

    def apply(self, _operation: Operation[A], /) -> NoReturn:
        """Raise `RuntimeError`: a cluster is asked over the network."""
        raise RuntimeError("the Redis engine is not immediate: use execute")

    async def execute(self, operations: Sequence[Operation[Any]], /) -> Sequence[Any]:
        """Apply operations, each by one script: those of a shard in order, the shards all at once.

        Waits while a node that is needed cannot be reached. Raises `StoreUnavailable` when a connection breaks
        meanwhile. Cancellation: they may or may not have been applied.
        """
        if not self._listeners:
            raise StoreUnavailable(f"{self.url}: the engine does not serve")
        now = self._now()
        plan: dict[int, list[_Step]] = {}
        answers: list[list[Any]] = [[] for _ in operations]
        for operation, its in zip(operations, answers, strict=True):
            try:
                for shard, asked, *more in self._spread(operation, now):
                    step = _Step(asked, self._packed(shard, asked, *more), its)
                    plan.setdefault(shard, []).append(step)
            except UnicodeEncodeError as error:
                its.append(EngineError(f"{self.url}: a name that cannot be encoded: {error}"))
        if len(plan) == 1:
            await self._carry(*plan.popitem())
        else:
            await self._carry_all(plan)
        return [self._joined(*pair, now) for pair in zip(operations, answers, strict=True)]

    async def serve(
        self,
        process: str,
        deliver: Callable[[Hint], None],
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        """Connect, report started, and deliver the hints for `process` until cancelled; then close the connections.

        Raises `EngineError` for a cluster that will not do, `StoreUnavailable` for one that cannot be reached.
        Cancellation: this is how it ends; afterwards no socket is left.
        """

        def started() -> None:
            task_status.started()
            deliver(Hint(process, "", "", Notice.RESYNC))

        self._listeners[process] = deliver
        self._nodes.listen(process)
        try:
            if self._baton.locked():
                # another store's task keeps the connections, and hands them on when that store closes
                await self._nodes.listening()
                started()
                async with self._baton:
                    await self._nodes.run(None)
            else:
                async with self._baton:
                    await self._nodes.run(started)
        finally:
            del self._listeners[process]
            self._nodes.forget(process)
            for name, session in list(self._sessions.items()):
                if session.opening.process == process:
                    del self._sessions[name]

    def _now(self) -> float:
        return anyio.current_time() if self._clock is None else self._clock()

    def _spread(
        self, operation: Operation[Any], now: float
    ) -> Iterator[tuple[int, Operation[Any], *tuple[int, ...]]]:
        """What to ask which shard, with what arguments more."""
        match operation:
            case Ping():
                yield from ((shard, operation) for shard in range(SHARDS))
            case OpenSession(session=name):
                session = self._sessions.setdefault(name, _Session(operation, now))
                session.opening, session.until = operation, now + operation.ttl
                yield from ((shard, operation) for shard in session.shards)
            case RenewSession(session=name) | CloseSession(session=name):
                session = self._sessions.get(name)
                if session is None:
                    yield shard_of(name), operation
                    return
                closes = isinstance(operation, CloseSession)
                for shard, known in session.shards.items():
                    yield shard, operation if known or closes else session.opening
            case _:
                shard = shard_of(name_in(operation))
                session = self._sessions.get(session_in(operation))
                # one that is over must not come to life again on another shard
                if session is not None and not session.shards.get(shard) and session.until > now:
                    session.shards[shard] = False
                    yield shard, session.opening, microseconds(session.until - now)
                yield shard, operation

    def _packed(self, shard: int, operation: Operation[Any], *more: int) -> bytes:
        call = CALLS[type(operation)]
        return self._command(shard, call.script, *call.arguments(operation), *more)

    def _command(self, shard: int, name: str, *arguments: Any) -> bytes:
        now = "" if self._clock is None else round(self._clock() * 1e6)
        keys = (f"tenure:{{{TAGS[shard]}}}:{key}" for key in ("rows", "order"))
        return pack([("EVALSHA", script(name).sha, "2", *keys, now, CAP, *arguments)])

    async def _carry_all(self, plan: dict[int, list[_Step]]) -> None:
        # a node that is lost fails all of its shards at once; one error tells it
        failures: list[StoreUnavailable] = []
        async with unwrapped_task_group() as group:

            async def carry(shard: int, steps: list[_Step]) -> None:
                try:
                    await self._carry(shard, steps)
                except StoreUnavailable as error:
                    failures.append(error)
                    group.cancel_scope.cancel()

            for shard, steps in plan.items():
                group.start_soon(carry, shard, steps)
        if failures:
            raise failures[0]

    async def _carry(self, shard: int, steps: list[_Step]) -> None:
        more = False
        raw = await self._nodes.execute(shard, [step.packed for step in steps])
        for step, reply in zip(steps, raw, strict=True):
            if isinstance(reply, hiredis.ReplyError):
                answer = refusal(self._nodes, reply)
            else:
                answer = answered(CALLS[type(step.asked)], reply)
            step.answers.append(answer)
            more = more or answer is Reply.MORE
            if isinstance(step.asked, OpenSession) and answer is Reply.OK:
                self._sessions[step.asked.session].shards[shard] = True
        if more:
            await self._nodes.execute(shard, [self._command(shard, "sweep", "sweep")])

    def _joined(self, operation: Operation[Any], answers: list[Any], sent: float) -> Any:
        """One answer made of those of all shards that were asked."""
        for answer in answers:
            if isinstance(answer, EngineError) or answer is Reply.MORE:
                return answer
        match operation:
            case CloseSession():
                self._sessions.pop(operation.session, None)
                return Reply.OK if Reply.OK in answers else Reply.GONE
            case RenewSession():
                gone = Reply.GONE in answers
                if session := self._sessions.get(operation.session):
                    session.until = -inf if gone else sent + session.opening.ttl
                return Reply.GONE if gone else Reply.OK
            case _:
                return answers[-1]

    def _hear(self, process: str, message: bytes) -> None:
        deliver = self._listeners.get(process)
        if deliver is not None:
            deliver(hint(process, message))

    def _resync(self) -> None:
        for process, deliver in list(self._listeners.items()):
            deliver(Hint(process, "", "", Notice.RESYNC))
