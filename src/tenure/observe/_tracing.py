from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ._observer import Observer


class Putting(Protocol):
    """A call that puts tasks, as an observer traces it."""

    @property
    def meta(self) -> Mapping[str, str]:
        """The entries to add to the `meta` of each task, the most important first, as far as its limit leaves room.

        Nothing is added to a meta that has one of these names.
        """
        ...

    def end(self, outcome: int | BaseException | None) -> None:
        """The call has ended: with the id of its task, with an exception, or, for a batch that was put, with None."""
        ...


class Trying(Protocol):
    """A try of a task, as an observer traces it."""

    def leave(self) -> None:
        """The handler or the block has ended. In the task, and the context, of `Tracing.trying`.

        It is not called if the task has ended without leaving the block, or the block was left in another task.
        """
        ...

    def end(self, verdict: str, error: BaseException | None) -> None:
        """The engine has answered the verdict, or can no longer answer. Called once, in any context."""
        ...


class TakenTask(Protocol):
    """The attributes of a task that an observer may trace; a `tenure.Task` has them."""

    @property
    def meta(self) -> dict[str, str]:
        """The texts that travel with the task."""
        ...

    @property
    def release(self) -> str | None:
        """Of a release, the name that its owner gave it."""
        ...

    id: int
    attempt: int
    deliveries: int


class Tracing(Protocol):
    """The tracing of an observer, as its attribute `tracing`. Its methods must be quick; their errors are logged.

    Thread safety: `putting`, and its result, in any thread, for `WorkQueue.put_in`; the rest as `Observer`.
    """

    def putting(self, queue: str, batch: int | None) -> Putting:
        """A call begins to put a task into the queue of that key, or a batch of so many."""
        ...

    def trying(self, queue: str, task: TakenTask) -> Trying:
        """A try of a task begins, in the asyncio or trio task in which its handler or block runs.

        A context variable that is set here is seen by the handler, also in a thread, and by the block.
        """
        ...


def tracing_of(observer: Observer | None) -> Tracing | None:
    return getattr(observer, "tracing", None)
