"""All indexes, by name."""

from __future__ import annotations

from typing import Any

from ._claims import RESOURCES
from ._counters import LIMITER
from ._families import ENTRIES, UNFINISHED_CHILDREN
from ._holds import HOLDERS
from ._scan import Index
from ._survey import HEALTH, NAMES, SESSION
from ._tasks import GROUPS, KEYED_TASK, TASK, TASKS

INDEXES: dict[str, Index[Any]] = {
    index.name: index
    for index in (
        *NAMES.values(),
        *(SESSION, HEALTH, HOLDERS, RESOURCES, LIMITER),
        *TASKS.values(),
        *(TASK, KEYED_TASK, GROUPS, ENTRIES, UNFINISHED_CHILDREN),
    )
}
"""The indexes that `Scan` reads."""
