from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from tenure.arguments import check_count, check_number


@dataclass(frozen=True, slots=True)
class Preset:
    """A size of a system: how many `workers`, `connections`, starts per second (`rate`), and tasks in the queue.

    A `rate` of infinity means no limit. Raises `TypeError` or `ValueError` for sizes that make no sense.
    """

    workers: int
    connections: int
    rate: float
    queue_size: int

    def __post_init__(self) -> None:
        for name in ("workers", "connections", "queue_size"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        if self.rate != inf:
            object.__setattr__(self, "rate", check_number("rate", self.rate))
        if self.queue_size < self.workers:
            raise ValueError(
                f"queue_size must be at least the {self.workers} workers, not {self.queue_size}: a task counts until "
                "it is done, so the rest of them would never get one"
            )


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "small": Preset(workers=10, connections=5, rate=20, queue_size=1_000),
        "medium": Preset(workers=50, connections=20, rate=100, queue_size=10_000),
        "large": Preset(workers=200, connections=50, rate=500, queue_size=100_000),
        "xlarge": Preset(workers=1_000, connections=200, rate=2_000, queue_size=1_000_000),
    }
)


def preset_of(preset: str | Preset | None) -> Preset | None:
    if preset is None or isinstance(preset, Preset):
        return preset
    if not isinstance(preset, str) or preset not in PRESETS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, or a Preset, not {preset!r}")
    return PRESETS[preset]
