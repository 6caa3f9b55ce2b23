"""The state of a store as `tenure top` and the page of `tenure web` show it; `app` is that page for ASGI.

`tenure.web.server` is not imported here: it needs h11.
"""

from __future__ import annotations

from ._asgi import app
from ._document import described as described, document as document
from ._flows import Flow as Flow, Flows as Flows
from ._site import Site as Site
from ._tree import (
    SeenChild as SeenChild,
    described as described_child,
    flat as flat,
    read_tree as read_tree,
    waits_for as waits_for,
)
from ._view import (
    READERS as READERS,
    SeenKey as SeenKey,
    SeenPool as SeenPool,
    SeenProcess as SeenProcess,
    View as View,
    find_deadlocks as find_deadlocks,
    read_keys as read_keys,
    read_pools as read_pools,
    read_processes as read_processes,
    read_queues as read_queues,
    read_view as read_view,
)
from ._waits import Deadlock as Deadlock, task_of as task_of

__all__ = ("app",)
