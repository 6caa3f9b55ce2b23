"""The nodes of a cluster: their connections, their shards, and the subscriptions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import hiredis
from anyio import CancelScope
from anyio.abc import ByteStream, TaskGroup, TaskStatus

from tenure.errors import EngineError, StoreUnavailable
from tenure.upkeep import unwrapped_task_group

from ._connection import Connection
from ._endpoint import Address
from ._handshake import TRANSIENT, UNEXPECTED, asked, code_of, refusal, unexpected_server
from ._resp import pack
from ._scripts import loads
from ._shards import homes, prefix_of, tags, target

LOOK_UP = 1.0
"""Seconds after which a node that does not answer where the shards are is skipped."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
"""Seconds before a command that a node refused is sent again, and between looks for what moved."""

_CHANNEL = "tenure:"
_SHARDED_PUBLISH = (7, 0)
_ASKING = pack([("ASKING",)])
_REDIRECTED = ("MOVED", "ASK", "NOSCRIPT", *TRANSIENT)
"""Error codes of a node that did not execute the command."""


class _Node:
    def __init__(self, where: Address, nodes: Nodes, response_timeout: float, replicas: int) -> None:
        self.where = where
        self.user, self.password, self.database = where.user, where.password, 0
        self.channels: set[str] = set()
        self.scope = CancelScope()
        self.connection = Connection(
            self,
            partial(nodes.on_message, self),
            partial(nodes.connected, self),
            lost=nodes.lost,
            probes=nodes.probes,
            response_timeout=response_timeout,
            replicas=replicas,
        )
        self._nodes = nodes

    def __str__(self) -> str:
        return str(self.where)

    async def connect(self) -> ByteStream:
        # it may have been replaced
        self._nodes.recheck()
        return await self.where.connect()

    async def moved(self) -> bool:
        return False


