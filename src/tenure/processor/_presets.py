"""Sizes that go together, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Preset:
    """One size of a system: how many `workers`, `connections`, starts per second (`rate`), and tasks in the queue."""

    workers: int
    connections: int
    rate: float
    queue_size: int


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "small": Preset(workers=10, connections=5, rate=20, queue_size=1_000),
        "medium": Preset(workers=50, connections=20, rate=100, queue_size=10_000),
        "large": Preset(workers=200, connections=50, rate=500, queue_size=100_000),
        "xlarge": Preset(workers=1_000, connections=200, rate=2_000, queue_size=1_000_000),
    }
)
"""The presets by name."""
