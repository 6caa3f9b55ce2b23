"""A session, as this transaction sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqliteSession:
    """A process's life sign; numbers are never used again."""

    number: int
    process: str
    micros: int
    """The ttl, in microseconds."""

    @property
    def ttl(self) -> float:
        return self.micros / 1e6
