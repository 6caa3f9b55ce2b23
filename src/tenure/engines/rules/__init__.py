"""The rules of the operations, once, for the engines that are Python: plain functions over tables, without I/O.

An engine supplies tables: dictionaries (`engines.memory`) or a file (`engines.sqlite`). The rules decide, and the
tables remember. The scripts of the other engines follow these rules, and the conformance suite compares both.
"""

from ._barriers import BARRIERS, PARTICIPANTS, Barriers
from ._claims import CLAIMERS, POOLS, RESOURCES, Claims
from ._holds import HOLDS, LINES, UNSERVED, Holds
from ._rates import LIMITER_WAITERS, LIMITERS, Rates
from ._sessions import Sessions
from ._state import News, Session, State
from ._tables import Layout, Order, Table

LAYOUTS = (
    *(LINES, HOLDS, UNSERVED, POOLS, RESOURCES, CLAIMERS),
    *(LIMITERS, LIMITER_WAITERS, BARRIERS, PARTICIPANTS),
)
"""The tables of all rules."""

__all__ = (
    "CLAIMERS",
    "HOLDS",
    "LAYOUTS",
    "PARTICIPANTS",
    "Barriers",
    "Claims",
    "Holds",
    "Layout",
    "News",
    "Order",
    "Rates",
    "Session",
    "Sessions",
    "State",
    "Table",
)
