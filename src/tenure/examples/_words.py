"""The least handler that does something."""

from __future__ import annotations


def words(line: str) -> int:
    """Count the words of a line."""
    return len(line.split())
