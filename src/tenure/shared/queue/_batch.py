from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from anyio import CancelScope


class Member(Protocol):
    lost: str | None
    cancelled: bool


M = TypeVar("M", bound=Member)


class Batch(Generic[M]):
    """The stand-in for the cancel scopes of a batch's tasks; the handler is cancelled when no task is left.

    `failures` may be changed in a handler's thread.
    """

    def __init__(self, scope: CancelScope) -> None:
        self.tasks: Sequence[M] = ()
        self.failures: dict[int, BaseException] = {}
        self._scope = scope

    def left(self) -> list[M]:
        return [task for task in self.tasks if _is_left(task)]

    def cancel(self, reason: str) -> None:
        # that may be before all of them are made
        if self.tasks and not any(map(_is_left, self.tasks)):
            self._scope.cancel(reason)


def _is_left(task: Member) -> bool:
    return task.lost is None and not task.cancelled
