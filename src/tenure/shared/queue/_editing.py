from __future__ import annotations

from dataclasses import replace
from typing import Any

import tenure.engine as e
from tenure.errors import TaskNotWaiting
from tenure.store import StoreHandle, read_pages

from ._groups import group_of_children

UNCHANGED: Any = object()
"""The value of an option that is not given, where None means something."""

_WAITS = ("waiting", "delayed")


async def edit_task(store: StoreHandle, found: e.Scan[Any], move: e.Move) -> int:
    while True:
        page = await read_pages(store, found)
        if not page.rows:
            named = (
                f"task {found.only}"
                if found.index.name == "task"
                else f"the task with the key {found.only!r}"
            )
            raise TaskNotWaiting(move.key, named)
        (record,) = page.rows
        if record.state not in _WAITS:
            raise TaskNotWaiting(move.key, f"task {record.id}", record.state, record.id)
        group = group_of_children(move.group) if move.group and record.parent else move.group
        moved = await store.call(replace(move, ids=(record.id,), group=group))
        assert isinstance(moved, e.MovedCount)
        if moved.count:
            return record.id
