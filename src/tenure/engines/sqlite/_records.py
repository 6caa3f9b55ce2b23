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
    *notes: bytes,
) -> e.Record:
    *others, group = notes
    name = None if key is None else decoded_name(key)
    ran = seconds((since if seq else state.moment) - token) if token else None
    about = (seq, task, shown, payload, priority, name, attempts, deliveries, result)
    tree = tree_of(state.table(FAMILIES).get(queue, task) if kin else None)
    times = (seconds(state.moment - since), ran)
    return e.Record(*about, *times, *others, decoded_name(group), *tree, seconds_left(state, deadline))


def seconds_left(state: SqliteState, deadline: int | None) -> float | None:
    return None if deadline is None else seconds(deadline - state.moment)
