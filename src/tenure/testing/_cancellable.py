"""The marks that a scenario sets for an exploration."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.lowlevel

from tenure.waiting import this_task

from ._director import Newcomer, current_director

if TYPE_CHECKING:
    from types import TracebackType

    from ._director import Director


class Cancellable:
    """The context manager that `cancellable()` returns.

    Thread safety: for the task that entered it.
    """

    def __init__(self, director: Director | None) -> None:
        self._scope = anyio.CancelScope()
        self._director = director
        self._native = False
        self._cancelling = 0
        self._caught = False
        self.host: Any = None

    @property
    def cancel_called(self) -> bool:
        """True once the block was cancelled, whether or not that took effect."""
        return self._native or self._scope.cancel_called

    @property
    def cancelled_natively(self) -> bool:
        """True once the block was cancelled by its task's own `cancel()`."""
        return self._native

    @property
    def cancelled_caught(self) -> bool:
        """True if the block was cancelled, and ended by that."""
        return self._caught or self._scope.cancelled_caught

    def cancel(self, *, native: bool = False) -> None:
        """Cancel the block by its scope, or (asyncio only) its task by `task.cancel()`; only once.

        Cancellation: does not wait.
        """
        if self.cancel_called:
            return
        if native:
            self._native = True
            self.host.cancel()
        else:
            self._scope.cancel()

    def __enter__(self) -> Self:
        self.host = this_task()
        if hasattr(self.host, "cancelling"):
            self._cancelling = self.host.cancelling()
        self._scope.__enter__()
        if self._director is not None:
            self._director.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._director is not None:
            self._director.leave(self)
        if self._native:
            # What was asked for natively ends here, whether it was delivered or swallowed on the way. Others may have
            # asked too, and asyncio makes one error of it all: that one is theirs. A scope asks again.
            others = (
                self.host.uncancel() > self._cancelling and anyio.current_effective_deadline() > -math.inf
            )
            if isinstance(error, asyncio.CancelledError) and not others:
                self._scope.__exit__(None, None, None)
                self._caught = True
                return True
        return bool(self._scope.__exit__(kind, error, trace))


def cancellable() -> Cancellable:
    """Mark a block that an exploration may cancel at any moment.

    `with cancellable() as scope:` is a cancel scope: a cancellation ends the block, and `scope.cancelled_caught` shows
    it. On asyncio, some blocks are cancelled by the task's own `cancel()` instead, which the block catches too. Outside
    of `explore()` and `cancel_everywhere()` nothing cancels it.
    """
    return Cancellable(current_director())


async def newcomer() -> None:
    """Wait for the worst moment to arrive: when `cancel_everywhere()` has cancelled another task, before that one runs.

    In a run without such a moment it returns when nothing else can run; elsewhere it is a checkpoint.

    Cancellation: nothing is lost.
    """
    director = current_director()
    if director is None or not director.newcomers_wait:
        await anyio.lowlevel.checkpoint()
        return
    waiting = Newcomer(this_task(), anyio.Event())
    director.newcomers.append(waiting)
    await waiting.arrives.wait()
