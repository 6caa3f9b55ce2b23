"""The two clocks of the engine, in whole microseconds: they are exact, small in an index, and survive JSON."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

FAR = 1 << 60
"""Microseconds that stand for ever."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clocks:
    """`wall` for due times and tokens, `boot` (which counts the time asleep) for the ends of sessions.

    A clock that is given serves for both.

    Thread safety: none needed.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.wall: Callable[[], float] = clock or time.time
        self.boot: Callable[[], float] = clock or _since_boot


def micros(seconds: float) -> int:
    """A duration in microseconds; what is longer than some ten thousand years counts as for ever."""
    return round(min(seconds * 1e6, FAR))


def seconds(micros: int) -> float:
    """An elapsed time in seconds, not below 0."""
    return max(0, micros) / 1e6


def boot_id() -> str:
    """What tells this boot of the machine from any other; empty where there is no such thing."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


def _since_boot() -> float:
    # not everywhere: then suspended time is not counted
    boottime: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
