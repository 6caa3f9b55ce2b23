from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import TypeVar

from tenure.arguments import seconds_of

K = TypeVar("K")


def seconds(name: str, value: object, *, zero: bool = False) -> float:
    if value is None:
        return inf
    if isinstance(value, timedelta):
        value = seconds_of(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, a timedelta or None, not {value!r}")
    if not (value > 0 or (zero and value == 0)):
        raise ValueError(
            f"{name} must be {'0 or more' if zero else 'more than 0'} seconds, or None, not {value!r}"
        )
    return float(value)


def check_callable(name: str, value: object, *, optional: bool = False) -> None:
    if not (callable(value) or (optional and value is None)):
        raise TypeError(f"{name} must be a function, not {value!r}")


def check_key(key: K) -> K:
    try:
        hash(key)
    except TypeError:
        raise TypeError(f"key must be hashable, not {key!r}") from None
    return key
