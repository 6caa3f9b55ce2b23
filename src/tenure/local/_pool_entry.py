"""One resource of a pool, and who has it."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio

__all__ = ("Entry", "Leak")

T = TypeVar("T")
FRAMES = 12


@dataclass(frozen=True, slots=True)
class Leak:
    """A resource that has been lent for longer than `leak_after`, and to whom."""

    task: str
    """The name of the task that took it."""
    seconds: float
    """For how long it has been lent."""
    where: str
    """Where it was taken: the innermost frames, as a traceback prints them."""


class Borrower:
    """Who took a resource, noted when it is taken; its text is made only if it is asked for."""

    __slots__ = ("_stack", "_task")

    def __init__(self, frames_up: int) -> None:
        frames = traceback.walk_stack(sys._getframe(frames_up + 1))
        self._stack = traceback.StackSummary.extract(frames, limit=FRAMES, lookup_lines=False)
        self._task = anyio.get_current_task().name or "unnamed"

    def leak(self, seconds: float) -> Leak:
        """Tell of it."""
        return Leak(self._task, seconds, "".join(reversed(self._stack.format())))


class Entry(Generic[T]):
    """A resource with its times, all on the loop's clock; the pool's bookkeeping says where it is."""

    __slots__ = (
        *("born", "borrower", "expires", "generation", "idle_from", "lent_at", "reported", "resource"),
        "since",
    )

    def __init__(self, resource: T, *, now: float, expires: float, generation: int) -> None:
        self.resource = resource
        self.born = now
        self.expires = expires
        self.generation = generation
        self.since = now
        """When it was last known to be good."""
        self.idle_from = now
        """When it was last needed."""
        self.lent_at = now
        self.borrower: Borrower | None = None
        self.reported = False
