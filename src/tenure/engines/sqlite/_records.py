"""The records of tasks as they are shown."""

from __future__ import annotations

import tenure.engine as e
from tenure.engines.rules import FAMILIES, decoded_name, tree_of

from ._clock import seconds
from ._state import SqliteState


def record_of(
    state: SqliteState,
    queue: str,
    kin: int,
    deadline: int | None,
    seq: int,
    task: int,
    shown: str,
    payload: bytes,
    priority: int,
    key: bytes | None,
    attempts: int,
    deliveries: int,
    result: bytes,
    since: int,
    token: int,
    progress: bytes,
    failure: bytes,
    meta: bytes,
    group: bytes,
) -> e.Record:
    name = None if key is None else decoded_name(key)
    ran = seconds((since if seq else state.moment) - token) if token else None
    tree = tree_of(state.table(FAMILIES).get(queue, task) if kin else None)
    task_fields = (seq, task, shown, payload, priority, name, attempts, deliveries, result)
    about = (*task_fields, seconds(state.moment - since), ran, progress, failure, meta, decoded_name(group))
    return e.Record(*about, *tree, seconds_left(state, deadline))


def seconds_left(state: SqliteState, deadline: int | None) -> float | None:
    return None if deadline is None else seconds(deadline - state.moment)
