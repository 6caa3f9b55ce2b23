"""A session, as this transaction sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Session:
    """A process's life sign; ids are never used again."""

    id: int
    process: str
    ttl: int
