"""The tasks of a queue for the page: listed, searched, and shown with all details.

These are operations of the engine, since a `WorkQueue` made here would replace the options of the user's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import tenure.engine as e
from tenure.shared import (
    ChildRecord,
    TaskRecord,
    age_of,
    group_statistics,
    read_kin,
    read_workers,
    record_of,
    shown_record,
)
from tenure.store import StoreHandle, read_counts, read_pages

from ._document import counted
from ._newest import Newest
from ._tree import described, flat, read_tree, waits_for
from ._view import ask

STATES = tuple(e.TASKS)
_LONGEST_VALUE = 16_384
"""Characters of a payload, result or report; the rest is cut."""

_LISTED_VALUE = 200
"""Characters of a payload in a list."""

_MOST_LOOKED_AT = 2048
"""Tasks that a search looks at before it answers with what it has found."""

_PORTION = 64
"""Tasks that are read at a time: each comes with its payload."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Reads tasks for `Site`. For a queue that does not exist, the answers are None."""

    store: StoreHandle
    payloads: bool = False
    errors: bool = True

    async def listing(
        self, queue: str, state: str, after: str, limit: int, find: str
    ) -> dict[str, Any] | None:
        """A page of the tasks in a state; with `find`, those with this id, or this in their key, group or error.

        Dead and ended tasks come the newest first, the task with that id or key before all. Raises `ValueError`,
        `EngineError`.
        """
        if state not in STATES:
            raise ValueError(f"state must be one of {', '.join(STATES)}, not {state!r}")
        key = self.store.key("queue", queue)
        tasks = await self._named(key, find) if find and not after else []
        shown, looked_at = {task["id"] for task in tasks}, 0
        ended = state in ("dead", "ended")
        page = Newest(self.store, key, state).page if ended else partial(self._page, key, state)
        while True:
            records, after = await page(after, _PORTION if find else min(limit - len(tasks), _PORTION))
            looked_at += len(records)
            described = [self._described(record) for record in records]
            tasks += [task for task in described if task["id"] not in shown and _has(task, find)]
            if not (tasks or after or (await read_counts(self.store, key)).known):
                return None
            if not after or len(tasks) >= limit or (find and looked_at >= _MOST_LOOKED_AT):
                return {"queue": queue, "state": state, "tasks": tasks, "looked_at": looked_at, "next": after}

    async def counts(self, queue: str, limit: int) -> dict[str, Any] | None:
        key = self.store.key("queue", queue)
        page: e.Page[e.GroupCounts]
        settings: e.Configured
        counts, page, settings = await ask(
            self.store, [e.Count(key), e.Scan(e.GROUPS, key, limit=limit), e.Configure(key)]
        )
        assert isinstance(counts, e.QueueCounts)
        if not counts.known:
            return None
        return {
            "name": queue,
            **counted(counts),
            "settings": shown_record(settings),
            "longest_groups": [asdict(group_statistics(group)) for group in page.rows],
        }

    async def workers(self, queue: str) -> dict[str, Any] | None:
        key = self.store.key("queue", queue)
        found = await read_workers(self.store, key)
        if not (found or (await read_counts(self.store, key)).known):
            return None
        return {"queue": queue, "workers": [asdict(worker) for worker in found]}

    async def one(self, queue: str, task_id: int) -> dict[str, Any] | None:
        """The record of a task, with its traceback and its tree; None if it is not known."""
        key = self.store.key("queue", queue)
        page = await read_pages(self.store, e.Scan(e.TASK, key, only=str(task_id)))
        if not page.rows:
            return None
        (record,) = page.rows
        kin = await read_kin(self.store, key, record)
        path = await waits_for(self.store, kin.child)
        tree, more = await read_tree(self.store, queue, task_id)
        return {
            **self._described(record, whole=True),
            **await self._times(key, record),
            "waits_for": [described(child) for child in path],
            "releases": [self._release(release) for release in kin.releases],
            "tree": [{"depth": depth, **described(child)} for depth, child in flat(tree)],
            "more": more,
        }

    async def _times(self, key: str, record: e.Record) -> dict[str, Any]:
        workers = await read_workers(self.store, key) if record.state == "leased" else []
        ended = record.age if record.seq else None
        return {
            "put": age_of(record.id, (await read_counts(self.store, key)).now),
            "process": next((w.process for w in workers for task in w.tasks if task.id == record.id), None),
            "started": None if record.ran is None else record.ran + (ended or 0.0),
            "ended": ended,
        }

    async def _page(self, key: str, state: str, after: str, limit: int) -> tuple[Sequence[e.Record], str]:
        page = await read_pages(self.store, e.Scan(e.TASKS[state], key, after), limit)
        return page.rows, page.next

    async def _named(self, key: str, find: str) -> list[dict[str, Any]]:
        asked = [e.Scan(e.KEYED_TASK, key, only=find)]
        if find.isascii() and find.isdecimal() and 0 < int(find) < 2**53:
            asked.insert(0, e.Scan(e.TASK, key, only=find))
        tasks: dict[int, dict[str, Any]] = {}
        for scan in asked:
            for record in (await read_pages(self.store, scan)).rows:
                tasks[record.id] = self._described(record)
        return list(tasks.values())

    def _release(self, release: ChildRecord) -> dict[str, Any]:
        shown = {name: getattr(release, name) for name in ("name", "queue", "id", "state")}
        return shown | ({"error": release.error} if self.errors else {})

    def _described(self, record: e.Record, *, whole: bool = False) -> dict[str, Any]:
        task = seen(record, self.store, payloads=self.payloads)
        shown = {name: getattr(task, name) for name in ("id", "state", "priority", "key", "group")}
        shown |= {name: getattr(task, name) for name in ("attempts", "deliveries", "age", "rank", "release")}
        shown |= {name: getattr(task, name) for name in ("parent", "parent_queue", "children", "ran")}
        if self.errors:
            shown["error"] = task.error
        if whole:
            shown |= {name: getattr(task, name) for name in ("progress", "deadline", "timeout")}
            shown |= {"meta": dict(task.meta), "retry": None if task.retry is None else repr(task.retry)}
            if self.errors:
                shown |= {"traceback": task.traceback, "failed_tries": task.failed_tries}
            if self.payloads:
                shown["result"] = task.result
        if self.payloads:
            shown["payload"] = task.payload if whole else task.payload and task.payload[:_LISTED_VALUE]
        return shown


def seen(record: e.Record, store: StoreHandle, *, payloads: bool = False) -> TaskRecord:
    """A record with texts as values; the user's codec decodes no payload or result that is not shown."""
    if not payloads:
        record = replace(record, payload=b"", result=b"" if record.state == "done" else record.result)
    texts = Texts(store.codec.decode)
    return record_of(record, texts, texts, store)


@dataclass(frozen=True, slots=True)
class Texts:
    inner: Callable[[bytes], Any]

    def encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def decode(self, data: bytes) -> str:
        try:
            value = self.inner(data)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
        except Exception:  # noqa: BLE001 - another program's payload must not hide its task
            text = data.decode("utf-8", "backslashreplace")
        return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _has(task: dict[str, Any], find: str) -> bool:
    find = find.casefold()
    return not find or any(find in (task.get(name) or "").casefold() for name in ("key", "group", "error"))
