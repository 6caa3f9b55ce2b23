"""The tasks of a queue in a state, in order, from any place on."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import tenure.engine as e
from tenure.engines.rules import ENDING, SUSPENDED, Position, decoded_name, encoded_name

from ._queue import SqliteQueue
from ._records import record_of
from ._sql import TASKS
from ._state import SqliteState

_APART = {"suspended": SUSPENDED, "ending": ENDING}
_HIGHEST = 2**63 - 1


def listed(
    state: SqliteState, queue: SqliteQueue, name: str, after: Position, limit: int
) -> list[tuple[Position, e.Record | None]]:
    if name == "ended" or name in e.ENDED:
        return _ended(state, queue, name, after[0] if after else 0, limit)
    rows = unfinished(state, queue.id, name, after, limit)
    shown = state.all(TASKS.show, ids=str([task for *_, task, _ in rows]), state=name)
    return [
        (_position(name, row), record_of(state, queue.name, *of_task))
        for row, of_task in zip(rows, shown, strict=True)
    ]


def unfinished(state: SqliteState, queue: int, name: str, after: Position, limit: int) -> list[Any]:
    run, about = state.all, {"queue": queue, "limit": limit}
    if name == "leased":
        return run(TASKS.leased_in_queue, **about, token=after[0] if after else -1)
    if name in _APART:
        return run(TASKS.apart, **about, place=_APART[name], id=after[0] if after else 0)
    due = run(TASKS.are_due, queue=queue, now=state.moment, limit=e.CAP)
    rows: list[Any] = []
    if name == "delayed":
        # due tasks that are not moved yet count as waiting, as many as an exchange would move
        places = [row[2:4] for row in due[-1:]]
        ready_at, task = max([*places, after or (-1, -1)])
        rows += run(TASKS.delayed_same_time, **about, ready_at=ready_at, id=task)
        if len(rows) < limit:
            rows += run(TASKS.delayed_later, **about, ready_at=ready_at)
        return rows[:limit]
    group, down, ready_at, task = after or ("", -_HIGHEST, -1, -1)
    of_group = {**about, "group": encoded_name(group)}
    if after:
        rows += run(TASKS.waiting_same_time, **of_group, priority=-down, ready_at=ready_at, id=task)
        if len(rows) < limit:
            rows += run(TASKS.waiting_later, **of_group, priority=-down, ready_at=ready_at)
        due = [row for row in due if _rank(row) > (of_group["group"], down, ready_at, task)]
    if len(rows) < limit:
        rows += run(TASKS.waiting_lower, **of_group, priority=-down)
    if len(rows) < limit:
        rows += run(TASKS.waiting_next, **of_group)
    return sorted(rows + due, key=_rank)[:limit]


def _ended(
    state: SqliteState, queue: SqliteQueue, name: str, after: int, limit: int
) -> list[tuple[Position, e.Record | None]]:
    rows: list[Any] = []
    for each in e.ENDED if name == "ended" else (name,):
        rows += state.all(TASKS.browse_ended, queue=queue.id, state=each, after=after, limit=limit)
    rows.sort(key=itemgetter(2))
    # outdated records that are not forgotten yet are passed over
    return [
        ((row[2],), record_of(state, queue.name, *row) if expires is None or expires > state.moment else None)
        for *row, expires in rows[:limit]
    ]


def _rank(row: Any) -> tuple[bytes, int, int, int]:
    group, priority, ready_at, task, _ = row
    return group, -priority, ready_at, task


def _position(name: str, row: Any) -> Position:
    if name == "waiting":
        group, *numbers = _rank(row)
        return decoded_name(group), *numbers
    return row[:2] if name == "delayed" else row[:1]
