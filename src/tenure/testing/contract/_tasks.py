"""Tasks: all that the contract asks of an engine about them."""

from __future__ import annotations

from ._tasks_admin import AdminContract
from ._tasks_put import PutContract
from ._tasks_settle import SettleContract
from ._tasks_take import TakeContract
from ._tasks_walk import WalkContract


class TaskContract(PutContract, TakeContract, SettleContract, AdminContract, WalkContract):
    """What the contract says of tasks.

    Thread safety: none needed; pytest makes one for each test.
    """
