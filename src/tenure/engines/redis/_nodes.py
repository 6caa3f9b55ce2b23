"""The nodes of a cluster: one link to each, which shard is where, and what to hear from whom."""

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

from ._address import Address
from ._handshake import STRANGE, TRANSIENT, asked, code_of, refusal, strange
from ._link import Link
from ._resp import pack
from ._scripts import all_scripts
from ._shards import homes, prefix_of, tags, target

LOOK_UP = 1.0
"""Seconds after which a node that does not tell where the shards are is passed over."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
"""Seconds before a command that a node would not take is sent again, and between looks for what moved."""

_CHANNEL = "tenure:"
_SHARDED_PUBLISH = (7, 0)
_ASKING = pack([("ASKING",)])
REDIRECTED = ("MOVED", "ASK", "NOSCRIPT", *TRANSIENT)
"""Error codes of a node that did not take a command."""


class _Node:
    """One node: where it is, as a link takes it, and the link."""

    def __init__(self, where: Address, nodes: Nodes, response_timeout: float, replicas: int) -> None:
        self.where = where
        self.user, self.password, self.database = where.user, where.password, 0
        self.heard: set[str] = set()
        """The channels to which this connection is subscribed."""
        self.scope = CancelScope()
        self.link = Link(
            self,
            partial(nodes.hear, self),
            partial(nodes.connected, self),
            probes=nodes.probes,
            response_timeout=response_timeout,
            replicas=replicas,
        )
        self._nodes = nodes

    def __str__(self) -> str:
        return str(self.where)

    async def connect(self) -> ByteStream:
        """Open a connection. Raises `OSError`. Cancellation: nothing is left open."""
        # it may have been replaced
        self._nodes.look()
        return await self.where.connect()

    async def moved(self) -> bool:
        """A node stays where it is. Cancellation: has no effect."""
        return False


class Nodes:
    """Carries commands to the nodes that have the shards, wherever these move.

    `hear(process, message)` is called for each message, `resync()` when messages may have been lost.

    Thread safety: none.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        hear: Callable[[str, bytes], None],
        resync: Callable[[], None],
        *,
        shards: int,
        response_timeout: float,
        replicas: int,
    ) -> None:
        self._seeds = seeds
        self._tags = tags(shards)
        # the layout is kept with the tag that no shard has
        self.probes = {prefix_of("0"): str(shards), **dict.fromkeys(map(prefix_of, self._tags), "")}
        self._tell = hear
        self._resync = resync
        self._link_options = (response_timeout, replicas)
        self._processes: list[str] = []
        self._channels: dict[str, str] = {}
        """For which process a channel is."""
        self._group: TaskGroup | None = None
        self._nodes: dict[Address, _Node] = {}
        self._homes: dict[int, _Node] = {}
        self._found = anyio.Event()
        self._lost = anyio.Event()
        self._unheard = anyio.Event()
        self._heard = anyio.Event()
        self._renewed = False

    def __str__(self) -> str:
        """The URL, without the password."""
        seed = self._seeds[0]
        user = f"{seed.user}@" if seed.user else ""
        return f"redis{'s' if seed.tls else ''}+cluster://{user}{','.join(one.place for one in self._seeds)}"

    # commands

    async def execute(self, shard: int, commands: list[bytes]) -> list[Any]:
        """Send packed commands to the node that has the shard; give the reply to each.

        Raises `StoreUnavailable` when the connection broke before the last of them was answered.
        Cancellation: they may or may not be executed.
        """
        replies: list[Any] = []
        asks: _Node | None = None
        pause = 0.0
        while True:
            node = asks or await self._home(shard)
            rest = commands[len(replies) :]
            if asks:
                rest = [part for command in rest for part in (_ASKING, command)]
            new = await node.link.execute(rest)
            # what came behind one that was not executed is sent again with it, to keep the order
            for reply in new[1::2] if asks else new:
                if isinstance(reply, hiredis.ReplyError) and code_of(reply) in REDIRECTED:
                    break
                replies.append(reply)
            else:
                return replies
            asks = await self._redirected(shard, node, reply)
            await anyio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause + _FIRST_PAUSE, _LONGEST_PAUSE)

    def link(self, shard: int) -> Link | None:
        """The link to the node that has the shard, if it stands."""
        node = self._homes.get(shard)
        return node.link if node is not None and node.link.up else None

    async def _home(self, shard: int) -> _Node:
        while shard not in self._homes:
            self.look()
            await self._found.wait()
        return self._homes[shard]

    async def _redirected(self, shard: int, node: _Node, error: hiredis.ReplyError) -> _Node | None:
        """Do what the error says; gives the node to be asked just once."""
        match code_of(error):
            case "MOVED":
                self._move({shard: target(node.where, str(error))})
            case "ASK":
                return self._node(target(node.where, str(error)))
            case "NOSCRIPT":
                await node.link.execute(
                    [pack([("SCRIPT", "LOAD", script.source)]) for script in all_scripts()]
                )
            case _:
                self.look()
        return None

    # nodes

    async def run(self, started: Callable[[], None] | None) -> None:
        """Find the nodes and keep a link to each; `started()` is called once they stand.

        With `started`, raises what finding them raises: `StoreUnavailable` or `EngineError`.
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
                    self.look()
                group.start_soon(self._survey)
                group.start_soon(self._listen)
                if started is not None:
                    await self.listening()
                    started()
        finally:
            self._group = None
            self._homes.clear()
            self._drop_unused()

    def look(self) -> None:
        """Something may have moved."""
        self._lost.set()

    async def _open(self, node: _Node, *, task_status: TaskStatus[None]) -> None:
        def opened() -> None:
            self.connected(node)
            task_status.started()

        with node.scope:
            try:
                await node.link.run(opened)
            except StoreUnavailable:
                task_status.started()
                await node.link.run(None)

    async def _keep(self, node: _Node) -> None:
        with node.scope:
            await node.link.run(None)

    def _node(self, where: Address) -> _Node:
        node = self._nodes.get(where)
        if node is None:
            if self._group is None:
                raise StoreUnavailable(f"{self}: the engine does not serve")
            node = self._nodes[where] = _Node(where, self, *self._link_options)
            self._group.start_soon(self._keep, node)
        return node

    def _move(self, found: dict[int, Address]) -> None:
        """These shards are there now."""
        before = self._homes
        self._homes = before | {shard: self._node(where) for shard, where in found.items()}
        self._renewed = self._renewed or any(home is not self._homes[shard] for shard, home in before.items())
        self._drop_unused()
        self._found.set()
        self._found = anyio.Event()
        self._unheard.set()

    def _drop_unused(self) -> None:
        used = set(self._homes.values())
        for where, node in list(self._nodes.items()):
            if node not in used:
                del self._nodes[where]
                node.link.close()
                node.scope.cancel()

    async def _survey(self) -> None:
        """Look where the shards are while one of them cannot be reached."""
        while True:
            await self._lost.wait()
            self._lost = anyio.Event()
            with suppress(StoreUnavailable, EngineError):
                self._move(await self._where())
            await anyio.sleep(_LONGEST_PAUSE * random.uniform(0.25, 0.5))
            if not all(node.link.up for node in self._homes.values()):
                self.look()

    async def _where(self) -> dict[int, Address]:
        """Where the shards are, as the first node says that answers."""
        told = list({*self._nodes, *self._seeds})
        random.shuffle(told)
        problem: Exception = StoreUnavailable(f"{self}: no node answers")
        for where in told:
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
                except STRANGE:
                    problem = strange(where, "no node of a cluster", replies[-1])
        raise problem

    # messages

    def listen(self, process: str) -> None:
        """Hear what is published for a process."""
        self._processes.append(process)
        self._unheard.set()

    async def listening(self) -> None:
        """Wait until all that can be reached are listened to. Cancellation: has no effect."""
        while not self._homes or self._unsubscribed():
            await self._heard.wait()

    def forget(self, process: str) -> None:
        """Hear no more for it."""
        self._processes.remove(process)
        for node in self._nodes.values():
            for channel in [channel for channel in node.heard if self._channels.get(channel) == process]:
                node.heard.remove(channel)
                node.link.tell(pack([("SUNSUBSCRIBE" if "{" in channel else "UNSUBSCRIBE", channel)]))
        self._channels = {channel: whose for channel, whose in self._channels.items() if whose != process}

    def connected(self, node: _Node) -> None:
        """There is a new connection, on which nothing is heard yet."""
        self._renewed = True
        node.heard.clear()
        self._unheard.set()

    def hear(self, node: _Node, channel: str, message: bytes | None) -> None:
        """A message came; with None the node says that the channel's shard has moved away."""
        if message is None:
            node.heard.discard(channel)
            self._unheard.set()
        elif channel in self._channels:
            self._tell(self._channels[channel], message)

    async def _listen(self) -> None:
        """Subscribe wherever it has to be done; who was not subscribed may have missed something."""
        while True:
            self._unheard = anyio.Event()
            heard = [await self._subscribe(shard, *what) for shard, what in self._unsubscribed()]
            if any(heard) or self._renewed:
                self._renewed = False
                self._resync()
            self._heard.set()
            self._heard = anyio.Event()
            await self._unheard.wait()
            await anyio.sleep(_FIRST_PAUSE)

    def _unsubscribed(self) -> list[tuple[int, tuple[_Node, str, str]]]:
        missing: list[tuple[int, tuple[_Node, str, str]]] = []
        up = [(shard, node) for shard, node in self._homes.items() if node.link.up]
        for process in self._processes:
            old: list[tuple[int, _Node]] = []
            for shard, node in up:
                channel = f"{_CHANNEL}{{{self._tags[shard]}}}:{process}"
                self._channels[channel] = process
                if node.link.version < _SHARDED_PUBLISH:
                    old.append((shard, node))
                elif channel not in node.heard:
                    missing.append((shard, (node, "SSUBSCRIBE", channel)))
            # such nodes tell each other what is published on any of them
            channel = _CHANNEL + process
            self._channels[channel] = process
            if old and not any(channel in node.heard for _, node in old):
                missing.append((old[0][0], (old[0][1], "SUBSCRIBE", channel)))
        return missing

    async def _subscribe(self, shard: int, node: _Node, verb: str, channel: str) -> bool:
        # first, since the node may say right behind its answer that the shard has moved away
        node.heard.add(channel)
        try:
            (reply,) = await node.link.execute([pack([(verb, channel)])], writes=False)
        except StoreUnavailable:
            node.heard.discard(channel)
            self._unheard.set()
            return False
        if not isinstance(reply, hiredis.ReplyError):
            return True
        node.heard.discard(channel)
        if code_of(reply) not in REDIRECTED:
            raise refusal(self, reply)
        with suppress(StoreUnavailable):
            await self._redirected(shard, node, reply)
        self._unheard.set()
        return False
