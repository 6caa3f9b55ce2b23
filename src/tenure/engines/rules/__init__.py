"""The rules of the operations for the engines in Python: plain functions over tables, without I/O.

An engine supplies the tables, and the rows of tasks (`_rows.py`). The conformance suite compares the other engines with
these rules.
"""

from ._claims import CLAIMERS, POOLS, RESOURCES
from ._cursors import CURSORS, Cursors
from ._families import ALONE, ENTRIES, FAMILIES, Families, Tree, forget_family, tree_of
from ._groups import Group, Groups, GroupSettings, Turn
from ._holds import HOLDS, LINES, UNSERVED
from ._names import decoded_name, encoded_name
from ._pages import Position, page_of, place_in
from ._queues import DELAYED, ENDING, HELD, LEASED, SETTINGS, SUSPENDED, WAITING, Queue
from ._rates import LIMITER_WAITERS, LIMITERS
from ._room import PRODUCERS
from ._rows import SHOWN, Owner, Task, shown_state
from ._rules import Rules
from ._settling import Settling
from ._state import Counters, News
from ._tables import Layout, Order
from ._takers import TAKERS, Takers

LAYOUTS = (
    *(LINES, HOLDS, UNSERVED, POOLS, RESOURCES, CLAIMERS),
    *(LIMITERS, LIMITER_WAITERS, PRODUCERS, TAKERS),
    *(FAMILIES, ENTRIES, SETTINGS, CURSORS),
)
__all__ = (
    "ALONE",
    "DELAYED",
    "ENDING",
    "FAMILIES",
    "HELD",
    "LAYOUTS",
    "LEASED",
    "SETTINGS",
    "SHOWN",
    "SUSPENDED",
    "WAITING",
    "Counters",
    "Cursors",
    "Families",
    "Group",
    "GroupSettings",
    "Groups",
    "Layout",
    "News",
    "Order",
    "Owner",
    "Position",
    "Queue",
    "Rules",
    "Settling",
    "Takers",
    "Task",
    "Tree",
    "Turn",
    "decoded_name",
    "encoded_name",
    "forget_family",
    "page_of",
    "place_in",
    "shown_state",
    "tree_of",
)
