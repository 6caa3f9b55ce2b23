"""What a store asks of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anyio.abc import TaskStatus

from ._answers import A, Hint, Operation


class Engine(Protocol):
    """What a store asks of an engine.

    Thread safety: none; an engine belongs to one event loop.
    """

    @property
    def url(self) -> str:
        """Where the state is kept, for messages; without a password."""
        ...

    @property
    def immediate(self) -> bool:
        """Operations are plain function calls: `apply` may be used, there is nothing to batch."""
        ...

    def apply(self, operation: Operation[A], /) -> A:
        """Apply one operation at once; for immediate engines only. Raises `EngineError`."""
        ...

    async def execute(self, operations: Sequence[Operation[Any]], /) -> Sequence[Any]:
        """Apply operations in order, each atomically, and give one answer for each, in the same order.

        An operation that fails alone is answered with an `EngineError` instance. Raises `StoreUnavailable` when the
        outcome of the whole batch is unknown; sending it again is then safe. After that nothing of the batch may take
        effect any more that has not done so already: an acquisition must not arrive behind its own release.
        Cancellation: the batch may or may not have been applied.
        """
        ...

    async def serve(
        self, process: str, deliver: Callable[[Hint], None], *, task_status: TaskStatus[None]
    ) -> None:
        """Open the link, report started, and deliver the hints for `process` until cancelled; then close the link.

        `deliver` is called on the event loop, never from within `apply` or `execute`'s own bookkeeping. Several stores
        of one program may serve on one engine object at the same time.
        Cancellation: this is how it ends; afterwards no thread, socket or file is left.
        """
        ...
