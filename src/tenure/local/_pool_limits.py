"""The checks of a pool's arguments."""

from __future__ import annotations

from math import inf
from typing import Any

__all__ = ("check_callable", "check_count", "check_timeout", "seconds")


def check_count(name: str, value: Any, *, least: int) -> int:
    """Give a whole number that is at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}")
    return value


def check_timeout(value: float) -> None:
    """Refuse what is no time limit in seconds; 0 is one."""
    if not value >= 0:
        raise ValueError(f"timeout must be seconds, 0 or more, or None, not {value!r}")


def seconds(name: str, value: Any, *, zero: bool = False) -> float:
    """Give a length of time in seconds: `inf` for None, which is never."""
    if value is None:
        return inf
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds or None, not {value!r}")
    if not (value > 0 or (zero and value == 0)):
        raise ValueError(
            f"{name} must be {'0 or more' if zero else 'more than 0'} seconds, or None, not {value!r}"
        )
    return float(value)


def check_callable(name: str, value: Any, *, optional: bool = False) -> None:
    """Refuse what cannot be called; None where it is optional."""
    if not (callable(value) or (optional and value is None)):
        raise TypeError(f"{name} must be a function, not {value!r}")
