"""The latest failures, by the type of error: dead letters of the last hour, and delayed tasks."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import anyio

import tenure.engine as e
from tenure.store import StoreHandle, names, read_pages, together

from ._tasks import seen
from ._view import read_queues

HOUR = 3600.0
_FRESH = 5.0
"""Seconds for which one reading serves all clients."""

_MOST_QUEUES = 100
_MOST_KEPT = 1000
_PORTION = 64
_PORTIONS = 8
"""The number of portions of dead letters that one look reads in a queue; the next look goes on from there."""


class _Failure(NamedTuple):
    type: str
    error: str
    task: int
    at: float


@dataclass(slots=True)
class _Queue:
    upto: int
    behind: bool = True
    dead: deque[_Failure] = field(default_factory=lambda: deque[_Failure](maxlen=_MOST_KEPT))


class Failures:
    """Reads the dead letters of queues from an hour ago on, each once, and the first delayed tasks each time."""

    def __init__(self, store: StoreHandle, *, errors: bool = True) -> None:
        self._store = store
        self._errors = errors
        self._queues: dict[str, _Queue] = {}
        self._lock = anyio.Lock()
        self._seen: tuple[float, dict[str, Any]] | None = None

    async def read(self) -> dict[str, Any]:
        async with self._lock:
            if self._seen is None or anyio.current_time() - self._seen[0] >= _FRESH:
                self._seen = anyio.current_time(), await self._read()
            return self._seen[1]

    async def _read(self) -> dict[str, Any]:
        queues = await read_queues(self._store, await names(self._store, "queues", 500))
        failing = {name: counts for name, counts in queues.items() if counts.dead or counts.delayed}
        looked_at = dict(list(failing.items())[:_MOST_QUEUES])
        for gone in self._queues.keys() - looked_at.keys():
            del self._queues[gone]
        calls = (partial(self._look_at, name, counts) for name, counts in looked_at.items())
        kinds = [kind for kinds in await together(*calls) for kind in kinds]
        kinds.sort(key=lambda kind: kind["latest"])
        behind = any(queue.behind for queue in self._queues.values())
        return {"seconds": HOUR, "kinds": kinds, "more": behind or len(failing) > len(looked_at)}

    async def _look_at(self, name: str, counts: e.QueueCounts) -> list[dict[str, Any]]:
        dead = await self._dead(name, counts) if counts.dead else []
        delayed = await self._delayed(name) if counts.delayed else []
        now = anyio.current_time()
        kinds: dict[str, dict[str, Any]] = {}
        for state, failures in (("dead", dead), ("delayed", delayed)):
            for failure in failures:
                kind = kinds.setdefault(
                    failure.type,
                    {"type": failure.type, "queue": name, "dead": 0, "delayed": 0, "latest": HOUR},
                )
                kind[state] += 1
                if now - failure.at <= kind["latest"]:
                    kind |= {"latest": max(0.0, now - failure.at), "task": failure.task}
                    if self._errors:
                        kind["error"] = failure.error
        return list(kinds.values())

    async def _dead(self, name: str, counts: e.QueueCounts) -> list[_Failure]:
        key = self._store.key("queue", name)
        if (queue := self._queues.get(name)) is None:
            queue = self._queues[name] = _Queue(await self._an_hour_ago(key, counts))
        for _ in range(_PORTIONS):
            page = await self._browse(key, "dead", str(queue.upto), _PORTION)
            if page.rows:
                queue.upto = page.rows[-1].seq
            queue.dead += [self._failure(record) for record in page.rows]
            queue.behind = bool(page.next)
            if not queue.behind:
                break
        since = anyio.current_time() - HOUR
        while queue.dead and queue.dead[0].at < since:
            queue.dead.popleft()
        return list(queue.dead)

    async def _an_hour_ago(self, key: str, counts: e.QueueCounts) -> int:
        low, high = 0, max(1024, counts.done + counts.dead)
        while not await self._is_young(key, high):
            low, high = high, high * 2
        while low < high:
            middle = (low + high) // 2
            if await self._is_young(key, middle):
                high = middle
            else:
                low = middle + 1
        return low

    async def _is_young(self, key: str, rank: int) -> bool:
        records = (await self._browse(key, "dead", str(rank), 1)).rows
        return not records or records[0].age < HOUR

    async def _delayed(self, name: str) -> list[_Failure]:
        page = await self._browse(self._store.key("queue", name), "delayed", "", 256)
        return [self._failure(record) for record in page.rows if record.failure]

    async def _browse(self, key: str, state: str, after: str, limit: int) -> e.Page[e.Record]:
        return await read_pages(self._store, e.Scan(e.TASKS[state], key, after), limit)

    def _failure(self, record: e.Record) -> _Failure:
        task = seen(record, self._store)
        error = task.error or ""
        # of a delayed task the age is until it is due; that it failed is all that is known
        age = max(0.0, record.age)
        return _Failure(
            type_of(error, task.traceback), error.partition("\n")[0], record.id, anyio.current_time() - age
        )


def type_of(error: str, traceback: str = "") -> str:
    """The name of the exception with which a record begins; the error of a `Dead` is its reason alone."""
    line = error.partition("\n")[0]
    if line and f"\ntenure.Dead: {line}" in traceback:
        return "Dead"
    match = re.match(r"[A-Za-z_][\w.]*(?=: |:?$)", line)
    return match[0] if match else "no exception"
