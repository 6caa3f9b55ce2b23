"""A task in memory."""

from __future__ import annotations

from dataclasses import dataclass

import tenure.engine as e
from tenure.engines import rules


@dataclass(slots=True)
class Task(rules.Task):
    """An unfinished task, as it was put into a queue."""

    queue: str = ""
    new: e.NewTask = e.NewTask(b"")  # noqa: RUF009 it never changes
    keep: bool = False
    progress: bytes = b""
    failure: bytes = b""
