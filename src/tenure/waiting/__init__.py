"""Waiting inside one process: how a task parks and is woken, the queue of waiters, and pauses between tries."""

from ._apart import apart as apart
from ._backoff import Backoff as Backoff
from ._line import Expired as Expired, Home as Home, Line as Line, Waiter as Waiter
from ._park import (
    NOTHING as NOTHING,
    Parked as Parked,
    TaskEnd as TaskEnd,
    checkpoint as checkpoint,
    loop_caller as loop_caller,
    loop_time as loop_time,
    new_scope as new_scope,
    now as now,
    on_readable as on_readable,
    park as park,
    runs_in_real_time as runs_in_real_time,
    steady as steady,
    steady_clock as steady_clock,
    this_loop as this_loop,
    this_task as this_task,
    this_task_end as this_task_end,
    wake as wake,
    within as within,
)

__all__ = tuple(name for name in globals() if not name.startswith("_"))  # pyright: ignore[reportUnsupportedDunderAll]
