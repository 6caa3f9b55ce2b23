"""What a store asks of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anyio.abc import TaskStatus

from ._answers import A, Hint, Operation


class Engine(Protocol):
    """What a store asks of an engine.

    An engine may have members more. `post(operation, on_answer) -> bool` sends an operation at once, behind all
    that were sent before it, without waiting for their answers; False: it cannot at the moment, and nothing was done.
    `on_answer` is called once, on the event loop and not from within `post`, in the order of posting, with the
    answer, an `EngineError`, `Reply.MORE` (the operation is sent again by `execute`, which clears up), or a
    `StoreUnavailable` when the outcome is unknown; what `execute` says of that holds here too.

    `lanes: int` and `lane(name) -> int`, from 0: parts of the engine that may be away each for itself. What concerns
    one object or session (`name_in`) needs its lane only. An object is asked for with sessions of its own lane, and
    order is kept within a lane; batches of several lanes may be under way at the same time.
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


def name_in(operation: Operation[Any]) -> str:
    """The name of the object that an operation concerns, or of the session; empty if it concerns neither."""
    for kind in ("key", "pool", "queue", "session"):
        if (name := getattr(operation, kind, None)) is not None:
            return name
    return ""
