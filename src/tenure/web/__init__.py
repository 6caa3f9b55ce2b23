"""The state of a store as `tenure top` and the read-only page of `tenure web` show it.

`tenure.web.server` is not imported here: it needs h11.
"""

from __future__ import annotations

from ._document import described, document
from ._flows import Flow, Flows
from ._view import (
    READERS,
    SeenKey,
    SeenPool,
    SeenProcess,
    View,
    find_deadlocks,
    look,
    look_at_keys,
    look_at_pools,
    look_at_queues,
    names,
    together,
)
from ._waits import Deadlock, task_of
from ._watch import Watch

__all__ = (
    "READERS",
    "Deadlock",
    "Flow",
    "Flows",
    "SeenKey",
    "SeenPool",
    "SeenProcess",
    "View",
    "Watch",
    "described",
    "document",
    "find_deadlocks",
    "look",
    "look_at_keys",
    "look_at_pools",
    "look_at_queues",
    "names",
    "task_of",
    "together",
)
