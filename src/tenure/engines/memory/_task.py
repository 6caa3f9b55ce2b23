"""A task in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._state import Session


@dataclass(slots=True)
class Task:
    """An unfinished task; it has a session while it is leased."""

    id: int
    queue: str
    payload: bytes
    priority: int
    key: str | None
    group: str
    meta: bytes
    place: int
    ready_at: float
    expires: float | None
    first_put: float
    attempts: int = 0
    deliveries: int = 0
    session: Session | None = None
    token: int = 0
    stop: int | None = None
    stop_ttl: float | None = None
    max_deliveries: int = 0
    keep: bool = False
    dead_ttl: float | None = None
    progress: bytes = b""
    failure: bytes = b""
