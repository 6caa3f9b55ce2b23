"""Waiting inside one process: how a task parks and is woken, the queue of waiters, and pauses between tries."""

from ._apart import apart
from ._backoff import Backoff
from ._line import Expired, Line, Waiter
from ._park import (
    NOTHING,
    Parked,
    TaskEnd,
    checkpoint,
    clock,
    loop_caller,
    new_scope,
    now,
    on_readable,
    park,
    runs_in_real_time,
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
    "Line",
    "Parked",
    "TaskEnd",
    "Waiter",
    "apart",
    "checkpoint",
    "clock",
    "loop_caller",
    "new_scope",
    "now",
    "on_readable",
    "park",
    "runs_in_real_time",
    "this_loop",
    "this_task",
    "this_task_end",
    "wake",
    "within",
)
