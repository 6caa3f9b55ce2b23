"""The encoding of a report of progress, behind the token of its try and its number."""

from __future__ import annotations

from struct import Struct

_HEAD = Struct(">QQ")


def numbered_report(token: int, number: int, report: bytes) -> bytes:
    return _HEAD.pack(token, number) + report


def report_in(data: bytes) -> bytes:
    return data[_HEAD.size :]


def is_older(data: bytes, other: bytes) -> bool:
    """True if a report was made before another; a report without a number is never older."""
    return data[: _HEAD.size] < other[: _HEAD.size]
