"""The numbers of the charts, and an hour of samples, kept while this process runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

import anyio

EVERY = 10.0
"""Seconds between samples."""

_MOST = 360
_STATES = ("waiting", "leased", "delayed", "suspended", "ending", "dead")

_BUSIEST = 50
"""Queues of which a sample has figures of their own."""


class _Sample(NamedTuple):
    at: float
    totals: dict[str, float | None]
    queues: dict[str, tuple[int, float]]


def totals(document: dict[str, Any]) -> dict[str, float | None]:
    """The numbers that the charts draw, of all queues, keys, pools and processors together; None: unknown."""
    queues, keys, pools = document["queues"], document["keys"], document["pools"]
    return {
        **{name: sum(queue[name] for queue in queues) for name in _STATES},
        **{name: sum(queue[name] for queue in queues) for name in ("put_per_second", "ended_per_second")},
        "ping": document["ping"],
        "mean_wait": _greatest(queue["mean_wait"] for queue in queues),
        "mean_run": _greatest(queue["mean_run"] for queue in queues),
        "p99": _greatest(
            processor["total"]["p99"] for processor in document["processors"] if processor["total"]["count"]
        ),
        "held": sum(key["held"] for key in keys),
        "waits": sum(key["waits"] for key in keys),
        "claimed": sum(pool["claimed"] for pool in pools),
    }


class History:
    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_MOST)
        self._minutes: dict[str, Sequence[Sequence[float]]] = {}

    def add(self, document: dict[str, Any], minutes: dict[str, Sequence[Sequence[float]]]) -> None:
        self._minutes = minutes
        now = anyio.current_time()
        # half a second less: a sample is not left out because the last sample came late
        if not self._samples or now - self._samples[-1].at >= EVERY - 0.5:
            busiest = nlargest(_BUSIEST, document["queues"], key=_business)
            queues = {
                queue["name"]: (queue["waiting"], round(queue["ended_per_second"], 3)) for queue in busiest
            }
            self._samples.append(_Sample(now, document["totals"], queues))

    def document(self) -> dict[str, Any]:
        """As JSON, the oldest first; `ago` in seconds."""
        now = anyio.current_time()
        return {
            "every": EVERY,
            "samples": [
                {"ago": now - sample.at, **sample.totals, "queues": sample.queues} for sample in self._samples
            ],
            "processors": [
                {
                    "name": name,
                    "minutes": [
                        dict(zip(("ended_per_second", "failures", "p99"), minute, strict=True))
                        for minute in minutes
                    ],
                }
                for name, minutes in self._minutes.items()
            ],
        }


def _business(queue: dict[str, Any]) -> float:
    return sum(queue[name] for name in ("waiting", "leased", "put_per_second", "ended_per_second"))


def _greatest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
