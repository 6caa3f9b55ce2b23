"""How arguments are checked: one message for each mistake, and nothing but plain values behind the front door.

Each function takes the name of the argument, for the message, and the value, and returns a plain `int`, `float` or
`str`: so what reaches an engine is never an `IntEnum` or a number of numpy's, which drivers treat each in its own way.
The wrong type raises `TypeError`, the wrong value `ValueError`.
"""

from __future__ import annotations

import operator
from numbers import Real
from typing import SupportsIndex

__all__ = (
    "LARGEST",
    "LONGEST",
    "LONGEST_NAME",
    "check_count",
    "check_name",
    "check_number",
    "check_seconds",
    "check_task_id",
    "check_text",
    "check_timeout",
)

LONGEST = 1e9
"""Seconds: no duration may be longer. That is some 31 years, and an engine can add it to any time of its clock."""

LARGEST = 2**31 - 1
"""No count may be larger."""

LONGEST_NAME = 512
"""Bytes in UTF-8: no name may be longer. An index of PostgreSQL takes 2704 bytes for a whole row."""


def check_count(name: str, value: object, *, least: int = 1, most: int = LARGEST) -> int:
    """A whole number from `least` to `most`; no bool."""
    number = _whole(name, value)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    if number > most:
        raise ValueError(f"{name} must be at most {most}, not {number}")
    return number


def check_task_id(name: str, value: object) -> int:
    """The id of a task: an int above 0, below 2**63."""
    number = _whole(name, value)
    if not 0 < number < 2**63:
        raise ValueError(f"{name} must be the id of a task, above 0 and below 2**63, not {number}")
    return number


def check_number(
    name: str, value: object, *, least: float | None = None, most: float = 1e12, unit: str = ""
) -> float:
    """A finite number from `least` (None: above 0) to `most`; no bool."""
    if type(value) is not float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} must be a number{unit and ' of'}{unit}, not {type(value).__name__}")
        try:
            value = float(value)
        except OverflowError:
            value = float("inf")
    # also false for nan
    if least is None and not value > 0:
        raise ValueError(f"{name} must be above 0{unit}, not {value:g}")
    if least is not None and not value >= least:
        raise ValueError(f"{name} must be at least {least:g}{unit}, not {value:g}")
    if value > most:
        raise ValueError(f"{name} must be at most {most:g}{unit}, not {value:g}")
    return value


def check_seconds(name: str, value: object, *, least: float | None = 0) -> float:
    """A number of seconds from `least` (None: above 0) to `LONGEST`."""
    return check_number(name, value, least=least, most=LONGEST, unit=" seconds")


def check_timeout(name: str, value: object, *, least: float | None = 0) -> float | None:
    """A number of seconds as above, or None for no limit."""
    if value is None:
        return None
    try:
        return check_seconds(name, value, least=least)
    except (TypeError, ValueError) as problem:
        raise type(problem)(f"{problem}; None means no limit") from None


def check_text(name: str, value: object, *, most: int) -> str:
    """A text of 1 to `most` bytes in UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must not be empty")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} must not have lone surrogates: {value[:50]!r}") from None
    if size > most:
        raise ValueError(f"{name} must have at most {most} bytes in UTF-8, not {size}: {value[:50]!r}...")
    # that of a subclass may say something else
    return value if type(value) is str else str.__str__(value)


def check_name(name: str, value: object) -> str:
    """A name: a text of 1 to `LONGEST_NAME` bytes."""
    return check_text(name, value, most=LONGEST_NAME)


def _whole(name: str, value: object) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    return int(operator.index(value))
