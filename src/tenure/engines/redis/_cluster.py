"""The Redis engine on a cluster: every object and every session in one shard, each shard a lane of its own."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import hiredis

from tenure.arguments import LARGEST, check_seconds
from tenure.engine import (
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

from ._address import addresses, check_login, number_in, safe
from ._calls import Call, answered
from ._handshake import code_of, refusal
from ._nodes import REDIRECTED, Nodes
from ._operations import CALLS
from ._remote import RemoteRedis
from ._shards import SHARDS, prefix_of, shard_of, tags


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
    before so many replicas of the node have acknowledged it. All objects lie in `shards` parts (16; also `?shards=n`),
    each of which lives on one node and is away with it; all processes need the same number, which the cluster keeps.
    `clock` (seconds) replaces the servers' time in tests.

    Thread safety: none; one engine belongs to one event loop.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        replicas: int | None = None,
        shards: int | None = None,
        response_timeout: float = RESPONSE_TIMEOUT,
        clock: Callable[[], float] | None = None,
    ) -> None:
        response_timeout = check_seconds("response_timeout", response_timeout, least=None)
        check_login(url)
        url, replicas = number_in(url, "replicas", replicas, 0, least=0, most=LARGEST)
        url, self.lanes = number_in(url, "shards", shards, SHARDS, least=1, most=1024)
        self._prefixes = tuple(map(prefix_of, tags(self.lanes)))
        seeds, path = addresses(url, tls)
        if path.strip("/"):
            raise ValueError(
                f"{safe(url)!r}: a cluster has one database only: write redis+cluster://HOST,HOST"
            )
        self._nodes = Nodes(
            seeds,
            self._hear,
            self._resync,
            shards=self.lanes,
            response_timeout=response_timeout,
            replicas=replicas,
        )
        super().__init__(self._nodes, replicas, clock)

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
                    step = _Step(asked, self._packed(self._prefixes[shard], asked), its)
                    plan.setdefault(shard, []).append(step)
            except EngineError as problem:
                its.append(problem)
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
            packed = self._packed(self._prefixes[shard], operation)
        except EngineError:  # `execute` answers with it
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
        return shard_of(name, self.lanes)

    def _spread(self, operation: Operation[Any]) -> Iterator[tuple[int, Operation[Any]]]:
        """What to ask which shard."""
        match operation:
            case Survey(after=after):
                # one shard after the other
                shard, _, rest = after.partition(":")
                if after and not (shard.isascii() and shard.isdigit() and int(shard) < self.lanes):
                    raise EngineError(f"{self.url}: no page ends at {after!r}")
                yield int(shard or 0), replace(operation, after=rest)
            case Ping() | Examine():
                yield from ((shard, operation) for shard in range(self.lanes))
            case _:
                yield self.lane(name_in(operation)), operation

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
            await self._nodes.execute(shard, [self._command(self._prefixes[shard], "sweep")])

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
                return Surveyed(page.names, f"{shard + 1}:" if shard + 1 < self.lanes else "")
            case Examine():
                parts: list[Examined] = answers
                problems = dict.fromkeys(problem for part in parts for problem in part.problems)
                return Examined(parts[0].ahead, parts[0].facts, tuple(problems))
            case _:
                return answers[-1]

    def _keys(self, prefix: str) -> tuple[str, ...]:
        # Two keys, of which the first is never there: while the cluster moves their slot, key by key, both nodes refuse
        # every script. One key alone would be asked for where the slot goes, before what it stands for has come.
        return "2", prefix, f"{prefix}state"

    def _listen(self, process: str) -> None:
        self._nodes.listen(process)

    async def _listening(self, process: str) -> None:
        del process
        await self._nodes.listening()

    def _forget(self, process: str) -> None:
        self._nodes.forget(process)

    async def _run(self, started: Callable[[], None] | None) -> None:
        await self._nodes.run(started)
