"""Operations that configure a queue, in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure import engine as e


def configured(queue: str, by: str = "p", *, missing: bool = False, **fields: Any) -> e.Configure:
    """Name these fields of the record of a queue."""
    changes = tuple((name, e.written(name, value)) for name, value in fields.items())
    return e.Configure(queue, by, changes, missing)


def set_groups(
    queue: str,
    group_limit: int = 0,
    group_size: int = 0,
    weights: tuple[tuple[str, float], ...] = (),
    hold: bool = True,
    rate: e.Rate | None = None,
    group_rate: e.Rate | None = None,
) -> e.Configure:
    """Name all fields of the groups and the rate."""
    return configured(
        queue,
        group_limit=group_limit,
        group_size=group_size,
        weights=weights,
        hold=hold,
        rate=rate,
        group_rate=group_rate,
    )


def moving(ask: Callable[[e.Operation[Any]], Any], queue: str, state: str, to: Any) -> e.Move:
    """The operation that moves the first `CAP` tasks of a queue that are in a state."""
    page = ask(e.Scan(e.TASKS[state], queue))
    return e.Move(queue, tuple(record.id for record in page.rows), to, state=state)
