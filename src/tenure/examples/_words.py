"""The smallest handler: it counts the words of a line."""

from __future__ import annotations


def words(line: str) -> int:
    """Count the words of a line."""
    return len(line.split())
