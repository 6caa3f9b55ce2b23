"""The two clocks of the engine, in whole microseconds: exact, small in an index, and safe in JSON."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path

FAR = 1 << 60
"""Microseconds that stand for ever."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SELF = Path("/proc/self")
_JUMP = 0.05
"""Seconds by which the two clocks part at once only when one was set, or when the time namespace is another."""


class Clocks:
    """`wall` for due times and tokens, `boot` (which counts the time asleep) for the ends of sessions.

    `boot` is the same for all processes of a machine, in any time namespace. A given clock serves for both.

    Thread safety: none needed.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.wall: Callable[[], float] = clock or time.time
        self.boot: Callable[[], float] = clock or SinceBoot()


def micros(seconds: float) -> int:
    return round(min(seconds * 1e6, FAR))


def seconds(micros: int) -> float:
    return max(0, micros) / 1e6


def moment(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def boot_id() -> str:
    """The name of this boot of the machine; empty where it has none, or where the machine's own clock is unknown."""
    namespaces = _SELF / "ns"
    try:
        if not namespaces.is_dir():
            return ""  # /proc of another process namespace
        if (own := namespaces / "time").exists() and not own.samefile(namespaces / "time_for_children"):
            return ""  # the kernel shows the offsets of another process
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


class SinceBoot:
    """Seconds since the machine was booted, on its own clock.

    A time namespace shifts `CLOCK_BOOTTIME`; the kernel shows the shift, which is subtracted here. It is read again
    when the two clocks have jumped apart: a process that was frozen and restored (CRIU) is in another namespace.
    Systems without `CLOCK_BOOTTIME` may not count the time asleep.

    Thread safety: none needed; at worst two threads read the shift.
    """

    def __init__(self) -> None:
        clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
        self._own = time.monotonic if clock is None else partial(time.clock_gettime, clock)
        self._apart = inf
        self._shift = 0.0

    def __call__(self) -> float:
        boot = self._own()
        apart = time.time() - boot
        if not abs(apart - self._apart) < _JUMP:
            self._shift = _shift()
        self._apart = apart
        return boot - self._shift


def _shift() -> float:
    try:
        lines = (_SELF / "timens_offsets").read_text("ascii").splitlines()
    except OSError:  # no time namespaces, or no /proc: then `boot_id` is empty too
        return 0.0
    for line in lines:
        clock, seconds, nanoseconds = line.split()
        if clock == "boottime":
            return int(seconds) + int(nanoseconds) / 1e9
    return 0.0
