from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import tenure.engine as e
from tenure.store import StoreHandle, names, read_counts, read_pages, together
from tenure.waiting import now

THIRTY_YEARS = 1e9


@dataclass(frozen=True, slots=True)
class LeasedTask:
    """A task that a process has: its `id`, and for how many `seconds` it is leased to the process."""

    id: int
    seconds: float


@dataclass(frozen=True, slots=True)
class QueueWorker:
    """A live process that works on a queue: the `tasks` that it has, the oldest lease first.

    `waits`: some of its takers are idle and wait for a task.
    """

    process: str
    waits: bool
    tasks: tuple[LeasedTask, ...]


async def read_workers(store: StoreHandle, key: str) -> list[QueueWorker]:
    counts = await read_counts(store, key)
    sessions = await names(store, "sessions")
    pages: list[e.SessionPage] = await together(
        *(partial(read_pages, store, e.Scan(e.SESSION, session)) for session in sessions)
    )
    found: dict[str, tuple[list[LeasedTask], bool]] = {}
    for page in pages:
        for item in page.rows:
            if item.key == key and item.family in ("tasks", "takers"):
                tasks, waits = found.get(page.process, ([], False))
                if item.family == "tasks":
                    task_id, token = map(int, item.name.split())
                    tasks.append(LeasedTask(task_id, age_of(token, counts.now)))
                found[page.process] = tasks, waits or item.family == "takers"
    return [
        QueueWorker(process, waits, tuple(sorted(tasks, key=lambda task: (-task.seconds, task.id))))
        for process, (tasks, waits) in sorted(found.items())
    ]


def age_of(token: int, time: float) -> float:
    """The seconds since a token was given: it is the engine's time in microseconds."""
    seconds = time - token / 1e6
    # the tokens of memory begin with the clock of the loop, and not in 1970
    return max(0.0, seconds if seconds < THIRTY_YEARS else now() - token / 1e6)
