from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tenure.arguments import check_count
from tenure.local._breaker_window import CountWindow, TimeWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that `CircuitBreaker` documents. Raises `TypeError` or `ValueError` for invalid settings."""

    failure_rate: float
    slow_call_rate: float
    slow_call_seconds: float
    window: int
    window_seconds: float | None
    min_calls: int
    open_seconds: float
    open_factor: float
    max_open_seconds: float | None
    probes: int
    probe_seconds: float

    def __post_init__(self) -> None:
        _check_share("failure_rate", self.failure_rate)
        _check_share("slow_call_rate", self.slow_call_rate)
        _check_seconds("slow_call_seconds", self.slow_call_seconds)
        check_count("window", self.window)
        if self.window_seconds is not None:
            _check_seconds("window_seconds", self.window_seconds, never=inf)
        check_count("min_calls", self.min_calls)
        _check_seconds("open_seconds", self.open_seconds, never=inf)
        if not 1 <= self.open_factor < inf:
            raise ValueError(f"open_factor must be a number from 1, not {self.open_factor!r}")
        if self.max_open_seconds is not None and not self.max_open_seconds >= self.open_seconds:
            raise ValueError(f"max_open_seconds must be at least open_seconds, not {self.max_open_seconds!r}")
        check_count("probes", self.probes)
        _check_seconds("probe_seconds", self.probe_seconds)

    def empty_window(self) -> CountWindow | TimeWindow:
        return CountWindow(self.window) if self.window_seconds is None else TimeWindow(self.window_seconds)

    @property
    def timed(self) -> bool:
        return self.slow_call_seconds < inf or self.window_seconds is not None

    @property
    def enough_calls(self) -> int:
        """The number of calls that the window needs before it is judged; a smaller window is judged when full."""
        return min(self.min_calls, self.window) if self.window_seconds is None else self.min_calls

    def reached(self, calls: int, failures: int, slow: int) -> bool:
        # divided, not multiplied: 55 / 100 is 0.55, and 0.55 * 100 is more than 55
        return failures / calls >= self.failure_rate or slow / calls >= self.slow_call_rate


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be a share of more than 0 and at most 1, not {value!r}")


def _check_seconds(name: str, value: float, *, never: float | None = None) -> None:
    if not value > 0 or value == never:
        raise ValueError(f"{name} must be a number of seconds, more than 0, not {value!r}")
