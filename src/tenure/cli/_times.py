"""How long things took: quantiles from a sketch of fixed size that can be merged and stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil, exp, log

_STEP = log(1.02)
_LEAST, _MOST = 1e-6, 1e6


class Times:
    """Seconds in buckets whose bounds grow by 2 %, so that a quantile is right to 1 %, at most some 1,400 of them.

    Below a microsecond and above a million seconds all are alike. Thread safety: none.
    Source: DDSketch (Masson, Rim, Lee 2019), without its collapsing of buckets, since the range is bounded.
    """

    def __init__(self, buckets: Iterable[Iterable[int]] = ()) -> None:
        self._buckets: Counter[int] = Counter()
        for index, count in buckets:
            self._buckets[index] += count

    def __len__(self) -> int:
        return self._buckets.total()

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._buckets[ceil(log(min(max(seconds, _LEAST), _MOST)) / _STEP)] += 1

    def merge(self, other: Times) -> None:
        """Count all that the other has counted."""
        self._buckets.update(other._buckets)

    def quantile(self, share: float) -> float | None:
        """The duration below which that share of all are; None if there are none."""
        rank = share * (len(self) - 1)
        seen = 0
        for index in sorted(self._buckets):
            seen += self._buckets[index]
            if seen > rank:
                # the middle of the bucket, as far from its lower bound as from its upper one in proportion
                return exp(index * _STEP) * 2 / (1 + exp(_STEP))
        return None

    def buckets(self) -> list[list[int]]:
        """What to make an equal sketch of, as JSON."""
        return [[index, count] for index, count in sorted(self._buckets.items())]
