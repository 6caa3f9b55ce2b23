"""The Redis engine on a cluster: every object and every session in one shard, each shard a lane of its own."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import hiredis

from tenure.arguments import check_seconds
from tenure.engine import (
    CAP,
    RESPONSE_TIMEOUT,
    A,
    Examine,
    Examined,
    Operation,
    Ping,
    Reply,
    Survey,
    Surveyed,
    name_in,
)
from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group

from ._address import addresses, check_login, safe
from ._calls import Call, answered
from ._handshake import code_of, refusal
from ._nodes import REDIRECTED, Nodes
from ._operations import CALLS
from ._remote import RemoteRedis
from ._replicas import replicas_in
from ._resp import pack_one
from ._scripts import script
from ._shards import SHARDS, TAGS, shard_of


class _Step(NamedTuple):
    """What one shard is asked; `answers` are those of the operation that it is a part of."""

    asked: Operation[Any]
    packed: bytes
    answers: list[Any]


class RedisClusterEngine(RemoteRedis):
    """Keeps everything on a Redis or Valkey cluster, version 6.2 or later; many machines may share it.

    `url` is `redis+cluster://[user:password@]host[:port],...` with some of the nodes (`rediss+cluster://` over TLS,
    `tls` is a context of your own); the others are found through them. A node that does not answer for
    `response_timeout` seconds counts as gone. With `replicas` (also `?replicas=n` in the URL) nothing counts as done
    before so many replicas of the node have acknowledged it. `clock` (seconds) replaces the servers' time in tests.

    Thread safety: none; one engine belongs to one event loop.
    """

    lanes = SHARDS

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
        url, replicas = replicas_in(url, replicas)
        seeds, path = addresses(url, tls)
        if path.strip("/"):
            raise ValueError(
                f"{safe(url)!r}: a cluster has one database only: write redis+cluster://HOST,HOST"
            )
        self._clock = clock
        self._nodes = Nodes(
            seeds, self._hear, self._resync, response_timeout=response_timeout, replicas=replicas
        )
        super().__init__(self._nodes, replicas)

    async def execute(self, operations: Sequence[Operation[Any]], /) -> Sequence[Any]:
        """Apply operations, each by one script: those of a shard in order, the shards all at once.

        Waits while a node that is needed cannot be reached. Raises `StoreUnavailable` when a connection breaks
        meanwhile. Cancellation: they may or may not have been applied.
        """
        if not self._listeners:
            raise StoreUnavailable(f"{self.url}: the engine does not serve")
        plan: dict[int, list[_Step]] = {}
        answers: list[list[Any]] = [[] for _ in operations]
        for operation, its in zip(operations, answers, strict=True):
            try:
                for shard, asked in self._spread(operation):
                    plan.setdefault(shard, []).append(_Step(asked, self._packed(shard, asked), its))
            except Exception as error:  # noqa: BLE001 whatever it is, it concerns this operation alone
                its.append(
                    EngineError(f"{self.url}: {type(operation).__name__} cannot be encoded: {error!r}")
                )
        if len(plan) == 1:
            await self._carry(*plan.popitem())
        else:
            await self._carry_all(plan)
        return [self._joined(*pair) for pair in zip(operations, answers, strict=True)]

    def post(self, operation: Operation[A], on_answer: Callable[[A | Reply | EngineError], object]) -> bool:
        """Send one operation at once, if its node can be reached; see `tenure.engine.Engine`."""
        shard = self.lane(name) if (name := name_in(operation)) else None
        link = None if shard is None else self._nodes.link(shard)
        if shard is None or link is None:
            return False
        try:
            packed = self._packed(shard, operation)
        except Exception:  # noqa: BLE001 `execute` answers with it
            return False
        link.post(packed, partial(self._on_reply, CALLS[type(operation)], on_answer))
        return True

    def _on_reply(self, call: Call[Any], on_answer: Callable[[Any], object], reply: Any) -> None:
        if isinstance(reply, hiredis.ReplyError):
            # what the node did not take `execute` brings to where it belongs
            reply = Reply.MORE if code_of(reply) in REDIRECTED else refusal(self._nodes, reply)
        elif not isinstance(reply, StoreUnavailable):
            reply = answered(call, reply)
        on_answer(reply)

    def lane(self, name: str) -> int:
        """The shard of an object or a session."""
        return shard_of(name)

    def _spread(self, operation: Operation[Any]) -> Iterator[tuple[int, Operation[Any]]]:
        """What to ask which shard."""
        match operation:
            case Survey(after=after):
                # one shard after the other
                shard, _, rest = after.partition(":")
                yield int(shard or 0), replace(operation, after=rest)
            case Ping() | Examine():
                yield from ((shard, operation) for shard in range(SHARDS))
            case _:
                yield self.lane(name_in(operation)), operation

    def _packed(self, shard: int, operation: Operation[Any]) -> bytes:
        call = CALLS[type(operation)]
        return self._command(shard, call.script, *call.arguments(operation))

    def _command(self, shard: int, name: str, *arguments: Any) -> bytes:
        now = "" if self._clock is None else round(self._clock() * 1e6)
        keys = (f"tenure:{{{TAGS[shard]}}}:{key}" for key in ("rows", "order"))
        return pack_one(("EVALSHA", script(name).sha, "2", *keys, now, CAP, *arguments))

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
        if more:
            await self._nodes.execute(shard, [self._command(shard, "sweep", "sweep")])

    def _joined(self, operation: Operation[Any], answers: list[Any]) -> Any:
        """One answer made of those of all shards that were asked."""
        for answer in answers:
            if isinstance(answer, EngineError) or answer is Reply.MORE:
                return answer
        match operation:
            case Survey(after=after):
                page: Surveyed = answers[0]
                shard = int(after.partition(":")[0] or 0)
                if page.next:
                    return Surveyed(page.names, f"{shard}:{page.next}")
                return Surveyed(page.names, f"{shard + 1}:" if shard + 1 < SHARDS else "")
            case Examine():
                parts: list[Examined] = answers
                problems = dict.fromkeys(problem for part in parts for problem in part.problems)
                return Examined(parts[0].ahead, parts[0].facts, tuple(problems))
            case _:
                return answers[-1]

    def _listen(self, process: str) -> None:
        self._nodes.listen(process)

    async def _listening(self, process: str) -> None:
        del process
        await self._nodes.listening()

    def _forget(self, process: str) -> None:
        self._nodes.forget(process)

    async def _run(self, started: Callable[[], None] | None) -> None:
        await self._nodes.run(started)
