from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class Sample(NamedTuple):
    """A figure: a "counter" (which only grows) or a "gauge", its meaning, and the labels of its subject.

    Names have underscores and end in their unit if they have one, as in Prometheus; a counter's name has no `_total`.
    """

    name: str
    kind: str
    help: str
    labels: Mapping[str, str]
    value: float


class Source(Protocol):
    """A source of figures, such as a `Processor`, a `Worker` or `QueueFigures`. Thread safety: any."""

    def samples(self) -> Iterable[Sample]:
        """The figures as they were last taken, always of the same names. Must work from any thread."""
        ...


TIMES = ("waited", "held", "seconds")
"""The fields of events that are times in seconds and worth a histogram."""
