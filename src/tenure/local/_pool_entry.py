"""A resource of a pool, with its times."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("Entry",)

T = TypeVar("T")
_NOTHING: Mapping[str, object] = MappingProxyType({})


class Entry(Generic[T]):
    """A resource with its times, all on the loop's clock; the pool's bookkeeping says where it is."""

    __slots__ = ("born", "expires", "generation", "idle_from", "lent_at", "resource", "since", "task")

    def __init__(self, resource: T, *, now: float, expires: float, generation: int = 0) -> None:
        self.resource = resource
        self.born = now
        self.expires = expires
        self.generation = generation
        self.since = now
        """The time at which the resource was last known to be good."""
        self.idle_from = now
        """The time at which the resource was last needed."""
        self.lent_at = now
        """The time at which the resource was last taken from the idle ones."""
        self.task: object = None
        """The task that has it for itself."""

    def held_by(self, task: object) -> int:
        """Count the loans of this resource to a task."""
        return int(self.task is task)

    @property
    def fields(self) -> Mapping[str, object]:
        """The fields that name the resource in events."""
        return _NOTHING
