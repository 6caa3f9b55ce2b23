"""The view of a store at one time, read in two or three round trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

import tenure.engine as e
from tenure.store import StoreHandle, names, read_counts, read_pages, together

from ._processors import SeenProcessor, processor
from ._waits import Deadlock, Key, deadlocks

READERS = 1 << 30
"""The capacity of a read-write lock; a writer weighs all of it."""

_FLEET = "processor"
"""The kind of the keys as whose holders the processes of a processor report; they are shown with the processors."""


@dataclass(frozen=True, slots=True)
class SeenKey:
    kind: str
    name: str
    capacity: int
    used: int
    holders: tuple[e.Holder, ...]
    waiting: tuple[e.Holder, ...]


@dataclass(frozen=True, slots=True)
class SeenPool:
    name: str
    page: e.ResourcePage

    def count(self, state: str) -> int:
        return self.page.slots()[state]


@dataclass(slots=True)
class SeenProcess:
    process: str
    tasks: dict[str, int] = field(default_factory=dict[str, int])
    leases: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]], kw_only=True)
    idle: set[str] = field(default_factory=set[str])
    holds: int = 0
    claims: int = 0
    waits: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """A store at the moment `at` of the loop's clock; a round trip took `ping` seconds.

    `more` names the kinds of which there are more than were looked at.
    """

    at: float
    ping: float
    queues: dict[str, e.QueueCounts]
    keys: tuple[SeenKey, ...]
    pools: tuple[SeenPool, ...]
    processes: tuple[SeenProcess, ...]
    processors: tuple[SeenProcessor, ...]
    deadlocks: tuple[Deadlock, ...]
    limiters: dict[str, e.LimiterStatus]
    more: frozenset[str]

    def takers(self, queue: str) -> int | None:
        """The number of processes that have tasks of a queue or wait for tasks; None if not all processes were read."""
        if "sessions" in self.more:
            return None
        found = sum(queue in process.idle or queue in process.tasks for process in self.processes)
        # `tenure run` holds a lock of this name, also while its rate lets no task begin
        runs = queue.startswith("run:") and any((k.kind, k.name) == ("lock", queue) for k in self.keys)
        return found or int(runs)


async def read_view(store: StoreHandle, limit: int = 1000) -> View:
    before = anyio.current_time()
    await store.call(e.Ping())
    ping = anyio.current_time() - before
    kinds = ("queues", "holds", "pools", "sessions", "limiters")
    lists = dict(
        zip(kinds, await together(*(partial(names, store, kind, limit) for kind in kinds)), strict=True)
    )
    queues, keys, pools, processes, limiters = await together(
        partial(read_queues, store, lists["queues"]),
        partial(read_keys, store, lists["holds"]),
        partial(read_pools, store, lists["pools"]),
        partial(read_processes, store, lists["sessions"]),
        partial(read_limiters, store, lists["limiters"]),
    )
    fleets = [key for key in keys if key.kind == _FLEET]
    keys = tuple(key for key in keys if key.kind != _FLEET)
    return View(
        at=anyio.current_time(),
        ping=ping,
        queues=queues,
        keys=keys,
        pools=pools,
        processes=processes,
        processors=tuple(processor(key.name, key.holders) for key in fleets),
        deadlocks=await find_deadlocks(store, keys),
        limiters=limiters,
        more=frozenset(kind for kind in kinds if len(lists[kind]) >= limit),
    )


async def read_queues(store: StoreHandle, keys: Sequence[str]) -> dict[str, e.QueueCounts]:
    counts = await together(*(partial(read_counts, store, key) for key in keys))
    return {split_key(store, key)[1]: each for key, each in zip(keys, counts, strict=True)}


async def read_keys(store: StoreHandle, keys: Sequence[str], limit: int = 1000) -> tuple[SeenKey, ...]:
    """The holders and waiters of keys that are held. Arrivals that have met at a barrier hold nothing."""
    scans = (partial(read_pages, store, e.Scan(e.HOLDERS, key), 2 * limit) for key in keys)
    found: list[e.Holdings] = await together(*scans)
    return tuple(
        SeenKey(*split_key(store, key), h.capacity, h.used, h.holders, h.waiting)
        for key, h in zip(keys, found, strict=True)
        if h.used
    )


async def read_pools(store: StoreHandle, keys: Sequence[str]) -> tuple[SeenPool, ...]:
    pools = await together(*(partial(read_pages, store, e.Scan(e.RESOURCES, key)) for key in keys))
    return tuple(SeenPool(split_key(store, key)[1], pool) for key, pool in zip(keys, pools, strict=True))


async def read_limiters(store: StoreHandle, keys: Sequence[str]) -> dict[str, e.LimiterStatus]:
    pages = await together(*(partial(read_pages, store, e.Scan(e.LIMITER, key)) for key in keys))
    return {split_key(store, key)[1]: page.rows[0] for key, page in zip(keys, pages, strict=True)}


async def read_processes(store: StoreHandle, sessions: Sequence[str]) -> tuple[SeenProcess, ...]:
    prefix = f"{store.namespace}:"
    processes: dict[str, SeenProcess] = {}
    pages: list[e.SessionPage] = await together(
        *(partial(read_pages, store, e.Scan(e.SESSION, session)) for session in sessions)
    )
    for page in pages:
        mine = [item for item in page.rows if item.key.startswith(prefix)]
        if mine or not page.rows:
            seen = processes.setdefault(page.process, SeenProcess(page.process))
            for item in mine:
                _add(seen, item, *split_key(store, item.key))
    processes.pop("", None)  # of sessions that have ended
    return tuple(processes[process] for process in sorted(processes))


def _add(seen: SeenProcess, item: e.SessionItem, kind: str, name: str) -> None:
    if item.family == "tasks":
        seen.tasks[name] = seen.tasks.get(name, 0) + 1
        task_id, token = map(int, item.name.split())
        seen.leases.append((name, task_id, token))
    elif item.family == "takers":
        seen.idle.add(name)
    elif not item.held:
        seen.waits += 1
    elif item.family == "holds" and kind != _FLEET:
        seen.holds += 1
    elif item.family == "claims":
        seen.claims += 1


async def find_deadlocks(store: StoreHandle, keys: Sequence[SeenKey]) -> tuple[Deadlock, ...]:
    """The deadlocks among keys that were looked at; keys are named "kind name".

    Keys are read one after the other, so each circle is read again: waits that lasted from the first look to the second
    were all there in between.
    """
    deadlocks = _deadlocks(keys)
    if not deadlocks:
        return ()
    waited_for = [f"{store.namespace}:{key.kind}:{key.name}" for key in keys if key.waiting]
    before = [_circle(deadlock) for deadlock in deadlocks]
    return tuple(
        deadlock
        for deadlock in _deadlocks(await read_keys(store, waited_for))
        if any(
            circle.keys() == earlier.keys() and all(circle[wait] >= earlier[wait] for wait in circle)
            for circle in (_circle(deadlock),)
            for earlier in before
        )
    )


def _deadlocks(keys: Sequence[SeenKey]) -> list[Deadlock]:
    return deadlocks(Key(f"{key.kind} {key.name}", key.capacity, key.holders, key.waiting) for key in keys)


def _circle(deadlock: Deadlock) -> dict[tuple[str, str, str], float]:
    return {(wait.process, wait.task, wait.key): wait.seconds for wait in deadlock.waits}


def split_key(store: StoreHandle, key: str) -> tuple[str, str]:
    kind, _, name = key.removeprefix(f"{store.namespace}:").partition(":")
    return kind, name


async def ask(store: StoreHandle, operations: Sequence[e.Operation[Any]]) -> list[Any]:
    """The answers to operations that travel together. Cancellation: they may or may not be applied."""
    return await together(*(partial(store.call, operation) for operation in operations))
