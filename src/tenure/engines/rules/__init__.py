"""The rules of the operations, once, for the engines that are Python: plain functions over tables, without I/O.

An engine supplies tables: dictionaries (`engines.memory`) or a file (`engines.sqlite`). The rules decide, and the
tables remember. Tasks come in hundreds: `_rows.py` says what the rules need of them, in sets. The rules of a queue are
in `_queues.py`, `_room.py` (producers that wait), `_producers.py`, `_keys.py`, `_groups.py`, `_takers.py`, `_tasks.py`,
`_settling.py` and `_families.py`. The scripts of the other engines follow these rules, and the conformance suite
compares both.
"""

from ._barriers import BARRIERS, PARTICIPANTS, Barriers
from ._claims import CLAIMERS, POOLS, RESOURCES, Claims
from ._families import ENTRIES, FAMILIES, Families, Family, forget_family, tree_of
from ._groups import Group, Groups, GroupSettings, Turn
from ._holds import HOLDS, LINES, UNSERVED, Holds
from ._names import decoded_name, encoded_name
from ._paces import Pace, Paces
from ._pages import Position, page_of, place_in
from ._producers import Producers
from ._queues import DELAYED, ENDING, LEASED, SUSPENDED, WAITING, Queue
from ._rates import LIMITER_WAITERS, LIMITERS, Rates
from ._room import PRODUCERS, Room
from ._rows import Owner, Task, TaskRows, shown_state
from ._scans import Scans
from ._sessions import Sessions
from ._settling import Settling
from ._state import Counters, Moment, News, Session, State
from ._tables import Layout, Order, Table
from ._takers import TAKERS, Takers
from ._tasks import Tasks

LAYOUTS = (
    *(LINES, HOLDS, UNSERVED, POOLS, RESOURCES, CLAIMERS),
    *(LIMITERS, LIMITER_WAITERS, BARRIERS, PARTICIPANTS, PRODUCERS, TAKERS),
    *(FAMILIES, ENTRIES),
)
"""The tables of all rules."""

__all__ = (
    "CLAIMERS",
    "DELAYED",
    "ENDING",
    "ENTRIES",
    "FAMILIES",
    "HOLDS",
    "LAYOUTS",
    "LEASED",
    "PARTICIPANTS",
    "PRODUCERS",
    "SUSPENDED",
    "TAKERS",
    "WAITING",
    "Barriers",
    "Claims",
    "Counters",
    "Families",
    "Family",
    "Group",
    "GroupSettings",
    "Groups",
    "Holds",
    "Layout",
    "Moment",
    "News",
    "Order",
    "Owner",
    "Pace",
    "Paces",
    "Position",
    "Producers",
    "Queue",
    "Rates",
    "Room",
    "Scans",
    "Session",
    "Sessions",
    "Settling",
    "State",
    "Table",
    "Takers",
    "Task",
    "TaskRows",
    "Tasks",
    "Turn",
    "decoded_name",
    "encoded_name",
    "forget_family",
    "page_of",
    "place_in",
    "shown_state",
    "tree_of",
)
