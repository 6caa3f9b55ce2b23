from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import tenure.engine as e
from tenure.arguments import check_name
from tenure.errors import CursorConflict, QueueFull
from tenure.store import StoreHandle, decoded, encoded

from ._puts import Producers

ANYTHING: Any = object()


class StoredCursor(bytes):
    """The value of a cursor as the engine has it: not every codec encodes equal values alike."""


async def put_portions(
    store: StoreHandle,
    key: str,
    producers: Producers,
    tasks: Sequence[e.NewTask],
    cursor: tuple[str, Any] | None,
    expected: Any,
) -> list[int | e.Duplicate]:
    most = min(e.CAP, producers.record.current.max_size)
    # which tasks are put together; without any, a cursor is still stored
    portions = deque(
        list(range(start, min(start + most, len(tasks)))) for start in range(0, max(1, len(tasks)), most)
    )
    stored = value = None
    if cursor is not None:
        if not isinstance(cursor, tuple) or len(cursor) != 2:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
            raise TypeError(f"cursor must be a tuple of a name and a value, not {cursor!r}")
        stored = (check_name("cursor: the name", cursor[0]), _encoded(store, key, "the cursor", cursor[1]))
    if expected is not ANYTHING:
        if cursor is None or len(portions) > 1:
            raise ValueError("expected needs a cursor, and items that fit in one portion")
        value = b"" if expected is None else _encoded(store, key, "what is expected", expected)
    outcomes: dict[int, int | e.Duplicate] = {}
    while portions:
        portion = portions.popleft()
        part = tuple(map(tasks.__getitem__, portion))
        try:
            answer = await producers.put(part, wait=True, cursor=None if portions else stored, expected=value)
        except QueueFull:
            # tasks of several groups, of which one is full, or more than a group may have
            if len(part) == 1 or value is not None:
                raise
            portions.extendleft(reversed(_parts(portion, tasks)))
            continue
        if isinstance(answer, e.Conflict):
            assert stored is not None
            found = decoded_cursor(store, key, stored[0], answer.value) if answer.value else None
            raise CursorConflict(key, stored[0], found)
        outcomes.update(zip(portion, answer.ids, strict=True))
    return [outcomes[i] for i in range(len(tasks))]


def decoded_cursor(store: StoreHandle, key: str, name: str, value: bytes) -> Any:
    return decoded(store.codec, f"{key}: the cursor {name!r}", value)


def _encoded(store: StoreHandle, key: str, what: str, value: Any) -> bytes:
    if isinstance(value, StoredCursor):
        return value
    return encoded(store.codec, f"{key}: {what}", value)


def _parts(portion: list[int], tasks: Sequence[e.NewTask]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for i in portion:
        groups.setdefault(tasks[i].group, []).append(i)
    keys = [task.key for i in portion if (task := tasks[i]).key is not None]
    if len(groups) > 1 and len(set(keys)) == len(keys):
        return list(groups.values())
    half = len(portion) // 2
    return [portion[:half], portion[half:]]
