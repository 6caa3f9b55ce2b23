from __future__ import annotations

from collections.abc import Callable

BURST = 10
"""The number of lines of one kind that may come at once; after that one line may come per second."""

_QUIET = 60.0
"""Seconds without a fault that lasts, after which its lines are logged again as they come."""

_PAUSE = 240.0
"""Seconds between two lines of a fault that lasts, after the first lines."""

_MOST_KINDS = 1000


class _Bucket:
    __slots__ = ("at", "left_out", "tokens")

    def __init__(self, at: float) -> None:
        self.at = at
        self.tokens = float(BURST)
        self.left_out = 0


class Rate:
    """A token bucket for each kind of line. `say(kind, count)` is called with how many of a kind were left out.

    Thread safety: any; two threads at once may log a line more, or count one twice or not at all.
    """

    def __init__(self, clock: Callable[[], float], say: Callable[[str, int], object]) -> None:
        self._clock = clock
        self._say = say
        self._buckets: dict[str, _Bucket] = {}

    def allows(self, kind: str, *, lasts: bool = False) -> bool:
        """Lines of a fault that `lasts` are fewer until it was quiet."""
        now = self._clock()
        bucket = self._buckets.get(kind)
        if bucket is None:
            self._forget(now)
            bucket = self._buckets[kind] = _Bucket(now)
        passed = now - bucket.at
        bucket.tokens = min(
            float(BURST), bucket.tokens + passed / (_PAUSE if lasts and passed <= _QUIET else 1)
        )
        bucket.at = now
        if bucket.tokens < 1:
            bucket.left_out += 1
            return False
        bucket.tokens -= 1
        self._settle(kind, bucket)
        return True

    def settle(self) -> None:
        for kind, bucket in list(self._buckets.items()):
            self._settle(kind, bucket)

    def _settle(self, kind: str, bucket: _Bucket) -> None:
        count, bucket.left_out = bucket.left_out, 0
        if count:
            self._say(kind, count)

    def _forget(self, now: float) -> None:
        if len(self._buckets) >= _MOST_KINDS:
            self.settle()
            self._buckets = {
                kind: bucket
                for kind, bucket in self._buckets.items()
                if bucket.tokens + now - bucket.at < BURST
            }
