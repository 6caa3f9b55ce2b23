"""The part that one server and a cluster share: operations become scripts on shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import anyio
import hiredis

import tenure.engine as e
from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group

from ._codec import RedisCodec, answered, hint
from ._connection import Connection
from ._fan_out import fan_out, merged
from ._handshake import UNEXPECTED, refusal
from ._operations import CODECS
from ._replicas import mark, without_answer
from ._resp import pack_one
from ._scripts import script
from ._shards import shard_of


class Topology(Protocol):
    @property
    def connections(self) -> Mapping[int, Connection]:
        """The connection, up or not, to the server of each shard whose server is known.

        An attribute: it is read for each operation.
        """
        ...

    async def execute(self, shard: int, commands: list[bytes], mark: bytes, /) -> list[Any]:
        """Send packed commands to the server that has the shard; return the reply to each, errors among them.

        Waits while the server cannot be reached. The mark goes behind the commands if the replicas have to acknowledge
        them.
        Raises `StoreUnavailable` when the connection breaks before the last reply.
        Cancellation: the commands may or may not be executed.
        """
        ...

    def may_retry(self, error: hiredis.ReplyError, /) -> bool:
        """True if the server did not execute the command, so that `execute` may send it again."""
        ...

    def listen(self, process: str, /) -> None: ...

    async def listening(self, process: str, /) -> None:
        """Wait until the open connections are subscribed. Raises `EngineError` if the user may not."""
        ...

    def forget(self, process: str, /) -> None: ...

    async def run(self, started: Callable[[], None] | None, /) -> None: ...


class _Step(NamedTuple):
    operation: e.Operation[Any]
    packed: bytes
    answers: list[Any]


class RemoteRedis(e.Remote):
    """Redis over the network; with `replicas`, hints carry no answers.

    `keys` has, for each shard, the number of keys that a script declares, and the keys; the first is the prefix of all.
    """

    families = True

    def __init__(
        self,
        topology: Topology,
        keys: Sequence[tuple[str, ...]],
        replicas: int,
        clock: Callable[[], float] | None,
        again: Callable[[], e.Engine] | None,
    ) -> None:
        super().__init__(topology)
        self.shards: int = len(keys)
        self._topology = topology
        self._keys = keys
        self._marks = [mark(prefix) for _, prefix, *_ in keys]
        self._replicas = replicas
        self._clock = clock
        self._again = again
        self._heads: dict[tuple[int, str], tuple[int, bytes]] = {}
        # the last is for what concerns all shards
        self._batches = [e.Batches(self.url) for _ in range(self.shards + (self.shards > 1))]

    def another(self) -> e.Engine | None:
        """An engine over the same servers, unless the clock is a test's."""
        return self._again and self._again()

    @property
    def unreachable(self) -> StoreUnavailable | None:
        problems = (connection.problem for connection in self._topology.connections.values())
        return next((StoreUnavailable(problem) for problem in problems if problem), None)

    def shard(self, name: str) -> int:
        return shard_of(name, self.shards)

    def submit(self, operation: e.Operation[Any], on_answer: Callable[[Any], object], /) -> None:
        """Send an operation at once, by one script; see `tenure.engine.Engine`.

        An operation goes with the next batch of its shard, which waits for the server, in three cases: its server
        cannot be reached or has refused an operation; it concerns all shards; it cannot be encoded.
        """
        shard, key = 0, operation.key
        if self.shards > 1:
            shard = shard_of(key, self.shards) if key and type(operation) is not e.PutChildren else -1
        batches = self._batches[shard]
        if not batches.busy and shard >= 0:
            connection = self._topology.connections.get(shard)
            if connection is not None and connection.up:
                try:
                    packed = self._packed(shard, operation)
                except EngineError:
                    pass  # the batch answers with it, later
                else:
                    codec = CODECS[type(operation)]
                    on_reply = partial(self._on_reply, shard, codec, on_answer)
                    connection.send(packed, on_reply, mark=self._marks[shard])
                    return
        batches.submit(operation, on_answer)

    async def _apply_batch(self, operations: Sequence[e.Operation[Any]]) -> Sequence[Any]:
        """Apply operations: within a shard in order, the shards concurrently.

        Waits while a server that is needed cannot be reached. Raises `StoreUnavailable` when a connection breaks.
        Cancellation: the operations may or may not have been applied.
        """
        plan: dict[int, list[_Step]] = {}
        answers: list[list[Any]] = [[] for _ in operations]
        for operation, its in zip(operations, answers, strict=True):
            try:
                for shard, part in fan_out(operation, self.shards):
                    step = _Step(part, self._packed(shard, part), its)
                    plan.setdefault(shard, []).append(step)
            except EngineError as problem:
                its.append(problem)
        if len(plan) == 1:
            await self._apply(*plan.popitem())
        elif plan:
            await self._apply_all(plan)
        return [merged(*pair, self.shards) for pair in zip(operations, answers, strict=True)]

    async def _apply_all(self, plan: dict[int, list[_Step]]) -> None:
        # a node that is lost fails all of its shards at once; one error is enough
        failures: list[StoreUnavailable] = []
        async with unwrapped_task_group() as group:

            async def apply(shard: int, steps: list[_Step]) -> None:
                try:
                    await self._apply(shard, steps)
                except StoreUnavailable as error:
                    failures.append(error)
                    group.cancel_scope.cancel()

            for shard, steps in plan.items():
                group.start_soon(apply, shard, steps)
        if failures:
            raise failures[0]

    async def _apply(self, shard: int, steps: list[_Step]) -> None:
        more = False
        replies = await self._topology.execute(shard, [step.packed for step in steps], self._marks[shard])
        for step, reply in zip(steps, replies, strict=True):
            if isinstance(reply, hiredis.ReplyError):
                answer = refusal(self.url, reply, CODECS[type(step.operation)].script)
            else:
                answer = answered(CODECS[type(step.operation)], reply)
                if isinstance(answer, StoreUnavailable):
                    if (connection := self._topology.connections.get(shard)) is not None:
                        connection.drop(str(answer))
                    raise answer
            step.answers.append(answer)
            more = more or answer is e.Reply.MORE
        if more:
            await self._topology.execute(shard, [self._sweep(shard)], self._marks[shard])

    def _on_reply(
        self, shard: int, codec: RedisCodec[Any], on_answer: Callable[[Any], object], reply: Any
    ) -> None:
        if isinstance(reply, hiredis.ReplyError):
            if self._topology.may_retry(reply):
                # the batch does what the error asks for
                self._batches[shard].busy = True
                reply = e.Reply.MORE
            else:
                reply = refusal(self.url, reply, codec.script)
        elif not isinstance(reply, StoreUnavailable):
            reply = answered(codec, reply)
            if reply is e.Reply.MORE and (connection := self._topology.connections.get(shard)) is not None:
                # it clears up, before the operation comes again
                connection.send(self._sweep(shard), _nothing, mark=self._marks[shard])
            elif isinstance(reply, StoreUnavailable):
                on_answer(reply)
                raise anyio.BrokenResourceError(str(reply))
        on_answer(reply)

    def _packed(self, shard: int, operation: e.Operation[Any]) -> bytes:
        codec = CODECS[type(operation)]
        try:
            arguments = tuple(codec.arguments(operation))
            _, _, packed = pack_one(arguments).partition(b"\n")
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(
                f"{self.url}: {type(operation).__name__} cannot be encoded: {error!r}"
            ) from error
        count, head = self._heads.get((shard, codec.script)) or self._head(shard, codec.script)
        return b"*%d\r\n%b%b" % (count + len(arguments), head, packed)

    def _sweep(self, shard: int) -> bytes:
        return b"*%d\r\n%b" % self._head(shard, "sweep")

    def _head(self, shard: int, name: str) -> tuple[int, bytes]:
        """The packed beginning of a script's command, and its number of arguments: packing is most of the work."""
        now = b"" if self._clock is None else f"{round(self._clock() * 1e6):016}"
        arguments = (b"EVALSHA", script(name).sha, *self._keys[shard], now, e.CAP)
        _, _, packed = pack_one(arguments).partition(b"\n")
        head = len(arguments), packed
        if self._clock is None:
            self._heads[shard, name] = head
        return head

    def _on_message(self, process: str, message: bytes) -> None:
        try:
            received = hint(process, message)
        except UNEXPECTED:
            # somebody else's message, or a hint that was lost
            received = e.Hint(process, "", "", e.Notice.MISSED)
        self._deliver(without_answer(received) if self._replicas else received)

    def _listen(self, process: str) -> None:
        self._topology.listen(process)

    async def _listening(self, process: str) -> None:
        await self._topology.listening(process)

    def _forget(self, process: str) -> None:
        self._topology.forget(process)

    async def _run(self, started: Callable[[], None] | None) -> None:
        async with unwrapped_task_group() as group:
            for batches in self._batches:
                await group.start(batches.run, self._apply_batch)
            await self._topology.run(started)


def _nothing(_: object) -> None:
    pass
