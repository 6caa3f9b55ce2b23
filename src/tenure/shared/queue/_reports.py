"""How a report of progress travels: behind the token of its try and its number, so that readers can order reports."""

from __future__ import annotations

from struct import Struct

_HEAD = Struct(">QQ")


def numbered_report(token: int, number: int, report: bytes) -> bytes:
    """The report with its place in the order of all reports on the task."""
    return _HEAD.pack(token, number) + report


def report_in(data: bytes) -> bytes:
    """The report alone."""
    return data[_HEAD.size :]


def is_older(data: bytes, other: bytes) -> bool:
    """Whether a numbered report was made before another; none is older than any."""
    return data[: _HEAD.size] < other[: _HEAD.size]
