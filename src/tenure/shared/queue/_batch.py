"""A batch: tasks that one handler has at once, each with its own lease and verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from anyio import CancelScope


class Member(Protocol):
    """The attributes of a task that a batch needs."""

    lost: str | None
    cancelled: bool


M = TypeVar("M", bound=Member)


class Batch(Generic[M]):
    """The stand-in for the cancel scopes of a batch's tasks.

    A task that is lost or cancelled only says so, since its handler works on the others too. The handler is cancelled
    when no task is left.

    Thread safety: `failures` may be changed in a handler's thread, the rest on the event loop.
    """

    def __init__(self, scope: CancelScope) -> None:
        self.tasks: Sequence[M] = ()
        self.failures: dict[int, BaseException] = {}
        """Of the tasks that were marked as failed, by token."""
        self._scope = scope

    def left(self) -> list[M]:
        """The tasks that are neither lost nor cancelled."""
        return [task for task in self.tasks if _is_left(task)]

    def cancel(self, reason: str) -> None:
        """Cancel the handler if no task is left, because a task is lost or its cancellation was requested."""
        # that may be before all of them are made
        if self.tasks and not any(map(_is_left, self.tasks)):
            self._scope.cancel(reason)


def _is_left(task: Member) -> bool:
    return task.lost is None and not task.cancelled
