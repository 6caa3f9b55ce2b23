"""A task in memory."""

from __future__ import annotations

from dataclasses import dataclass

from tenure.engines import rules


@dataclass(slots=True)
class MemoryTask(rules.Task):
    queue: str = ""
    payload: bytes = b""
    priority: int = 0
    key: str | None = None
    meta: bytes = b""
    keep: bool = False
    progress: bytes = b""
    failure: bytes = b""
