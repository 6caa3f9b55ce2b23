from __future__ import annotations

from dataclasses import dataclass
from math import inf
from statistics import median

from tenure.arguments import Seconds, check_count, check_number, check_seconds, seconds_of

_AT_FIRST = 4
_DECREASE = 0.9


@dataclass(frozen=True, slots=True)
class Adaptive:
    """The settings that say when concurrency is lowered and raised.

    A window has `window` seconds, and at least `samples` tasks. If the median time of its tasks is more than
    `tolerance` times the least median that was seen, concurrency falls to nine tenths. If not, and all that was
    allowed was used, one more task is allowed (at first twice as many, until that was too much). Concurrency stays
    between `least` and the number of workers. When the least median is `memory` windows old, it is measured anew: for
    one window, concurrency is divided by `tolerance`. Raises `TypeError`, `ValueError`.
    """

    tolerance: float = 2.0
    window: Seconds = 1.0
    samples: int = 10
    memory: int = 60
    least: int = 1

    def __post_init__(self) -> None:
        if check_number("tolerance", self.tolerance) <= 1:
            raise ValueError(f"tolerance must be above 1, not {self.tolerance!r}")
        object.__setattr__(self, "window", check_seconds("window", self.window, least=None))
        for name in ("samples", "memory", "least"):
            check_count(name, getattr(self, name))


class Limit:
    """The concurrency that is allowed at present, for up to `most` workers, from a first window that begins at `now`.

    Source: additive increase, multiplicative decrease (Chiu, Jain 1989), slow start (Jacobson 1988); the ratio to the
    least latency as in TCP Vegas (Brakmo, Peterson 1995), but of medians; the least is measured anew as in BBR
    (Cardwell et al. 2016).
    """

    def __init__(self, settings: Adaptive, most: int, now: float = -inf) -> None:
        self._settings = settings
        self._most = most
        self._set(_AT_FIRST)
        # what was allowed before it was lowered to measure the least latency
        self._before: float | None = None
        self._least_latency = inf
        self._age = 0
        self._starting = True
        self._times: list[float] = []
        self._since = now
        self._used_up = False

    @property
    def allowed(self) -> int:
        return int(self._exact)

    def note(self, seconds: float, busy: int, now: float) -> int:
        """Note a task that took `seconds` while `busy` ran; return how many are allowed now."""
        if now - seconds < self._since or busy > self.allowed:
            return self.allowed  # it ran when something else was allowed
        self._times.append(seconds)
        self._used_up |= busy >= self.allowed
        settings, age = self._settings, now - self._since
        if age >= seconds_of(settings.window) and len(self._times) >= settings.samples:
            self._judge(median(self._times))
            self._times.clear()
            self._used_up = False
            self._since = now
        return self.allowed

    def _judge(self, latency: float) -> None:
        settings = self._settings
        if self._before is not None:
            self._exact, self._before = self._before, None
            self._least_latency, self._age = latency, 0
            return
        self._age += 1
        if latency <= self._least_latency:
            self._least_latency, self._age = latency, 0
        if self._age >= settings.memory:
            # from what it is slowed down to by now, the least could not be determined
            self._before = self._exact
            self._set(self._exact / settings.tolerance)
        elif latency > settings.tolerance * self._least_latency:
            self._starting = False
            self._set(self._exact * _DECREASE)
        elif self._used_up:
            self._set(self._exact + (self._exact if self._starting else 1.0))

    def _set(self, exact: float) -> None:
        self._exact = min(float(self._most), max(float(self._settings.least), exact))
