"""The tree of a task, and for which descendants the task waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tenure.engine as e
from tenure.shared import ChildRecord, Page, read_children, read_kin
from tenure.store import StoreHandle, together

from ._view import ask

_MOST = 100
"""Tasks of a tree that are read."""


@dataclass(slots=True)
class SeenChild:
    name: str
    queue: str
    id: int
    state: str
    unfinished: int = 0
    below: list[SeenChild] = field(default_factory=list["SeenChild"])


async def read_tree(store: StoreHandle, queue: str, task_id: int) -> tuple[list[SeenChild], bool]:
    """At most 100 descendants of a task, level by level; and True if there are more. Raises `EngineError`,
    `StoreClosed`.
    """
    root = SeenChild("", queue, task_id, "")
    level, left, more = [root], _MOST, False
    while level and left and store.has_families:
        reads = (partial(read_children, store, _key(store, task), task.id, "", left) for task in level)
        pages: list[Page[ChildRecord]] = await together(*reads)
        found: list[SeenChild] = []
        for task, page in zip(level, pages, strict=True):
            task.below = [_seen(child) for child in page.records[:left]]
            left -= len(task.below)
            found += task.below
            more = more or page.next is not None or len(task.below) < len(page.records)
        await _read_states(store, [child for child in found if child.state == "unfinished"])
        level = [
            child
            for child in found
            if child.state not in ("done", "discarded", "cancelled", "expired", "purged")
        ]
    return root.below, more or any(child.unfinished for child in level)


async def waits_for(store: StoreHandle, child: ChildRecord | None) -> list[SeenChild]:
    """The chain of unfinished children for which a task waits, from its own child down."""
    path: list[SeenChild] = []
    while child is not None:
        path.append(seen := _seen(child))
        (page,) = await _read_states(store, [seen])
        child = (await read_kin(store, _key(store, seen), page.rows[0])).child if page.rows else None
    return path


def flat(children: Iterable[SeenChild], depth: int = 1) -> Iterator[tuple[int, SeenChild]]:
    for child in children:
        yield depth, child
        yield from flat(child.below, depth + 1)


def described(child: SeenChild) -> dict[str, Any]:
    return {name: getattr(child, name) for name in ("name", "queue", "id", "state", "unfinished")}


async def _read_states(store: StoreHandle, children: Sequence[SeenChild]) -> list[e.TaskPage]:
    pages: list[e.TaskPage] = await ask(
        store, [e.Scan(e.TASK, _key(store, child), only=str(child.id)) for child in children]
    )
    for child, page in zip(children, pages, strict=True):
        for record in page.rows:
            child.state, child.unfinished = record.state, record.children
    return pages


def _key(store: StoreHandle, child: SeenChild) -> str:
    return store.key("queue", child.queue)


def _seen(child: ChildRecord) -> SeenChild:
    return SeenChild(child.name, child.queue, child.id, child.state)
