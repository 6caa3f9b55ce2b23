"""The interface between a store and an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from anyio.abc import TaskStatus

from tenure.errors import EngineError, StoreUnavailable
from tenure.waiting import checkpoint, park, wake

from ._answers import RESPONSE_TIMEOUT, A, Hint, Operation
from ._enlisting import Enlisted, Enlistment


class Engine(Protocol):
    """The interface of an engine, as a store uses it.

    An engine inherits from this class. It sets `url` and implements `submit` and `serve`; the rest has defaults.

    `shards` is the number of parts that may be away each for itself. An operation needs only the shard of its
    `Operation.key`. An object is asked for with sessions of its own shard, and order is kept within a shard.
    Thread safety: none; an engine belongs to one event loop.
    """

    url: str
    """The address of the state, for messages; without a password."""

    shards: int = 1

    alone: bool = False
    """True if nothing outside of the event loop uses the state: while the loop is blocked, nobody waits for it."""

    families: bool = False
    """True if the engine knows children, entries, signals and releases of tasks (`PutChildren`, `SetEntry`)."""

    response_timeout: float = RESPONSE_TIMEOUT
    """Seconds for which a call waits that waits for an answer alone; a server that is silent for as long is gone."""

    def another(self) -> Engine | None:
        """Another engine over the same state, for the loop of another thread.

        It renews sessions and settles tasks while the loop of this engine is blocked. With None, the default, a loop
        that is blocked for a ttl loses its sessions.
        """
        return None

    @property
    def unreachable(self) -> StoreUnavailable | None:
        """The error with which a part of the engine cannot be reached at present, also between calls.

        An engine with connections delivers a hint with LOST when it loses a connection, and with MISSED when it is
        back.
        """
        return None

    def shard(self, name: str, /) -> int:
        """The shard of the object or session with this name, from 0."""
        del name
        return 0

    def link(self) -> Engine:
        """The link that one store submits to and serves on: by default the engine itself."""
        return self

    def submit(self, operation: Operation[Any], on_answer: Callable[[Any], object], /) -> None:
        """Apply an operation atomically, behind all that were submitted to its shard before.

        `on_answer` is called exactly once: with the answer, an `EngineError` if the operation fails, `Reply.MORE`
        (submit it again at once), or a `StoreUnavailable` when its outcome is unknown (submitting it again is safe),
        which is a `NotSent` when it was not sent. An engine without I/O calls it before this returns; any other calls
        it from the event loop, never from within `submit`. It does not raise, and may submit operations itself.

        After a `StoreUnavailable` nothing more of the operation may take effect: an acquisition must not arrive behind
        its own release. Operations submitted to the shard behind it that have not taken effect get the same answer, so
        that all can be submitted again in their order.
        """
        ...

    async def execute(self, operations: Sequence[Operation[Any]], /) -> Sequence[Any]:
        """Submit operations and return one answer for each, in the same order; for tools and tests.

        Raises `StoreUnavailable` if an answer is one.
        Cancellation: they may or may not be applied.
        """
        answers: list[Any] = [None] * len(operations)
        missing = len(operations)
        parked = park()

        def take(i: int, answer: Any) -> None:
            nonlocal missing
            answers[i] = answer
            missing -= 1
            if not missing:
                wake(parked)

        for i, operation in enumerate(operations):
            self.submit(operation, partial(take, i))
        await (parked if missing else checkpoint())
        for answer in answers:
            if isinstance(answer, StoreUnavailable):
                raise answer
        return answers

    async def serve(
        self, process: str, deliver: Callable[[Hint], None], *, task_status: TaskStatus[None]
    ) -> None:
        """Open the link, report started, and deliver the hints for `process` until cancelled; then close the link.

        `deliver` is called on the event loop. Several stores of one program may serve on one engine object at the same
        time.
        Cancellation: this is how it ends; afterwards no thread, socket or file is left.
        """
        ...

    def enlist(self, operation: Enlisted[A], /) -> Enlistment[A]:
        """The way to apply an operation within a user's transaction. Raises `EngineError` if the engine cannot.

        Thread safety: any.
        """
        del operation
        raise EngineError(f"{self.url}: this engine takes no part in transactions on connections of yours")
