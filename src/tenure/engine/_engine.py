"""What a store asks of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anyio.abc import TaskStatus

from tenure.errors import EngineError

from ._answers import A, Hint, Operation
from ._enlisting import Enlisted, Enlistment


class Engine(Protocol):
    """What a store asks of an engine.

    An engine inherits from this class. It sets `url` and implements `execute` and `serve`; the rest has defaults.

    `immediate` means that operations are plain function calls: `apply` may be used, and there is nothing to batch.

    `shards` is the number of parts of the engine that may be away each for itself. What concerns one object or session
    (`Operation.key`) needs its shard only. An object is asked for with sessions of its own shard, and order is kept
    within a shard; batches of several shards may be under way at the same time.
    Thread safety: none; an engine belongs to one event loop.
    """

    url: str
    """Where the state is kept, for messages; without a password."""

    immediate: bool = False
    shards: int = 1

    def shard(self, name: str, /) -> int:
        """The shard of the object or session with this name, from 0."""
        del name
        return 0

    def apply(self, operation: Operation[A], /) -> A:
        """Apply one operation at once; for immediate engines only. Raises `EngineError`."""
        raise RuntimeError(f"{self.url}: this engine is not immediate: use execute, not apply({operation!r})")

    def post(self, operation: Operation[Any], on_answer: Callable[[Any], object], /) -> bool:
        """Send an operation at once, behind all that were sent before it, without waiting for their answers.

        False: the engine cannot at the moment, and nothing was done. `on_answer` is called once, on the event loop and
        not from within `post`, in the order of posting, with the answer, an `EngineError`, `Reply.MORE` (the operation
        is sent again by `execute`, which runs what is due), or a `StoreUnavailable` when the outcome is unknown; what
        `execute` says of that holds here too.
        """
        del operation, on_answer
        return False

    async def execute(self, operations: Sequence[Operation[Any]], /) -> Sequence[Any]:
        """Apply operations in order, each atomically; return one answer for each, in the same order.

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

    def join(self, operation: Enlisted[A], /) -> Enlistment[A]:
        """How an operation is applied within a transaction of the user's. Raises `EngineError` if the engine cannot.

        Thread safety: any.
        """
        del operation
        raise EngineError(f"{self.url}: this engine takes no part in transactions on connections of yours")
