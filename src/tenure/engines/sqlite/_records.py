"""The records of tasks as they are shown."""

from __future__ import annotations

import tenure.engine as e
from tenure.engines.rules import FAMILIES, Tree, decoded_name, tree_of

from ._clock import seconds
from ._state import SqliteState


def unfinished_record(
    state: SqliteState,
    queue: str,
    shown: str,
    kin: int,
    deadline: int | None,
    task: int,
    payload: bytes,
    priority: int,
    key: bytes | None,
    attempts: int,
    deliveries: int,
    ready_at: int,
    progress: bytes,
    failure: bytes,
    meta: bytes,
    group: bytes,
) -> e.Record:
    age = seconds(state.moment - ready_at)
    notes = (progress, failure, meta, decoded_name(group))
    tree = _tree(state, queue, task, kin)
    about = (0, task, shown, payload, priority, _key(key), attempts, deliveries, b"", age)
    return e.Record(*about, *notes, *tree, seconds_left(state, deadline))


def ended_record(
    state: SqliteState,
    queue: str,
    kin: int,
    seq: int,
    task: int,
    shown: str,
    payload: bytes,
    priority: int,
    key: bytes | None,
    attempts: int,
    deliveries: int,
    result: bytes,
    ended_at: int,
    progress: bytes,
    failure: bytes,
    meta: bytes,
    group: bytes,
) -> e.Record:
    age = seconds(state.moment - ended_at)
    notes = (progress, failure, meta, decoded_name(group))
    about = (seq, task, shown, payload, priority, _key(key), attempts, deliveries, result, age)
    return e.Record(*about, *notes, *_tree(state, queue, task, kin))


def seconds_left(state: SqliteState, deadline: int | None) -> float | None:
    return None if deadline is None else seconds(deadline - state.moment)


def _tree(state: SqliteState, queue: str, task: int, kin: int) -> Tree:
    return tree_of(state.table(FAMILIES).get(queue, task) if kin else None)


def _key(key: bytes | None) -> str | None:
    return None if key is None else decoded_name(key)
