"""Coordination for structured concurrency: what a program holds, it holds for exactly as long as a scope.

The rooms of the house, and which may import which (tests/test_rooms.py keeps it):

    errors < observe < upkeep < local < engine < store < { engines/*, shared, sql } < processor < { cli, web, examples }

A room imports only rooms to its left. Rooms in braces do not import one another, except that cli may start web. This
front door re-exports `shared`, `open_store` and all errors; the rest is found in its room (`tenure.local`,
`tenure.testing`). `testing` may import everything; nothing imports `testing` or the front door.
"""

from tenure import errors as _errors
from tenure import shared as _shared
from tenure.engines import open_store
from tenure.errors import *
from tenure.shared import *
from tenure.store import Store, StoreStatistics

__all__ = ("Store", "StoreStatistics", "open_store", *_shared.__all__, *_errors.__all__)

for _name in __all__:
    globals()[_name].__module__ = "tenure"
