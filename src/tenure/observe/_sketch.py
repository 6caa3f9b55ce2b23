from __future__ import annotations

from collections import Counter
from math import ceil, log
from typing import Any

ACCURACY = 0.01
"""The largest error of a quantile, as a share of the true value."""
_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
_PER_LOG = 1 / log(_GAMMA)
_LEAST = 1e-6
_LEAST_BUCKET = ceil(log(_LEAST) * _PER_LOG)


class Sketch:
    """Counts values in buckets whose borders grow by two percent each, for quantiles within one percent.

    Sketches add up. A value below a millionth counts as 0. Values of a microsecond to a year fall into some 1,500
    buckets.

    Source: DDSketch (Masson, Rim, Lee 2019), with logarithmic mapping and without collapsing.
    """

    __slots__ = ("buckets", "count", "greatest", "total")

    def __init__(self) -> None:
        self.buckets: Counter[int] = Counter()
        self.count: int = 0
        self.total: float = 0.0
        self.greatest: float = 0.0

    def record(self, value: float) -> None:
        bucket = ceil(log(value) * _PER_LOG) if value > _LEAST else _LEAST_BUCKET
        self.buckets[bucket] += 1
        self.count += 1
        self.total += value
        if value > self.greatest:  # noqa: PLR1730 faster than max(), and this is called for every task
            self.greatest = value

    def merge(self, other: Sketch) -> None:
        self.buckets.update(other.buckets)
        self.count += other.count
        self.total += other.total
        self.greatest = max(self.greatest, other.greatest)

    def quantile(self, share: float) -> float:
        """The value that this share of all are not above; 0 if there is none yet."""
        rank = share * (self.count - 1)
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen > rank:
                if bucket == _LEAST_BUCKET:
                    return 0.0
                return min(self.greatest, 2 * _GAMMA**bucket / (_GAMMA + 1))
        return 0.0

    def to_data(self) -> list[Any]:
        return [self.total, self.greatest, list(self.buckets.items())]

    @classmethod
    def from_data(cls, data: list[Any]) -> Sketch:
        sketch = cls()
        sketch.total, sketch.greatest, buckets = data
        sketch.buckets.update({int(bucket): int(count) for bucket, count in buckets})
        sketch.count = sum(sketch.buckets.values())
        return sketch
