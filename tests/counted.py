"""The counts of a queue, for tests that show them."""

from __future__ import annotations

from tenure.engine import QueueCounts

NOTHING = {
    **dict.fromkeys(QueueCounts.__dataclass_fields__, 0),
    "paused": False,
    "cursors": (),
    "rate": None,
    "group_rate": None,
}


def counts(**given):
    """The counts of an empty queue, but for those given."""
    return QueueCounts(**{**NOTHING, **given})