class Nodes:
    """Carries commands to the nodes that have the shards, wherever these move; the functions are as of `Server`."""

    def __init__(
        self,
        seeds: Sequence[Address],
        on_message: Callable[[str, bytes], None],
        missed: Callable[[], None],
        lost: Callable[[], None],
        *,
        shards: int,
        response_timeout: float,
        replicas: int,
    ) -> None:
        self._seeds = seeds
        self._tags = tags(shards)
        # the layout is kept with the tag that no shard has
        self.probes = {prefix_of("0"): str(shards), **dict.fromkeys(map(prefix_of, self._tags), "")}
        self._on_message = on_message
        self._missed = missed
        self.lost = lost
        self._link_options = (response_timeout, replicas)
        self._processes: list[str] = []
        self._channels: dict[str, str] = {}
        """The process of each channel."""
        self._group: TaskGroup | None = None
        self._nodes: dict[Address, _Node] = {}
        self._homes: dict[int, _Node] = {}
        self.connections: dict[int, Connection] = {}
        """The connections to the homes, by shard."""
        self._found = anyio.Event()
        self._lost = anyio.Event()
        self._missing = anyio.Event()
        self._subscribed = anyio.Event()
        self._renewed = False

    def __str__(self) -> str:
        seed = self._seeds[0]
        user = f"{seed.user}@" if seed.user else ""
        return (
            f"redis{'s' if seed.tls else ''}+cluster://{user}{','.join(node.place for node in self._seeds)}"
        )

    # commands

    async def execute(self, shard: int, commands: list[bytes], mark: bytes) -> list[Any]:
        replies: list[Any] = []
        asks: _Node | None = None
        pause = 0.0
        while True:
            node = asks or await self._home(shard)
            rest = commands[len(replies) :]
            if asks:
                rest = [part for command in rest for part in (_ASKING, command)]
            new = await node.connection.execute(rest, mark=mark)
            # commands behind a command that was not executed are sent again with it, to keep the order
            for reply in new[1::2] if asks else new:
                if isinstance(reply, hiredis.ReplyError) and code_of(reply) in _REDIRECTED:
                    break
                replies.append(reply)
            else:
                return replies
            asks = await self._redirected(shard, node, reply)
            await anyio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause + _FIRST_PAUSE, _LONGEST_PAUSE)

    def may_retry(self, error: hiredis.ReplyError) -> bool:
        return code_of(error) in _REDIRECTED

    async def _home(self, shard: int) -> _Node:
        while shard not in self._homes:
            self.recheck()
            await self._found.wait()
        return self._homes[shard]

    async def _redirected(self, shard: int, node: _Node, error: hiredis.ReplyError) -> _Node | None:
        match code_of(error):
            case "MOVED":
                self._move({shard: target(node.where, str(error))})
            case "ASK":
                return self._node(target(node.where, str(error)))
            case "NOSCRIPT":
                await node.connection.execute([pack([load]) for load in loads()])
            case _:
                self.recheck()
        return None

    # nodes

    async def run(self, started: Callable[[], None] | None) -> None:
        """Find the nodes and keep a connection to each; `started()` is called once they are up.

        With `started`, raises `StoreUnavailable` or `EngineError` if they are not found.
        Cancellation: this is how it ends; the connections are closed.
        """
        try:
            async with unwrapped_task_group() as group:
                self._group = group
                if started is not None:
                    found = await self._where()
                    for where in set(found.values()):
                        node = self._nodes[where] = _Node(where, self, *self._link_options)
                        await group.start(self._open, node)
                    self._move(found)
                else:
                    self.recheck()
                group.start_soon(self._survey)
                group.start_soon(self._listen)
                if started is not None:
                    await self._all_subscribed()
                    started()
        finally:
            self._group = None
            self._homes.clear()
            self.connections.clear()
            self._drop_unused()

    def recheck(self) -> None:
        self._lost.set()

    async def _open(self, node: _Node, *, task_status: TaskStatus[None]) -> None:
        def opened() -> None:
            self.connected(node)
            task_status.started()

        with node.scope:
            try:
                await node.connection.run(opened)
            except StoreUnavailable:
                task_status.started()
                await node.connection.run(None)

    async def _keep(self, node: _Node) -> None:
        with node.scope:
            await node.connection.run(None)

    def _node(self, where: Address) -> _Node:
        node = self._nodes.get(where)
        if node is None:
            if self._group is None:
                raise StoreUnavailable(f"{self}: the engine does not serve")
            node = self._nodes[where] = _Node(where, self, *self._link_options)
            self._group.start_soon(self._keep, node)
        return node

    def _move(self, found: dict[int, Address]) -> None:
        before = self._homes
        self._homes = before | {shard: self._node(where) for shard, where in found.items()}
        self.connections = {shard: home.connection for shard, home in self._homes.items()}
        self._renewed = self._renewed or any(home is not self._homes[shard] for shard, home in before.items())
        self._drop_unused()
        self._found.set()
        self._found = anyio.Event()
        self._missing.set()

    def _drop_unused(self) -> None:
        used = set(self._homes.values())
        for where, node in list(self._nodes.items()):
            if node not in used:
                del self._nodes[where]
                node.connection.close()
                node.scope.cancel()

    async def _survey(self) -> None:
        while True:
            await self._lost.wait()
            self._lost = anyio.Event()
            with suppress(StoreUnavailable, EngineError):
                self._move(await self._where())
            await anyio.sleep(_LONGEST_PAUSE * random.uniform(0.25, 0.5))
            if not all(node.connection.up for node in self._homes.values()):
                self.recheck()

    async def _where(self) -> dict[int, Address]:
        known = list({*self._nodes, *self._seeds})
        random.shuffle(known)
        problem: Exception = StoreUnavailable(f"{self}: no node answers")
        for where in known:
            login = [("AUTH", where.user or "default", where.password)] if where.password else []
            try:
                with anyio.fail_after(LOOK_UP):
                    replies = await asked(where, *login, ("CLUSTER", "SLOTS"))
            except EngineError as error:
                problem = error
            except (StoreUnavailable, TimeoutError):
                pass
            else:
                if errors := [reply for reply in replies if isinstance(reply, hiredis.ReplyError)]:
                    problem = refusal(where, errors[0])
                    continue
                try:
                    if found := homes(where, replies[-1], len(self._tags)):
                        return found
                except UNEXPECTED:
                    problem = unexpected_server(where, "no node of a cluster", replies[-1])
        raise problem

    # messages

    def listen(self, process: str) -> None:
        self._processes.append(process)
        self._missing.set()

    async def listening(self, _process: str) -> None:
        await self._all_subscribed()

    async def _all_subscribed(self) -> None:
        while not self._homes or self._unsubscribed():
            await self._subscribed.wait()

    def forget(self, process: str) -> None:
        self._processes.remove(process)
        for node in self._nodes.values():
            for channel in [channel for channel in node.channels if self._channels.get(channel) == process]:
                node.channels.remove(channel)
                node.connection.send_oneway(
                    pack([("SUNSUBSCRIBE" if "{" in channel else "UNSUBSCRIBE", channel)])
                )
        self._channels = {channel: whose for channel, whose in self._channels.items() if whose != process}

    def connected(self, node: _Node) -> None:
        self._renewed = True
        node.channels.clear()
        self._missing.set()

    def on_message(self, node: _Node, channel: str, message: bytes | None) -> None:
        """Take a message; None means that the channel's shard has moved away."""
        if message is None:
            node.channels.discard(channel)
            self._missing.set()
        elif channel in self._channels:
            self._on_message(self._channels[channel], message)

    async def _listen(self) -> None:
        while True:
            self._missing = anyio.Event()
            subscribed = [await self._subscribe(shard, *what) for shard, what in self._unsubscribed()]
            if any(subscribed) or self._renewed:
                self._renewed = False
                self._missed()
            self._subscribed.set()
            self._subscribed = anyio.Event()
            await self._missing.wait()
            await anyio.sleep(_FIRST_PAUSE)

    def _unsubscribed(self) -> list[tuple[int, tuple[_Node, str, str]]]:
        missing: list[tuple[int, tuple[_Node, str, str]]] = []
        up = [(shard, node) for shard, node in self._homes.items() if node.connection.up]
        for process in self._processes:
            old: list[tuple[int, _Node]] = []
            for shard, node in up:
                channel = f"{_CHANNEL}{{{self._tags[shard]}}}:{process}"
                self._channels[channel] = process
                if node.connection.version < _SHARDED_PUBLISH:
                    old.append((shard, node))
                elif channel not in node.channels:
                    missing.append((shard, (node, "SSUBSCRIBE", channel)))
            # such nodes forward published messages to each other
            channel = _CHANNEL + process
            self._channels[channel] = process
            if old and not any(channel in node.channels for _, node in old):
                missing.append((old[0][0], (old[0][1], "SUBSCRIBE", channel)))
        return missing

    async def _subscribe(self, shard: int, node: _Node, verb: str, channel: str) -> bool:
        # first, since the node may say right behind its answer that the shard has moved away
        node.channels.add(channel)
        try:
            (reply,) = await node.connection.execute([pack([(verb, channel)])])
        except StoreUnavailable:
            node.channels.discard(channel)
            self._missing.set()
            return False
        if not isinstance(reply, hiredis.ReplyError):
            return True
        node.channels.discard(channel)
        if code_of(reply) not in _REDIRECTED:
            raise refusal(self, reply)
        with suppress(StoreUnavailable):
            await self._redirected(shard, node, reply)
        self._missing.set()
        return False
