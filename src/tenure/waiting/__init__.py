"""Waiting inside one process: how a task parks and is woken, the queue of waiters, and pauses between tries."""

from ._apart import apart
from ._backoff import Backoff
from ._line import Expired, Home, Line, Waiter
from ._park import (
    NOTHING,
    Parked,
    TaskEnd,
    checkpoint,
    loop_caller,
    loop_time,
    new_scope,
    now,
    on_readable,
    park,
    runs_in_real_time,
    steady,
    steady_clock,
    this_loop,
    this_task,
    this_task_end,
    wake,
    within,
)

__all__ = (
    "NOTHING",
    "Backoff",
    "Expired",
    "Home",
    "Line",
    "Parked",
    "TaskEnd",
    "Waiter",
    "apart",
    "checkpoint",
    "loop_caller",
    "loop_time",
    "new_scope",
    "now",
    "on_readable",
    "park",
    "runs_in_real_time",
    "steady",
    "steady_clock",
    "this_loop",
    "this_task",
    "this_task_end",
    "wake",
    "within",
)
