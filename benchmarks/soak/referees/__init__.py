"""Histories of what processes did, and referees that judge them: no product, but evidence for the soaks and tests."""

from ._history import Call, Event, History
from ._referee_barrier import Generations, agreement
from ._referee_families import Families, structured
from ._referee_groups import fair, in_order
from ._referee_holds import Holds, capacity, mutual_exclusion, one_leader
from ._referee_line import fifo
from ._referee_rate import rate
from ._referee_tasks import Deliveries, conservation, nothing_lost
from ._referees import Breach, RefereeError

__all__ = (
    "Breach",
    "Call",
    "Deliveries",
    "Event",
    "Families",
    "Generations",
    "History",
    "Holds",
    "RefereeError",
    "agreement",
    "capacity",
    "conservation",
    "fair",
    "fifo",
    "in_order",
    "mutual_exclusion",
    "nothing_lost",
    "one_leader",
    "rate",
    "structured",
)
