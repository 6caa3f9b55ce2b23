"""The task that follows a dead letter: in a queue of its own, put once on record, whichever process sees it first.

Dead letters have ranks, in the order in which their tasks died. A cursor in the handler's queue is the highest rank
with a task, compared and set in the step that puts more tasks.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, cast

import anyio

import tenure.engine as e
from tenure.errors import (
    CapacityMismatch,
    CursorConflict,
    EngineError,
    OutcomeUnknown,
    StoreClosed,
    StoreUnavailable,
)
from tenure.store import Codec, JsonCodec, StoreHandle, handle_of, read_pages
from tenure.upkeep import unwrapped_task_group

from ._as_json import bytes_of, readable
from ._options import Item
from ._queue import MEBIBYTE, WorkQueue
from ._records import TaskRecord, record_of
from ._reports import numbered_report, report_in

SUFFIX = ".dead"
"""The end of the name of the queue for the dead letters of another queue."""

_CURSOR = "dead letters up to rank"
_PORTION = 32
_PERIOD = 10.0
"""Seconds between two searches for the dead letters of other processes, and of tasks that nobody has settled."""

_JSON = JsonCodec()
_BYTES = ("payload", "progress", "failure", "meta")
_PLAIN = ("id", "priority", "key", "attempts", "deliveries", "age", "group", "parent", "parent_key")


class RecordCodec:
    """A dead letter as JSON: what JSON can express is readable, and other bytes are in base64."""

    def __init__(self, queue: WorkQueue[Any]) -> None:
        self._payloads: Codec[Any] = queue.codec
        self._store: StoreHandle = handle_of(queue.store)

    def encode(self, value: object, /) -> bytes:
        if not isinstance(value, e.Record):
            raise TypeError(f"on_dead alone puts tasks into this queue, and not {type(value).__name__}")
        document: dict[str, Any] = {name: getattr(value, name) for name in _PLAIN}
        document |= {"rank": value.seq, "ran": value.ran, "error": value.result.decode(errors="replace")}
        for name in _BYTES:
            data = getattr(value, name)
            data = report_in(data) if name == "progress" else data
            if data:
                document |= readable(name, data)
        return _JSON.encode(document)

    def decode(self, data: bytes, /) -> TaskRecord[Any]:
        try:
            document = _JSON.decode(data)
            plain = {name: document[name] for name in _PLAIN}
            of_bytes: dict[str, Any] = {name: bytes_of(name, document) for name in _BYTES}
            if of_bytes["progress"]:
                of_bytes["progress"] = numbered_report(0, 0, of_bytes["progress"])
            result = document["error"].encode(errors="replace")
            plain |= {"seq": document["rank"], "ran": document.get("ran"), "state": "dead"}
            record = e.Record(result=result, **plain, **of_bytes)
            return record_of(record, self._payloads, self._store.codec, self._store)
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"it is no dead letter that on_dead has put: {problem!r}") from problem


class _Worker(Protocol):
    async def run(self) -> None: ...
    async def drain(self) -> None: ...


class DeadLetters:
    """Puts a task into the queue `<name>.dead` for each dead letter of `queue`, and runs the worker made for these.

    Its payload is the `TaskRecord` of the dead letter; its priority, group and meta are the same.
    """

    def __init__(self, queue: WorkQueue[Any], make_worker: Callable[[WorkQueue[Any]], _Worker]) -> None:
        self._queue = queue
        try:
            self._own: WorkQueue[Any] = WorkQueue(
                queue.store,
                queue.name + SUFFIX,
                codec=cast("Codec[Any]", RecordCodec(queue)),
                # payload and progress, in base64, and the rest
                max_payload=3 * queue.max_payload + MEBIBYTE,
            )
        except ValueError as problem:
            raise ValueError(f"on_dead has a queue named {queue.name + SUFFIX!r}: {problem}") from None
        self._worker = make_worker(self._own)
        self._news = anyio.Event()
        self._ended: anyio.Event | None = None

    def wake(self) -> None:
        self._news.set()

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        problems: list[Exception] = []
        self._ended = anyio.Event()

        async def guarded(function: Callable[[], Awaitable[None]]) -> None:
            try:
                await function()
            except (StoreClosed, EngineError, CapacityMismatch) as problem:
                # it hits all parts alike: one error is raised
                problems.append(problem)
                group.cancel_scope.cancel()

        async def work_and_drain() -> None:
            await work()
            await self._hand_over_all()
            await self._worker.drain()

        try:
            async with unwrapped_task_group() as group:
                group.start_soon(guarded, self._worker.run, name=f"tenure handles {self._own.name}")
                group.start_soon(guarded, self._poll, name=f"tenure fills {self._own.name}")
                await guarded(work_and_drain)
                group.cancel_scope.cancel()
        finally:
            self._ended.set()
        if problems:
            raise problems[0]

    async def drained(self) -> None:
        if self._ended is not None:
            await self._ended.wait()

    async def _poll(self) -> None:
        while True:
            self._news = anyio.Event()
            await self._hand_over_all()
            with anyio.move_on_after(_PERIOD * (0.9 + 0.2 * random.random())):
                await self._news.wait()

    async def _hand_over_all(self) -> None:
        more = True
        with suppress(StoreUnavailable):  # again the next time
            while more:
                # another process was first, or perhaps this one: the cursor says so
                with suppress(CursorConflict, OutcomeUnknown):
                    more = await self._hand_over()

    async def _hand_over(self) -> bool:
        queue = self._queue
        before: int | None = (await self._own.cursors()).get(_CURSOR)
        scan = e.Scan(e.TASKS["dead"], queue.key, str(before or 0))
        records = (await read_pages(handle_of(queue.store), scan, _PORTION)).rows
        if records:
            items = [self._item(record) for record in records]
            await self._own.put_many(items, cursor=(_CURSOR, records[-1].seq), expected=before)
        return bool(records)

    def _item(self, record: e.Record) -> Item[Any]:
        letter = record_of(record, self._queue.codec, self._queue.store.codec, handle_of(self._queue.store))
        return Item(record, priority=letter.priority, meta=letter.meta, group=letter.group)
