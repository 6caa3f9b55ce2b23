"""The state of a store as `tenure top` and the page of `tenure web` show it; `app` is that page for ASGI.

`tenure.web.server` is not imported here: it needs h11.
"""

from __future__ import annotations

from ._asgi import app
from ._document import described, document
from ._flows import Flow, Flows
from ._site import Site
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
    look_at_processes,
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
    "Site",
    "View",
    "Watch",
    "app",
    "described",
    "document",
    "find_deadlocks",
    "look",
    "look_at_keys",
    "look_at_pools",
    "look_at_processes",
    "look_at_queues",
    "names",
    "task_of",
    "together",
)
