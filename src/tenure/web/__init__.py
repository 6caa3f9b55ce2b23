"""The state of a store as `tenure top` and the page of `tenure web` show it; `app` is that page for ASGI.

`tenure.web.server` is not imported here: it needs h11.
"""

from __future__ import annotations

from ._actions import release_limiter
from ._asgi import app
from ._document import described, described_limiter, document
from ._flows import Flow, Flows
from ._site import Site
from ._tree import SeenChild, described as described_child, flat, read_tree, waits_for
from ._view import (
    READERS,
    SeenKey,
    SeenPool,
    SeenProcess,
    View,
    find_deadlocks,
    read_keys,
    read_limiters,
    read_pools,
    read_processes,
    read_queues,
    read_view,
)
from ._waits import Deadlock, task_of

__all__ = ("app",)
