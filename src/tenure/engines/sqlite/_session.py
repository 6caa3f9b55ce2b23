"""The row of a session."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqliteSession:
    number: int
    process: str
    micros: int
    """The ttl, in microseconds."""

    @property
    def ttl(self) -> float:
        return self.micros / 1e6
